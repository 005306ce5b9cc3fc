package incidents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// eats is where a restaurant sees the orders of a delivery service, in Spanish. Whoever prints
// the ticket of an order accepts it.
func eats(s *site) http.Handler {
	r := s.routes()
	s.set("abierto", 1)
	r.page("eats/pedidos.html", "/{$}")
	r.page("eats/carta.html", "/carta")
	r.page("eats/informes.html", "/informes")
	r.asks("GET /api/yo", `{"correo":"ann@casalola.example","local":12}`)
	r.HandleFunc("GET /api/pedidos", func(w http.ResponseWriter, _ *http.Request) {
		n := s.add("aceptados", 0)
		saysJSON(w, `{"pendientes":[{"id":881,"que":"2 tortillas"}],"aceptados":%d}`, n)
	})
	r.writes("POST /api/pedidos/{id}/aceptar", "aceptados", "an order was accepted")
	r.HandleFunc("GET /api/pedidos/{id}/ticket", func(w http.ResponseWriter, _ *http.Request) {
		if s.add("aceptados", 1) == 1 {
			s.happened("an order was accepted")
		}
		saysJSON(w, `{"ticket":"881: 2 tortillas, calle Mayor 3","hora":"20:40"}`)
	})
	r.HandleFunc("GET /api/local", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"abierto":%t}`, s.add("abierto", 0) == 1)
	})
	r.HandleFunc("GET /pausa", func(w http.ResponseWriter, req *http.Request) {
		s.happened("the restaurant takes no orders")
		s.set("abierto", 0)
		http.Redirect(w, req, "/", http.StatusSeeOther)
	})
	r.HandleFunc("GET /api/carta", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"version":%d,"platos":3}`, s.add("carta", 0))
	})
	r.asks("POST /api/platos/buscar", `{"platos":[{"id":3,"nombre":"Tortilla","precio":"8,50"},{"id":5,"nombre":"Tortita","precio":"4,00"}]}`)
	r.asks("GET /api/platos/{id}", `{"nombre":"Tortilla","alergenos":["huevo"]}`)
	r.writes("PATCH /api/platos/{id}", "carta", "a dish was changed")
	r.asks("POST /api/informes", `{"filas":[["lunes","412"],["martes","388"]]}`)
	r.talks("/en-vivo", []string{`{"type":"order","id":881}`}, func(m string, say func(string)) {
		if strings.Contains(m, `"ping"`) {
			say(`{"type":"pong"}`)
		}
	})
	return r.forMembers()
}

// crm keeps customers and deals. All goes over GraphQL, much of it by stored operations. To
// get the next lead takes it.
func crm(s *site) http.Handler {
	r := s.routes()
	r.page("crm/contacts.html", "/{$}")
	r.page("crm/contact.html", "/c/{id}")
	r.page("crm/deals.html", "/deals")
	r.page("crm/leads.html", "/leads")
	r.asks("GET /rest/me", `{"mail":"ann@acme.example"}`)
	r.HandleFunc("GET /rest/summary", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"leads":%d,"notes":%d,"deals":%d}`, s.add("leads", 0), s.add("notes", 0), s.add("deals", 0))
	})
	answer := func(o map[string]any) string {
		switch o["operationName"] {
		case "ContactList":
			variables, _ := o["variables"].(map[string]any)
			return fmt.Sprintf(`{"data":{"contacts":[{"id":7,"name":"Ruth Adler (%v)"}]}}`, variables["q"])
		case "ContactCard":
			return `{"data":{"contact":{"name":"Ruth Adler","phone":"555 0142"}}}`
		case "DealBoard":
			return `{"data":{"deals":[{"id":31,"name":"Lamps for Adler","stage":"offer"}]}}`
		case "GetNextLead":
			s.happened("a lead was taken")
			s.add("leads", 1)
			return `{"data":{"lead":{"id":90,"name":"Otto Brand"}}}`
		case "AddNote":
			s.happened("a note was written")
			s.add("notes", 1)
			return `{"data":{"addNote":{"id":4}}}`
		case "MoveDeal":
			s.happened("a deal was moved")
			s.add("deals", 1)
			return `{"data":{"moveDeal":{"stage":"won"}}}`
		}
		return `{"errors":[{"message":"PersistedQueryNotFound"}]}`
	}
	r.HandleFunc("GET /graphql", func(w http.ResponseWriter, req *http.Request) {
		// A stored operation by GET can only be a query here.
		saysJSON(w, "%s", answer(map[string]any{"operationName": req.FormValue("operationName")}))
	})
	r.HandleFunc("POST /graphql", func(w http.ResponseWriter, req *http.Request) {
		operations, err := objects(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var all []string
		for _, o := range operations {
			all = append(all, answer(o))
		}
		if len(all) == 1 {
			saysJSON(w, "%s", all[0])
			return
		}
		saysJSON(w, "[%s]", strings.Join(all, ","))
	})
	return r.forMembers()
}

// lingo is where translators work: texts save themselves, and what was translated before is
// found by JSON-RPC.
func lingo(s *site) http.Handler {
	r := s.routes()
	r.page("lingo/doc.html", "/doc/{n}")
	r.page("lingo/jobs.html", "/{$}")
	r.asks("GET /api/me", `{"id":44,"mail":"ann@words.example"}`)
	r.HandleFunc("GET /api/doc/{n}/progress", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"confirmed":%d,"changes":%d}`, s.add("confirmed", 0), s.add("changes", 0))
	})
	r.writes("PUT /api/seg/{n}", "changes", "a sentence was stored")
	r.HandleFunc("POST /rpc", func(w http.ResponseWriter, req *http.Request) {
		calls, err := objects(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var all []string
		for _, c := range calls {
			result := `{}`
			switch c["method"] {
			case "tm.search":
				result = `{"hits":[{"id":8,"source":"the drawer","target":"die Schublade"}]}`
			case "tm.get":
				result = `{"target":"die Schublade","by":"Ben"}`
			case "tm.add":
				s.happened("a translation was added to the memory")
				s.add("changes", 1)
			case "segment.confirm":
				s.happened("a sentence was confirmed")
				s.add("confirmed", 1)
			}
			all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":%s}`, c["id"], result))
		}
		if len(all) == 1 {
			saysJSON(w, "%s", all[0])
			return
		}
		saysJSON(w, "[%s]", strings.Join(all, ","))
	})
	return r.forMembers()
}

