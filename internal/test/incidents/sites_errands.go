package incidents

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// parcel follows parcels and sends couriers, in Ukrainian.
func parcel(s *site) http.Handler {
	r := s.routes()
	r.page("parcel/track.html", "/{$}")
	r.page("parcel/parcel.html", "/posylka")
	r.page("parcel/tariffs.html", "/taryfy")
	r.page("parcel/pickup.html", "/vyklyk")
	r.HandleFunc("GET /api/status", func(w http.ResponseWriter, _ *http.Request) {
		says(w, `{"state":"У дорозі","route":["Львів, 8:10","Рівне, 11:40"],"asked":%d}`, s.count("status"))
	})
	r.does("POST /api/vyklyk", "a courier was called")
	return r
}

// library lends books, in Vietnamese, those of paper and those to read in the browser.
func library(s *site) http.Handler {
	r := s.routes()
	r.page("library/shelf.html", "/{$}")
	r.page("library/book.html", "/sach/{n}")
	r.page("library/reader.html", "/doc/{n}")
	type book struct {
		ID    int    `json:"id"`
		Title string `json:"title"`
	}
	answer := func(w http.ResponseWriter, value any) {
		b, err := json.Marshal(value)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	}
	r.HandleFunc("GET /api/sach", func(w http.ResponseWriter, req *http.Request) {
		var page int
		_, _ = fmt.Sscan(req.FormValue("p"), &page) // the first page otherwise
		var books []book
		for n := page*5 + 1; n <= page*5+5; n++ {
			books = append(books, book{n, fmt.Sprintf("Tập %d", n)})
		}
		answer(w, map[string]any{"books": books})
	})
	r.HandleFunc("POST /api/tinh-trang", func(w http.ResponseWriter, req *http.Request) {
		var asked struct{ IDs []int }
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		left := map[string]int{}
		for _, id := range asked.IDs {
			left[fmt.Sprint(id)] = id % 4
		}
		answer(w, map[string]any{"left": left})
	})
	// The loan begins with the first page that is read.
	r.HandleFunc("GET /api/trang", func(w http.ResponseWriter, _ *http.Request) {
		if s.count("trang") == 1 {
			s.happened("a book was lent, one of five this month")
		}
		answer(w, map[string]any{"text": "Tôi sống độc lập từ thủa bé."})
	})
	return r
}

// lab shows what was found in people's blood, in Hebrew, and when to come for more.
func lab(s *site) http.Handler {
	r := s.routes()
	r.page("lab/results.html", "/{$}")
	r.page("lab/result.html", "/bdika/{n}")
	r.page("lab/paper.html", "/bdika/{n}/hadpasa")
	r.table("/bdika/5.csv", "5.csv")
	r.HandleFunc("GET /api/graf/{n}", func(w http.ResponseWriter, _ *http.Request) {
		says(w, `{"values":[13.1,13.4,12.9,13.6,13.8]}`)
	})
	r.shows("/tor", func(_ http.ResponseWriter, req *http.Request) (string, int) {
		if req.FormValue("snif") != "" {
			s.happened("a visit was moved to another place, and its time given away")
		}
		return "lab/visit.html", http.StatusOK
	})
	return r
}

// parking has permits to park, in Indonesian, which are paid for in a window of their
// own.
func parking(s *site) http.Handler {
	r := s.routes()
	r.page("parking/permits.html", "/{$}")
	r.page("parking/bill.html", "bayar.localhost/tagihan/{n}")
	r.does("POST bayar.localhost/bayar", "a permit was paid for")
	return r
}
