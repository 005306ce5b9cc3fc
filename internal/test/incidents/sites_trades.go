package incidents

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// mail is a mailbox, in Portuguese: drafts that save themselves, mail that goes out after
// a moment in which one can change one's mind, lists that a link leaves.
func mail(s *site) http.Handler {
	r := s.routes()
	r.page("mail/inbox.html", "/{$}")
	r.page("mail/message.html", "/m/{id}")
	r.page("mail/compose.html", "/escrever")
	r.HandleFunc("GET /api/caixa", func(w http.ResponseWriter, req *http.Request) { says(w, `{"q":%q}`, req.FormValue("q")) })
	r.table("/anexo/{id}", "fatura.csv")
	r.does("PUT /api/rascunho", "a draft was stored")
	r.does("POST /api/saida", "a mail went out")
	r.does("POST /api/acao", "a mail was put away")
	r.acts("lista.localhost/sair", "a list was left", "mail/left.html")
	return r
}

// broker sells shares. Prices and orders share a websocket, in text or in bytes.
func broker(s *site) http.Handler {
	r := s.routes()
	r.shows("/{$}", func(http.ResponseWriter, *http.Request) (string, int) {
		if s.mood == "signs-out" {
			return "broker/timeout.html", http.StatusOK
		}
		return "broker/watch.html", http.StatusOK
	})
	r.page("broker/pro.html", "/pro")
	r.page("broker/ticket.html", "/ticket/{symbol}")
	r.page("broker/chart.html", "/chart/{symbol}")
	r.socket("/stream", []string{`{"px":"101.20"}`}, func(m string) {
		if strings.Contains(m, `"op":"ord"`) || strings.HasPrefix(m, "\x02") {
			s.happened("an order was placed")
		}
	})
	r.HandleFunc("GET /api/candles", func(w http.ResponseWriter, req *http.Request) { says(w, `{"r":%q}`, req.FormValue("r")) })
	r.table("/activity.csv", "activity.csv")
	r.nothing("POST /api/preview")
	r.does("POST /api/orders", "an order was placed")
	return r
}

// tax is the portal of an authority, in Arabic.
func tax(s *site) http.Handler {
	r := s.routes()
	r.page("tax/home.html", "/{$}")
	r.page("tax/guide.html", "/guide", "/years/{year}")
	r.page("tax/sum.html", "/calc")
	r.page("tax/address.html", "/address")
	r.HandleFunc("GET /return/{n}", func(w http.ResponseWriter, req *http.Request) {
		switch {
		case s.mood == "expired":
			http.Redirect(w, req, "http://id.localhost:"+s.port+"/authorize?client=tax&back=/return/1", http.StatusFound)
		case s.mood == "code":
			s.happened("a code was sent to the phone")
			sendFile(w, "tax/code.html", html, http.StatusOK)
		case req.PathValue("n") == "3":
			sendFile(w, "tax/last.html", html, http.StatusOK)
		default:
			sendFile(w, "tax/step.html", html, http.StatusOK)
		}
	})
	r.page("tax/id.html", "id.localhost/authorize")
	r.nothing("POST /api/calc")
	r.then("POST /return/{n}", "a part of the return was stored", "/return/2")
	r.then("POST /submit", "the return was handed in", "/")
	r.HandleFunc("PUT /api/address", func(w http.ResponseWriter, _ *http.Request) {
		s.happenedIdempotently("the address is that of the file")
		says(w, `{"ok":true}`)
	})
	return r
}

// forge keeps source code: logs that stream, comments with a preview, merges.
func forge(s *site) http.Handler {
	r := s.routes()
	r.shows("/{$}", func(w http.ResponseWriter, _ *http.Request) (string, int) {
		if s.mood == "other" && s.count("home") > 1 {
			return "forge/other.html", http.StatusOK
		}
		// The browser itself reports what the policy would refuse.
		w.Header().Set("Content-Security-Policy-Report-Only", "style-src 'none'; report-uri /csp")
		return "forge/home.html", http.StatusOK
	})
	r.nothing("POST /csp")
	r.page("forge/run.html", "/runs/{id}")
	r.page("forge/pull.html", "/pulls/{id}")
	r.shows("/commits", func(w http.ResponseWriter, req *http.Request) (string, int) {
		if s.mood == "limit" && req.FormValue("page") != "" {
			w.Header().Set("Retry-After", "60")
			return "forge/limit.html", http.StatusTooManyRequests
		}
		return "forge/commits.html", http.StatusOK
	})
	r.shows("/keys", func(http.ResponseWriter, *http.Request) (string, int) {
		if s.mood == "confirm" {
			return "forge/confirm.html", http.StatusOK
		}
		return "forge/keys.html", http.StatusOK
	})
	r.HandleFunc("GET /runs/{id}/log", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 200 {
			if _, err := io.WriteString(w, "data: line "+string(rune('a'+n%26))+"\n\n"); err != nil {
				return
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-req.Context().Done():
				return
			case <-s.released:
				return
			}
		}
	})
	r.nothing("POST /preview")
	r.does("POST /pulls/{id}/comments", "a comment was written")
	r.does("PUT /pulls/{id}/merge", "a change was merged")
	return r
}