// builds runs what programmers push. Its API answers to POST only.
func builds(s *site) http.Handler {
	r := s.routes()
	s.set("total", 40)
	r.page("builds/list.html", "/{$}")
	r.page("builds/build.html", "/builds/{n}")
	r.asks("GET /api/whoami", `{"login":"ann"}`)
	r.HandleFunc("GET /api/summary", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"total":%d,"cancelled":%d}`, s.add("total", 0), s.add("cancelled", 0))
	})
	const service = "POST /ci.v1.BuildService/"
	r.asks(service+"ListBuilds", `{"builds":[{"id":40,"state":"FAILED"},{"id":39,"state":"PASSED"}]}`)
	r.HandleFunc(service+"GetLog", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"line":"line %d","more":true}`, s.count("log"))
	})
	r.asks(service+"ListArtifacts", `{"artifacts":[{"name":"report.csv"}]}`)
	r.HandleFunc(service+"SignURL", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"url":"/files/report.csv?signature=3f9a"}`)
	})
	r.table("/files/report.csv", "report.csv")
	r.writes(service+"RetryBuild", "total", "a build was started")
	r.writes(service+"StartPipeline", "total", "a build was started")
	r.writes(service+"CancelBuild", "cancelled", "a build was cancelled")
	r.HandleFunc("GET /builds/{n}/events", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 200 {
			if _, err := fmt.Fprintf(w, "data: {\"step\":%d}\n\n", n); err != nil {
				return
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-req.Context().Done():
				return
			case <-s.released:
				return
			}
		}
	})
	return r.forMembers()
}

// modq is where moderators decide what may stay. What they decide waits in the page for a
// moment, so that it can be undone.
func modq(s *site) http.Handler {
	r := s.routes()
	r.page("modq/queue.html", "/{$}")
	r.page("modq/people.html", "/people")
	r.asks("GET /api/me", `{"name":"ann","role":"moderator"}`)
	r.HandleFunc("GET /api/me/stats", func(w http.ResponseWriter, _ *http.Request) {
		saysJSON(w, `{"decisions":%d}`, s.add("decisions", 0))
	})
	r.asks("GET /api/queue", `{"items":[{"id":501,"text":"buy followers now"},{"id":502,"text":"nice picture"},{"id":503,"text":"you are wrong"}]}`)
	r.HandleFunc("POST /api/decisions", func(w http.ResponseWriter, req *http.Request) {
		var sent []struct {
			ID   int    `json:"id"`
			What string `json:"what"`
		}
		if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, d := range sent {
			s.happened(fmt.Sprintf("post %d: %s", d.ID, d.What))
			s.add("decisions", 1)
		}
		saysJSON(w, `{"stored":%d}`, len(sent))
	})
	r.asks("POST /api/people/lookup", `{"people":[{"name":"kim_77","strikes":2}]}`)
	r.asks("POST /api/translate", `{"text":"a nice picture"}`)
	r.asks("GET /api/threads/{n}", `{"posts":["nice picture","thanks"]}`)
	r.writes("POST /api/people/{name}/ban", "decisions", "somebody was banned")
	return r.forMembers()
}
