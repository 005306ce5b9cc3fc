package incidents

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

//go:embed sites
var pages embed.FS

// sites returns the handler of each web site, by name.
var sites = map[string]func(*site) http.Handler{
	"shop": shop, "bank": bank, "ads": ads, "login": loginSite, "settings": settings, "feed": feed, "dashboard": dashboard, "app": app,
	"clinic": clinic, "tickets": tickets, "router": router, "learn": learn, "mail": mail, "broker": broker,
	"tax": tax, "forge": forge, "travel": travel, "field": field, "helpdesk": helpdesk, "social": social,
	"payroll": payroll, "cargo": cargo, "cloud": cloud, "coin": coin, "auction": auction, "seller": seller, "club": club,
	"sign": sign, "registrar": registrar, "post": post, "marks": marks, "sheet": sheet,
	"hotel": hotel, "claims": claims, "absence": absence, "board": board,
	"parcel": parcel, "library": library, "lab": lab, "parking": parking,
	"eats": eats, "crm": crm, "jobs": jobs, "lingo": lingo, "canteen": canteen,
	"points": points, "builds": builds, "fleet": fleet, "modq": modq, "ware": ware,
}

// moods are the ways in which a site can behave besides the usual one, by the site's
// name.
var moods = map[string][]string{
	"clinic":  {"session-ends"},                 // the second answer says that nobody is logged in
	"tickets": {"puzzle", "crowded"},            // asks whether it is a person; asks to come back later
	"router":  {"asks-again"},                   // wants the password again
	"broker":  {"signs-out"},                    // covers the page soon, and asks for the password
	"tax":     {"code", "expired"},              // sends a code to the phone; sends to another site to log in
	"forge":   {"limit", "confirm", "other"},    // too many requests; the password again; another's name
	"field":   {"offline"},                      // the server takes nothing
	"social":  {"notice", "dropped", "rotates"}, // something unusual; the cookie is taken away; it is replaced
}

// effect is one change of the account.
type effect struct {
	What string
	// Again says that doing it again changes nothing more, so that it is idempotent.
	Again bool
}

// site is a web site that runs for one incident. It records what happens to its
// account. Its hosts are below .localhost, which browsers resolve to this machine.
type site struct {
	name   string
	port   string
	mood   string
	server *httptest.Server
	app    *application // the real application that it stands before, or nil
	dir    string       // what that keeps

	mu       sync.Mutex
	counts   map[string]int
	effects  []effect
	arrived  map[string]int
	held     map[string]bool
	cut      map[string]bool
	answers  map[string][]int
	changed  chan struct{} // closed at each arrival, and then replaced
	released chan struct{} // closed at the end, so that requests without an answer return
	sockets  []net.Conn
}

func newSite(i Incident) (*site, error) {
	s := &site{
		name: i.Site, mood: i.Mood, counts: map[string]int{},
		arrived: map[string]int{}, held: map[string]bool{}, cut: map[string]bool{}, answers: map[string][]int{},
		changed: make(chan struct{}), released: make(chan struct{}),
	}
	var handler http.Handler
	if applications[i.Site] != nil {
		var err error
		if s.app, s.dir, err = begin(i.Site); err != nil {
			return nil, err
		}
		handler = s.app.proxy()
	} else {
		handler = sites[i.Site](s)
	}
	s.server = httptest.NewServer(s.serve(handler))
	u, err := url.Parse(s.server.URL)
	if err != nil {
		s.close()
		return nil, err
	}
	s.port = u.Port()
	if s.app != nil || len(s.signIn()) == 0 {
		s.begin(i.Answers)
	}
	return s, nil
}

func (s *site) close() {
	s.mu.Lock()
	close(s.released)
	for _, c := range s.sockets {
		_ = c.Close() // its reader notices that
	}
	s.mu.Unlock()
	s.server.Close()
	if s.app != nil {
		s.app.stop()
		_ = os.RemoveAll(s.dir) // nobody reads it any more
	}
}

// url is the URL of a path of the site. An address that is a URL gets the site's port.
func (s *site) url(address string) string {
	if strings.HasPrefix(address, "/") {
		address = "http://" + s.name + ".localhost" + address
	}
	return strings.Replace(address, ".localhost", ".localhost:"+s.port, 1)
}

// ported puts the site's port into the URLs of a text.
func (s *site) ported(text string) string {
	return strings.ReplaceAll(text, ".localhost/", ".localhost:"+s.port+"/")
}

