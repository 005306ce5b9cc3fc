package incidents

import (
	"net/http"
	"strings"
)

// travel sells rooms and flights, in Spanish. The card company is another site.
func travel(s *site) http.Handler {
	r := s.routes()
	r.page("travel/search.html", "/{$}")
	r.shows("/resultados", func(w http.ResponseWriter, req *http.Request) (string, int) {
		if m := req.FormValue("moneda"); m != "" {
			http.SetCookie(w, &http.Cookie{Name: "moneda", Value: m, Path: "/", MaxAge: 86400})
		}
		return "travel/results.html", http.StatusOK
	})
	r.page("travel/hotel.html", "/hotel/{id}")
	r.page("travel/book.html", "/reserva")
	r.page("travel/card.html", "pagos.localhost/marco")
	r.page("travel/fare.html", "/tarifa")
	r.page("travel/person.html", "/viajero")
	r.nothing("POST /api/calendario")
	r.does("POST pagos.localhost/cobro", "a card was charged")
	r.does("POST /api/bloqueo", "a fare is kept")
	r.does("PATCH /api/viajero", "a traveller's passport was stored")
	return r
}

// field is what technicians use on the way. It works without a network, and sends what
// was done when it can.
func field(s *site) http.Handler {
	r := s.routes()
	r.page("field/jobs.html", "/{$}")
	r.page("field/job.html", "/job/{id}")
	r.page("field/shift.html", "/shift")
	r.page("field/photo.html", "/photo")
	r.page("field/manual.html", "/manual", "/manual/{n}")
	r.file("/field-sw.js", "field/sw.js", "text/javascript")
	r.file("/field-worker.js", "field/worker.js", "text/javascript")
	r.nothing("POST /sync/pull")
	r.HandleFunc("POST /sync/push", func(w http.ResponseWriter, _ *http.Request) {
		if s.mood == "offline" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.happened("a job was closed")
		says(w, `{"ok":true}`)
	})
	r.does("POST /clock", "the shift was ended")
	r.does("PUT /photo/{part}", "a part of a photo was stored")
	return r
}

// helpdesk answers customers, in French. Its lists come by GraphQL; who looks at a ticket
// is told on a websocket.
func helpdesk(s *site) http.Handler {
	r := s.routes()
	r.page("helpdesk/list.html", "/{$}")
	r.page("helpdesk/ticket.html", "/tickets/{id}")
	r.page("helpdesk/draft.html", "/reponse/{id}")
	r.page("helpdesk/export.html", "/rapports")
	r.HandleFunc("GET /suivant", func(w http.ResponseWriter, req *http.Request) {
		s.happened("a ticket was assigned")
		http.Redirect(w, req, "/tickets/8", http.StatusFound)
	})
	r.acts("/avis", "an opinion was given", "helpdesk/thanks.html")
	r.socket("/presence", []string{`{"type":"here","who":["Maria"]}`}, func(string) {})
	r.HandleFunc("POST /gql", func(w http.ResponseWriter, req *http.Request) {
		operations, err := objects(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, o := range operations {
			if o["id"] == "c41e" {
				s.happened("a ticket was closed")
			}
		}
		says(w, `{"data":{"tickets":[7,8]}}`)
	})
	r.does("POST /rapports", "a report is made and mailed")
	return r
}

// social is a place where people show and like things, in Turkish.
func social(s *site) http.Handler {
	r := s.routes()
	r.shows("/{$}", func(w http.ResponseWriter, _ *http.Request) (string, int) {
		visit := s.count("home")
		cookie := http.Cookie{Name: "oturum", Value: "a1", Path: "/", MaxAge: 86400, HttpOnly: true}
		name := "social/home.html"
		switch {
		case s.mood == "rotates":
			cookie.Value = strings.Repeat("b", visit+1)
		case s.mood == "dropped" && visit > 1:
			cookie.MaxAge = -1
			name = "social/public.html"
		case s.mood == "notice" && visit > 1:
			name = "social/notice.html"
		}
		http.SetCookie(w, &cookie)
		return name, http.StatusOK
	})
	r.page("social/write.html", "/yaz")
	r.HandleFunc("GET /api/akis", func(w http.ResponseWriter, req *http.Request) { says(w, `{"p":%q}`, req.FormValue("p")) })
	r.nothing("POST /i")
	r.does("POST /b", "something was liked")
	r.does("POST /gonder", "something was posted")
	return r
}
