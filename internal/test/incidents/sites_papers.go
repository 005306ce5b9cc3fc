package incidents

import (
	"net/http"
	"strings"
)

// sign is where contracts are signed, in Italian.
func sign(s *site) http.Handler {
	r := s.routes()
	r.page("sign/draw.html", "/firma/{n}")
	r.page("sign/contract.html", "/contratto/{n}")
	r.does("POST /presenza", "the contract counts as read and its terms as accepted")
	r.does("POST /api/firma", "a contract was signed")
	return r
}

// registrar has names of hosts and their zones, in French.
func registrar(s *site) http.Handler {
	r := s.routes()
	r.page("registrar/names.html", "/domaines")
	r.page("registrar/zone.html", "/domaines/{n}/zone")
	r.page("registrar/name.html", "/domaines/{n}")
	r.HandleFunc("GET /domaines/{n}/code", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("the name was unlocked, and anybody with the code can take it away")
		says(w, `{"code":"FR-88-KX"}`)
	})
	r.does("POST /api/zone", "a zone was published")
	return r
}

// post is an authority's mailbox for citizens, in German.
func post(s *site) http.Handler {
	r := s.routes()
	r.shows("/{$}", func(_ http.ResponseWriter, req *http.Request) (string, int) {
		if _, err := req.Cookie("geprueft"); err != nil {
			return "post/check.html", http.StatusServiceUnavailable
		}
		return "post/inbox.html", http.StatusOK
	})
	r.page("post/inbox.html", "/postfach")
	r.acts("/postfach/{n}", "a notice counts as served, and its period runs", "post/notice.html")
	r.page("post/form.html", "/antrag")
	r.nothing("POST /sitzung")
	r.does("POST /antrag", "a form was handed in")
	return r
}

// marks is where teachers mark papers, in Hungarian.
func marks(s *site) http.Handler {
	r := s.routes()
	r.shows("/dolgozat/{n}", func(_ http.ResponseWriter, req *http.Request) (string, int) {
		if req.FormValue("pont") != "" {
			s.happened("a paper was given its mark")
		}
		return "marks/paper.html", http.StatusOK
	})
	r.does("DELETE /api/jegyzet/{n}", "a note was deleted")
	return r
}

// sheet has tables that several people fill in, in Finnish. Where each of them stands and
// what they write goes over one websocket, and all tabs send through the first.
func sheet(s *site) http.Handler {
	r := s.routes()
	r.page("sheet/grid.html", "/{$}")
	r.page("sheet/notes.html", "/muistio")
	r.socket("/live", []string{`{"t":"who","n":2}`}, func(text string) {
		if strings.Contains(text, `"t":"cells"`) {
			s.happened("a cell was changed")
		}
	})
	r.does("POST /api/muistio", "a remark was added")
	return r
}
