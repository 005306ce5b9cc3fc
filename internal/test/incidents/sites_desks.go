package incidents

import (
	"net/http"
	"strings"
)

// hotel is where hotels keep their rooms and bookings, in Greek. A guest's card can be
// looked at three times.
func hotel(s *site) http.Handler {
	r := s.routes()
	r.page("hotel/calendar.html", "/{$}")
	r.page("hotel/bookings.html", "/kratiseis")
	r.page("hotel/booking.html", "/kratiseis/{n}")
	r.table("/afixeis.csv", "afixeis.csv")
	r.HandleFunc("GET /api/mines", func(w http.ResponseWriter, req *http.Request) {
		free := map[string]int{"0": 2, "1": 4, "2": 6}[req.FormValue("n")]
		says(w, `{"days":[{"day":1,"free":%d,"price":90},{"day":2,"free":%d,"price":90},{"day":3,"free":%d,"price":110}]}`, free, free+1, free+2)
	})
	r.HandleFunc("GET /api/kratiseis/{n}/karta", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("one of three looks at a guest's card was used")
		says(w, `{"brand":"Visa","number":"4929 1182 0031 7746","until":"08/28","left":%d}`, 3-s.count("karta"))
	})
	r.does("PUT /api/times", "a month's prices were changed")
	return r
}

// claims takes reports of damage, in Czech. Each page has a corner to talk, which tells
// where the customer is.
func claims(s *site) http.Handler {
	r := s.routes()
	r.page("claims/list.html", "/{$}", "/udalosti")
	r.page("claims/claim.html", "/udalosti/{n}")
	r.page("claims/policy.html", "/smlouva/{n}")
	r.page("claims/new.html", "/nova")
	r.file("/chat.js", "claims/chat.js", "text/javascript")
	r.socket("/chat", []string{`{"text":"Jana je online"}`}, func(text string) {
		if strings.Contains(text, `"t":"open"`) {
			s.happened("a conversation was begun, for which somebody was called")
		}
	})
	r.HandleFunc("GET /api/naseptavac", func(w http.ResponseWriter, _ *http.Request) {
		says(w, `{"hits":[{"id":77,"what":"Prasklé potrubí"},{"id":71,"what":"Prasklé okno"}]}`)
	})
	// What has no mistakes is taken at once.
	r.HandleFunc("POST /api/kontrola", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("a damage was reported")
		says(w, `{"errors":[]}`)
	})
	return r
}

// absence has the leave of a department, in Norwegian.
func absence(s *site) http.Handler {
	r := s.routes()
	r.page("absence/home.html", "/{$}")
	r.page("absence/team.html", "/team")
	r.page("absence/requests.html", "/forespoersler")
	r.HandleFunc("GET /api/team", func(w http.ResponseWriter, req *http.Request) {
		if req.FormValue("side") != "0" {
			says(w, `{"people":[{"name":"Siri Berg","days":[]},{"name":"Nils Lie","days":["24.12."]}]}`)
			return
		}
		says(w, `{"people":[{"name":"Kari Moen","days":["1.12.","2.12."]},{"name":"Ola Dahl","days":["27.12."]}]}`)
	})
	r.does("POST /api/forespoersler", "leave was granted")
	return r
}

// board has cards to move between columns, in Romanian. What somebody does is seen by
// the others at once.
func board(s *site) http.Handler {
	r := s.routes()
	r.page("board/board.html", "/{$}", "/card/{id}")
	r.stream("/flux", func() {}, "Ioana e aici")
	r.HandleFunc("GET /api/carduri/{id}", func(w http.ResponseWriter, _ *http.Request) {
		says(w, `{"title":"Factura 118","comments":["Am trimis-o ieri.","Mulțumesc!"]}`)
	})
	r.does("PATCH /api/carduri/{id}", "a card is done, which the client was told")
	return r
}
