package incidents

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

const html = "text/html; charset=utf-8"

// count counts up, and returns how often it did for a key.
func (s *site) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key]++
	return s.counts[key]
}

// shows serves a page by GET that is chosen for each request.
func (r routes) shows(pattern string, choose func(w http.ResponseWriter, req *http.Request) (name string, status int)) {
	r.HandleFunc("GET "+pattern, func(w http.ResponseWriter, req *http.Request) {
		name, status := choose(w, req)
		sendFile(w, name, html, status)
	})
}

// acts serves a page by GET whose request already changes the account.
func (r routes) acts(pattern, what, name string) {
	r.shows(pattern, func(http.ResponseWriter, *http.Request) (string, int) {
		r.s.happened(what)
		return name, http.StatusOK
	})
}

// says answers with a text.
func says(w http.ResponseWriter, format string, values ...any) {
	_, _ = fmt.Fprintf(w, format, values...)
}

// clinic is a doctor's practice, in German, where patients see free times, book them and
// ask for prescriptions.
func clinic(s *site) http.Handler {
	r := s.routes()
	r.page("clinic/week.html", "/{$}")
	r.page("clinic/slot.html", "/termin/{zeit}")
	r.page("clinic/wizard.html", "/aufnahme")
	r.page("clinic/recipe.html", "/rezepte")
	r.HandleFunc("GET /api/woche", func(w http.ResponseWriter, req *http.Request) {
		if s.mood == "session-ends" && s.count("woche") > 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		says(w, `{"woche":%q}`, req.FormValue("n"))
	})
	r.nothing("POST /api/suche")
	r.does("PUT /api/vormerkung/{zeit}", "a time is kept for the patient")
	r.does("POST /api/buchung", "a visit was booked")
	r.does("POST /api/rezepte", "a prescription was asked for")
	r.acts("/absage", "a visit was called off", "clinic/off.html")
	return r
}

// tickets sells seats, in Japanese: a waiting room, seats that are kept by a message on a
// websocket, a draw, favourites that a link turns on and off.
func tickets(s *site) http.Handler {
	r := s.routes()
	r.page("tickets/list.html", "/{$}")
	r.page("tickets/queue.html", "/machi")
	r.shows("/seki", func(http.ResponseWriter, *http.Request) (string, int) {
		if s.mood == "puzzle" {
			return "tickets/puzzle.html", http.StatusForbidden
		}
		return "tickets/seats.html", http.StatusOK
	})
	r.page("tickets/box.html", "mon.localhost/{$}")
	r.page("tickets/draw.html", "/chusen")
	r.shows("/kouen/{id}", func(w http.ResponseWriter, _ *http.Request) (string, int) {
		if s.mood == "crowded" {
			w.Header().Set("Retry-After", "30")
			return "tickets/crowded.html", http.StatusTooManyRequests
		}
		return "tickets/show.html", http.StatusOK
	})
	r.HandleFunc("GET /api/ichiran", func(w http.ResponseWriter, req *http.Request) { says(w, `{"p":%q}`, req.FormValue("p")) })
	r.HandleFunc("GET /api/machi", func(w http.ResponseWriter, _ *http.Request) { says(w, `{"ban":%d}`, max(1, 120-20*s.count("machi"))) })
	r.socket("/seki/live", []string{`{"kind":"map","free":["A1","A2"]}`}, func(text string) {
		if strings.Contains(text, `"kind":"k"`) {
			s.happened("a seat is kept")
		}
	})
	r.then("POST /chusen", "an entry for the draw was made", "/uketsuke")
	r.page("tickets/done.html", "/uketsuke")
	r.acts("/okiniiri", "a favourite was turned over", "tickets/list.html")
	return r
}

// router is the console of a device, whose pages are old and whose changes go by GET.
func router(s *site) http.Handler {
	r := s.routes()
	r.page("router/status.html", "/{$}")
	r.page("router/tools.html", "/tools")
	r.page("router/dhcp.html", "/dhcp")
	r.page("router/fw.html", "/fw")
	r.HandleFunc("GET /wan", func(w http.ResponseWriter, _ *http.Request) {
		if s.mood == "asks-again" {
			w.Header().Set("WWW-Authenticate", `Basic realm="RX-40"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "<!doctype html><title>401</title><h1>RX-40: 401</h1>")
			return
		}
		sendFile(w, "router/wan.html", html, http.StatusOK)
	})
	r.HandleFunc("GET /cgi/st.json", func(w http.ResponseWriter, _ *http.Request) { says(w, `{"up":%d}`, s.count("st")) })
	r.HandleFunc("GET /cgi/gpio", func(w http.ResponseWriter, req *http.Request) {
		s.happened("relay " + req.FormValue("p") + " was switched")
		says(w, `{"p":1}`)
	})
	r.acts("/cgi/apply", "the settings were changed", "router/dhcp.html")
	r.table("/log.txt", "log.txt")
	r.nothing("POST /cgi/diag")
	r.does("POST /cgi/fw", "firmware was written")
	return r
}

// learn is a school's platform, in Polish: lessons, cards, tests with a clock, homework.
func learn(s *site) http.Handler {
	r := s.routes()
	r.page("learn/lesson.html", "/lekcja/{n}")
	r.page("learn/cards.html", "/fiszki")
	r.page("learn/words.html", "/slownik")
	r.page("learn/work.html", "/praca")
	r.page("learn/about.html", "/test")
	r.HandleFunc("GET /api/nowe", func(w http.ResponseWriter, _ *http.Request) { says(w, `{"n":%d}`, s.count("nowe")) })
	r.acts("/test/start", "one of two attempts was begun", "learn/test.html")
	r.then("POST /test/wynik", "a test was handed in", "/test")
	r.acts("/obecnosc", "the pupil was marked as present", "learn/present.html")
	r.does("POST /praca", "homework was handed in")
	return r
}
