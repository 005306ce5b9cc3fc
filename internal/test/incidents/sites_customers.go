package incidents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// jobs is a job board, in Italian, whose pages get pieces of themselves from the server. The
// first step of an application takes the time of a talk.
func jobs(s *site) http.Handler {
	r := s.routes()
	r.file("/hx.js", "jobs/hx.js", "text/javascript")
	r.page("jobs/search.html", "/{$}")
	r.page("jobs/job.html", "/annunci/{n}")
	r.page("jobs/step1.html", "/candidatura/{n}")
	r.page("jobs/step2.html", "/candidatura/{n}/2")
	piece := func(w http.ResponseWriter, format string, values ...any) {
		w.Header().Set("Content-Type", html)
		says(w, format, values...)
	}
	r.HandleFunc("POST /cerca", func(w http.ResponseWriter, req *http.Request) {
		piece(w, `<li><a id="first" href="/annunci/5">Sarto (%s)</a></li><li><a href="/annunci/6">Sarta, pagina 1</a></li>`, req.FormValue("q"))
	})
	r.HandleFunc("GET /elenco", func(w http.ResponseWriter, req *http.Request) {
		piece(w, `<li>Cuoco, pagina %s</li>`, req.FormValue("pagina"))
	})
	r.HandleFunc("GET /annunci/{n}/salva", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("a job was put among those that are kept, or taken from them")
		piece(w, `<span>♥ nei preferiti</span>`)
		s.add("salvati", 1)
	})
	r.HandleFunc("GET /annunci/{n}/dettagli", func(w http.ResponseWriter, _ *http.Request) {
		piece(w, `<p>Contratto a tempo indeterminato, Torino</p>`)
	})
	r.HandleFunc("POST /candidatura/{n}/controlla", func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.FormValue("mail"), "@") {
			piece(w, `<b>indirizzo non valido</b>`)
			return
		}
		piece(w, `<b>indirizzo valido</b>`)
	})
	r.HandleFunc("POST /candidatura/{n}/1", func(w http.ResponseWriter, req *http.Request) {
		s.happened("the time of a talk was taken")
		s.add("colloqui", 1)
		http.Redirect(w, req, "/candidatura/"+req.PathValue("n")+"/2", http.StatusSeeOther)
	})
	r.HandleFunc("POST /candidatura/{n}/2", func(w http.ResponseWriter, req *http.Request) {
		s.happened("an application was sent")
		s.add("candidature", 1)
		http.Redirect(w, req, "/", http.StatusSeeOther)
	})
	r.HandleFunc("GET /profilo", func(w http.ResponseWriter, _ *http.Request) {
		piece(w, `<!doctype html><title>Profilo</title><p id="chi">ann@filo.example</p><p>Salvati <b id="salvati">%d</b>, colloqui <b id="colloqui">%d</b>, candidature <b id="candidature">%d</b></p>`,
			s.add("salvati", 0), s.add("colloqui", 0), s.add("candidature", 0))
	})
	return r.forMembers()
}

// canteen is where parents order lunches at school, in Czech: one script, and forms.
func canteen(s *site) http.Handler {
	r := s.routes()
	r.HandleFunc("GET /index.php", func(w http.ResponseWriter, req *http.Request) {
		switch req.FormValue("p") {
		case "prehled":
			w.Header().Set("Content-Type", html)
			says(w, `<!doctype html><title>Přehled</title><h1>Přehled</h1><p id="kdo">Rodina Annova</p><p>Objednáno <b id="obedy">%d</b>, kredit <b id="kredit">%d</b> Kč</p>`,
				s.add("obedy", 0), 800-45*s.add("obedy", 0))
		case "odhlas":
			s.happened("a lunch was cancelled")
			s.add("obedy", -1)
			sendFile(w, "canteen/cancelled.html", html, http.StatusOK)
		default:
			sendFile(w, "canteen/menu.html", html, http.StatusOK)
		}
	})
	r.HandleFunc("POST /index.php", func(w http.ResponseWriter, req *http.Request) {
		if err := req.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		do := req.PostForm["akce"]
		w.Header().Set("Content-Type", html)
		// As in PHP the last of several values counts.
		switch days := len(req.PostForm["den[]"]); do[len(do)-1] {
		case "objednat":
			s.happened("lunches were ordered")
			s.add("obedy", days)
			says(w, `<!doctype html><title>Jídelna</title><p>Objednáno: %d obědů, %d Kč</p><a href="/index.php?p=menu">Zpět</a>`, days, 45*days)
		case "filtr":
			says(w, `<!doctype html><title>Jídelna</title><p>Bez alergenů %s: 3 jídla</p><a id="back" href="/index.php?p=menu&amp;tyden=49">Zpět</a>`, strings.Join(req.PostForm["alergeny[]"], " a "))
		default:
			says(w, `<!doctype html><title>Jídelna</title><p>Náhled: %d obědů, %d Kč</p><a id="back" href="/index.php?p=menu">Zpět</a>`, days, 45*days)
		}
	})
	return r.forMembers()
}