// serve carries out each request, counts it, and then answers it, unless its answer is
// kept back or cut.
func (s *site) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := r.Method + " " + r.URL.Path
		if route := r.URL.Query().Get("route"); route != "" {
			request += "?route=" + route
		}
		if streams := strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream"); streams || r.Header.Get("Upgrade") == "websocket" {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		switch status := s.scripted(request); {
		case r.Method == http.MethodOptions:
			answer.Header().Set("Access-Control-Allow-Methods", "*")
			answer.Header().Set("Access-Control-Allow-Headers", "content-type")
			answer.WriteHeader(http.StatusNoContent)
		case status != 0:
			answer.WriteHeader(status)
		default:
			next.ServeHTTP(answer, r)
		}
		held, cut := s.arrive(request)
		if held {
			select {
			case <-r.Context().Done():
			case <-s.released:
			}
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			w.Header().Set("Access-Control-Allow-Origin", origin)
		}
		w.WriteHeader(answer.Code)
		_, _ = io.Copy(w, answer.Body) // the browser may be gone
	})
}

func (s *site) scripted(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := s.answers[request]
	if len(statuses) == 0 {
		return 0
	}
	s.answers[request] = statuses[1:]
	return statuses[0]
}

// arrive counts a request or a message, and tells whether its answer is kept back or cut.
func (s *site) arrive(request string) (held, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived[request]++
	close(s.changed)
	s.changed = make(chan struct{})
	return s.held[request], s.cut[request]
}

// hold makes the site never answer a request, although it is carried out.
func (s *site) hold(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[request] = true
}

// cutOff makes the site end the connection of a request that it has carried out.
func (s *site) cutOff(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[request] = true
}

// await returns when a request has arrived so many times.
func (s *site) await(ctx context.Context, request string, times int) error {
	for {
		s.mu.Lock()
		got, changed := s.arrived[request], s.changed
		s.mu.Unlock()
		if got >= times {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s arrived %d times, want %d: %w", request, got, times, context.Cause(ctx))
		}
	}
}

// happened records an effect on the account.
func (s *site) happened(what string) { s.record(effect{What: what}) }

// happenedIdempotently records an effect that does not change when it is repeated.
func (s *site) happenedIdempotently(what string) { s.record(effect{What: what, Again: true}) }

func (s *site) record(e effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects = append(s.effects, e)
}

// truth returns the effects on the account so far.
func (s *site) truth() ([]effect, error) {
	if s.app != nil {
		changes, err := s.app.changes()
		if err != nil {
			return nil, err
		}
		for _, e := range changes {
			s.record(e)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects), nil
}

// routes are the routes of a site. For any other path it answers 404.
type routes struct {
	*http.ServeMux
	s *site
}

func (s *site) routes() routes {
	r := routes{http.NewServeMux(), s}
	r.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.file("/site.js", "site.js", "text/javascript")
	// Every site has collectors that count its visitors.
	r.nothing("POST /metrics/collect")
	r.nothing("POST stats.localhost/collect")
	r.nothing("POST /events/track")
	return r
}

func (r routes) file(pattern, name, contentType string) {
	r.HandleFunc("GET "+pattern, func(w http.ResponseWriter, _ *http.Request) { sendFile(w, name, contentType, http.StatusOK) })
}

// sendFile answers with a file of the folder sites.
func sendFile(w http.ResponseWriter, name, contentType string, status int) {
	b, err := pages.ReadFile("sites/" + name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// page serves an HTML file at each of the patterns.
func (r routes) page(name string, patterns ...string) {
	for _, p := range patterns {
		r.file(p, name, "text/html; charset=utf-8")
	}
}

// nothing serves requests that change nothing.
func (r routes) nothing(pattern string) {
	r.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":true}`) })
}

// does serves requests that change the account.
func (r routes) does(pattern, what string) {
	r.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		r.s.happened(what)
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
}

// then serves requests that change the account, unless what is empty, and redirects the
// browser.
func (r routes) then(pattern, what, next string) {
	r.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		if what != "" {
			r.s.happened(what)
		}
		http.Redirect(w, req, next, http.StatusSeeOther)
	})
}

// objects reads a JSON body: one object, or a list of them.
func objects(r *http.Request) ([]map[string]any, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); bytes.HasPrefix(b, []byte("[")) {
		var list []map[string]any
		return list, json.Unmarshal(b, &list)
	}
	var one map[string]any
	return []map[string]any{one}, json.Unmarshal(b, &one)
}

// socket serves a websocket. It sends the texts of push, and calls heard with each
// message of the page, be it text or bytes.
func (r routes) socket(pattern string, push []string, heard func(message string)) {
	r.HandleFunc("GET "+pattern, func(w http.ResponseWriter, req *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(req, w)
		if err != nil {
			return // UpgradeHTTP has answered
		}
		r.s.mu.Lock()
		r.s.sockets = append(r.s.sockets, conn)
		r.s.mu.Unlock()
		defer func() { _ = conn.Close() }()
		for _, text := range push {
			if wsutil.WriteServerText(conn, []byte(text)) != nil {
				return
			}
		}
		for {
			message, _, err := wsutil.ReadClientData(conn)
			if err != nil {
				return // the page is gone
			}
			heard(string(message))
			r.s.arrive("WEBSOCKET " + req.URL.Path)
		}
	})
}
