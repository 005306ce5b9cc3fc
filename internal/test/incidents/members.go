package incidents

import (
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/goccy/go-yaml"

	known "leasehold/checkpoint/site"
	"leasehold/internal/test/source"
)

// members are the sites whose account signs in before an incident begins, in a session of its
// own that ends in order. About each of them there is a file by its owner's hand, in the
// folder files of testdata/incidents/exam. With LEASEHOLD_SHIPPED=none nobody reads it.
var members = []string{"eats", "crm", "jobs", "lingo", "canteen", "points", "builds", "fleet", "modq", "ware"}

// signIn is how the account signs in at the site; empty if it does not.
func (s *site) signIn() []Action {
	switch {
	case s.app != nil:
		return s.app.signIn
	case slices.Contains(members, s.name):
		return []Action{{Goto: "/signin"}, {Click: "#enter"}, {See: "Signed in"}}
	}
	return nil
}

// ownerFile is what the owner of the accounts at a site has written about it.
func ownerFile(name, port string) (f known.File, err error) {
	b, err := fs.ReadFile(os.DirFS(source.Path("testdata/incidents/exam/files")), name+".yaml")
	if err != nil {
		return f, err
	}
	text := strings.ReplaceAll(string(b), ".localhost", ".localhost:"+port)
	err = yaml.UnmarshalWithOptions([]byte(text), &f, yaml.Strict())
	return f, err
}

// about is what is known of the site by a file, or nil.
func (s *site) about() (*known.File, error) {
	if os.Getenv("LEASEHOLD_SHIPPED") == "none" {
		return nil, nil
	}
	var f known.File
	var err error
	switch {
	case s.app != nil:
		f, err = known.Shipped(s.name, strings.TrimSuffix(s.url("/"), "/"))
	case slices.Contains(members, s.name):
		f, err = ownerFile(s.name, s.port)
	default:
		return nil, nil
	}
	return &f, err
}

// begin forgets what happened while the account signed in. From now on the site gives the
// answers that the incident names.
func (s *site) begin(answers map[string][]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects, s.arrived = nil, map[string]int{}
	for request, statuses := range answers {
		s.answers[request] = slices.Clone(statuses)
	}
}

// add counts by some, and returns the sum.
func (s *site) add(key string, by int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key] += by
	return s.counts[key]
}

// set notes a number.
func (s *site) set(key string, to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key] = to
}

// writes serves requests that change the account, and counts them.
func (r routes) writes(pattern, key, what string) {
	r.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		r.s.happened(what)
		saysJSON(w, `{"ok":true,"n":%d}`, r.s.add(key, 1))
	})
}

// saysJSON answers with JSON.
func saysJSON(w http.ResponseWriter, format string, values ...any) {
	w.Header().Set("Content-Type", "application/json")
	says(w, format, values...)
}

// asks serves requests that are answered with the same JSON each time.
func (r routes) asks(pattern, answer string) {
	r.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { saysJSON(w, "%s", answer) })
}

// whose is the name of the account that is signed in by a cookie.
func whose(req *http.Request) string {
	c, err := req.Cookie("sid")
	if err != nil {
		return ""
	}
	return c.Value
}

// forMembers lets only those in who are signed in.
func (r routes) forMembers() http.Handler {
	r.page("member/signin.html", "/signin")
	r.HandleFunc("POST /signin", func(w http.ResponseWriter, _ *http.Request) {
		r.s.happened("somebody signed in")
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "ann", Path: "/", MaxAge: 30 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode})
		sendFile(w, "member/welcome.html", html, http.StatusOK)
	})
	r.HandleFunc("GET /signout", func(w http.ResponseWriter, req *http.Request) {
		r.s.happened("the session was ended")
		http.SetCookie(w, &http.Cookie{Name: "sid", Path: "/", MaxAge: -1})
		http.Redirect(w, req, "/signin", http.StatusSeeOther)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		open := slices.Contains([]string{"/signin", "/site.js", "/favicon.ico", "/metrics/collect", "/collect"}, req.URL.Path)
		switch {
		case open || whose(req) != "":
			r.ServeHTTP(w, req)
		case req.Method == http.MethodGet && strings.Contains(req.Header.Get("Accept"), "text/html"):
			http.Redirect(w, req, "/signin", http.StatusSeeOther)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
}

// talks serves a websocket, and calls heard with each message of the page, which may say
// something.
func (r routes) talks(pattern string, first []string, heard func(message string, say func(string))) {
	r.HandleFunc("GET "+pattern, func(w http.ResponseWriter, req *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(req, w)
		if err != nil {
			return // UpgradeHTTP has answered
		}
		r.s.mu.Lock()
		r.s.sockets = append(r.s.sockets, conn)
		r.s.mu.Unlock()
		defer func() { _ = conn.Close() }()
		say := func(text string) { _ = wsutil.WriteServerText(conn, []byte(text)) } // the page may be gone
		for _, text := range first {
			say(text)
		}
		for {
			message, _, err := wsutil.ReadClientData(conn)
			if err != nil {
				return // the page is gone
			}
			heard(string(message), say)
			r.s.arrive("WEBSOCKET " + req.URL.Path)
		}
	})
}