// points is a loyalty programme, in Dutch. Its page keeps a token, and its scratch cards are
// scratched by looking.
func points(s *site) http.Handler {
	r := s.routes()
	s.set("punten", 1200)
	s.set("over", 3)
	r.page("points/home.html", "/{$}")
	r.page("points/coupons.html", "/bonnen")
	r.page("points/cards.html", "/kraskaarten")
	r.page("points/give.html", "/doneren")
	r.page("points/signin.html", "/signin")
	r.HandleFunc("POST /api/aanmelden", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("somebody signed in")
		saysJSON(w, `{"token":"tok-ann"}`)
	})
	api := func(pattern string, serve http.HandlerFunc) {
		r.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			if !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer tok-ann") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			serve(w, req)
		})
	}
	api("POST /api/token", func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, `{"token":"tok-ann-%d"}`, s.count("token")) })
	api("GET /api/ik", func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, `{"email":"ann@spaar.example"}`) })
	api("GET /api/saldo", func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, `{"punten":%d}`, s.add("punten", 0)) })
	api("POST /api/overzicht", func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, `{"regels":["brood +12","melk +4"]}`) })
	api("GET /api/bonnen", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"actief":%d,"alle":[{"id":3,"naam":"Koffie -20%%"}]}`, s.add("bon", 0))
	})
	api("PUT /api/bonnen/{n}/actief", func(w http.ResponseWriter, req *http.Request) {
		var sent struct{ On bool }
		if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.happenedIdempotently("a coupon is on")
		s.set("bon", 1)
		saysJSON(w, `{"actief":%t}`, sent.On)
	})
	api("GET /api/kraskaart/{n}", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("a card was scratched")
		saysJSON(w, `{"prijs":"50 punten","over":%d}`, s.add("over", -1))
	})
	api("GET /api/kraskaarten", func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, `{"over":%d}`, s.add("over", 0)) })
	api("POST /api/doneer", func(w http.ResponseWriter, _ *http.Request) {
		s.happened("points were given away")
		saysJSON(w, `{"punten":%d}`, s.add("punten", -500))
	})
	return r
}

// fleet lends cars by the minute, in Danish. Its map talks in frames of socket.io.
func fleet(s *site) http.Handler {
	r := s.routes()
	r.page("fleet/map.html", "/{$}")
	r.page("fleet/trips.html", "/ture")
	r.asks("GET /api/mig", `{"mail":"ann@bil.example"}`)
	r.HandleFunc("GET /api/mig/status", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"holdt":%d,"ture":14}`, s.add("holdt", 0))
	})
	r.asks("GET /api/ture", `{"ture":[{"id":14,"fra":"Valby","pris":"61,00"}]}`)
	r.table("/api/ture/14/kvittering", "kvittering.csv")
	r.talks("/socket.io/", []string{`0{"sid":"k1","upgrades":[],"pingInterval":25000,"pingTimeout":20000}`}, func(m string, say func(string)) {
		switch {
		case m == "40":
			say(`40{"sid":"k2"}`)
		case strings.HasPrefix(m, `42["cars:near"`):
			say(fmt.Sprintf(`42["cars",{"text":"%d biler i nærheden"}]`, 2+s.count("near")))
		case strings.HasPrefix(m, `42["price:quote"`):
			say(`42["price",{"text":"Pris: 61,00 kr."}]`)
		case strings.HasPrefix(m, `42["car:hold"`):
			s.happened("a car is held for the account")
			s.add("holdt", 1)
			say(`42["held",{"text":"Bil 7 venter på dig i 15 min"}]`)
		}
	})
	return r.forMembers()
}

// ware is what people in a warehouse work with, in Polish. Its server draws the page, and hears
// of each press by a websocket.
func ware(s *site) http.Handler {
	r := s.routes()
	s.set("magazyn", 1)
	r.file("/live.js", "ware/live.js", "text/javascript")
	r.page("ware/shelves.html", "/{$}")
	r.page("ware/pick.html", "/kompletacja")
	r.page("ware/count.html", "/inwentura")
	r.page("ware/where.html", "/magazyny")
	r.asks("GET /api/ja", `{"login":"ann"}`)
	r.HandleFunc("GET /api/stan", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"magazyn":%d,"pobrane":%d,"korekty":%d}`, s.add("magazyn", 0), s.add("pobrane", 0), s.add("korekty", 0))
	})
	r.HandleFunc("POST /magazyn", func(w http.ResponseWriter, req *http.Request) {
		s.happened("the account works for another warehouse")
		s.set("magazyn", 2)
		http.Redirect(w, req, "/", http.StatusSeeOther)
	})
	r.talks("/live/websocket", nil, func(m string, say func(string)) {
		var frame []any
		if json.Unmarshal([]byte(m), &frame) != nil || len(frame) != 5 {
			return
		}
		text := ""
		if frame[3] == "event" {
			body, _ := frame[4].(map[string]any)
			switch body["event"] {
			case "search":
				text = fmt.Sprintf("Znaleziono: %v, regał 4", body["value"])
			case "page":
				text = "Strona 2: regał 9"
			case "validate":
				text = "Różnica: -2, niezapisana"
			case "save":
				s.happened("the stock was corrected")
				s.add("korekty", 1)
				text = "Zapisano"
			case "scan":
				s.happened("a piece was picked")
				text = fmt.Sprintf("Pobrano %d z 3", s.add("pobrane", 1))
			}
		}
		b, err := json.Marshal([]any{frame[0], frame[1], frame[2], "phx_reply", map[string]any{"status": "ok", "response": map[string]any{"diff": map[string]any{"0": text}}}})
		if err == nil {
			say(string(b))
		}
	})
	return r.forMembers()
}
