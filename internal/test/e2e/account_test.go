package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/test/testproxy"
	"leasehold/lease"
)

// members is a site with accounts: who has the right cookie is signed in. It notes every
// request, as METHOD PATH, and whose it was.
type members struct {
	*httptest.Server

	mu  sync.Mutex
	got []string
	// sids are the sessions that count, with whose they are.
	sids  map[string]string
	drawn int
}

func newMembers(t *testing.T) *members {
	t.Helper()
	m := &members{sids: map[string]string{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	who := ""
	if c, err := r.Cookie("sid"); err == nil {
		who = m.sids[c.Value]
	}
	if r.URL.Path == "/favicon.ico" || r.Host != strings.TrimPrefix(m.URL, "http://") { // Chrome's own, which come through the proxy
		return
	}
	m.got = append(m.got, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+who))
	// set gives the visitor a new session, lasting where it does not end with the browser.
	set := func(who string, lasting int) {
		m.drawn++
		sid := fmt.Sprintf("Pl4nt3d%08d0123456789abcdef", m.drawn)
		m.sids[sid] = who
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: sid, Path: "/", HttpOnly: true, MaxAge: lasting})
	}
	page := func(body string) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>%s</title><body>%s%s", r.URL.Path, who, body)
	}
	switch r.URL.Path {
	case "/in":
		set("ann", 3600)
		page("")
	case "/in-for-now": // a session cookie
		set("ann", 0)
		page("")
	case "/renew":
		set("ann", 3600)
		page("")
	case "/out":
		http.SetCookie(w, &http.Cookie{Name: "sid", Path: "/", MaxAge: -1})
		http.Redirect(w, r, "/", http.StatusFound)
	case "/theme":
		http.SetCookie(w, &http.Cookie{Name: "theme", Value: "dark", Path: "/", MaxAge: 3600})
		http.SetCookie(w, &http.Cookie{Name: "_v", Value: fmt.Sprint("GA1.2.", m.drawn, ".1690000000"), Path: "/", MaxAge: 3600})
		page("<script>document.cookie = 'consent=all; path=/'; document.cookie = 'theme=; max-age=0; path=/'</script>")
	case "/me": // acts if anything of it is loaded or run
		if who == "" {
			http.Redirect(w, r, "/acts/redirect", http.StatusFound)
			return
		}
		w.Header().Set("Link", "</acts/link>; rel=preload; as=script")
		page(` is here <script>fetch("/acts/script", {method: "POST"})</script><img src=/acts/img><meta http-equiv=refresh content="0;url=/acts/refresh">`)
	default:
		page("")
	}
}

// requests are those since it was asked before.
func (m *members) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.got
	m.got = []string{}
	return found
}

// TestWhetherTheAccountIsStillSignedIn: a worker is lost after the site did something to the
// account's cookies, and each profile is decided by that; and by its session check, which
// nobody else sees.
func TestWhetherTheAccountIsStillSignedIn(t *testing.T) {
	t.Parallel()
	web := newMembers(t)
	proxy := testproxy.HTTP(t, strings.TrimPrefix(web.URL, "http://"), "customer", proxyPassword)
	file := filepath.Join(t.TempDir(), "proxies.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "one:\n  server: %s\n  username: customer\n  password: %s\n", proxy.URL, proxyPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--proxies", file, "--cooldown", "0s")
	check := func(text string) map[string]any {
		return map[string]any{"proxy_id": "one", "session_check": map[string]any{"url": web.URL + "/me", "text": text}}
	}
	const kept, failed = "account_session_kept", "session_check_failed"
	for _, tt := range []struct {
		name     string
		settings map[string]any
		pages    []string // the last of them leads to at
		at       string
		act      func(t *testing.T, c *socket)
		decision string
		answers  map[string]string
		asked    []string // of the site after the loss
	}{
		{name: "signed-out", settings: check(""), pages: []string{"/in", "/out"}, at: "/", decision: "manual_review",
			answers: map[string]string{kept: "no", failed: "unknown", "unsafe_requests": "no"}, asked: []string{}},
		{name: "checked", settings: check("ann is here"), pages: []string{"/in-for-now"}, at: "/in-for-now", act: func(t *testing.T, c *socket) {
			c.call(t, "", "Storage.getCookies", nil, nil)
		}, decision: "release", answers: map[string]string{kept: "yes", failed: "no", "cookies_given_to_worker": "yes"}, asked: []string{"GET /me ann"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if code := s.call(t, "PUT", "/v1/profiles/"+tt.name, tt.settings, nil); code/100 != 2 {
				t.Fatalf("its settings: %d", code)
			}
			c := dial(t, s.socket(tt.name, "worker=w&task=t"))
			session, _ := c.visit(t, web.URL+tt.pages[0])
			for _, page := range tt.pages[1:] {
				c.call(t, session, "Page.navigate", map[string]any{"url": web.URL + page}, nil)
			}
			c.loaded(t, session, web.URL+tt.at)
			if tt.act != nil {
				tt.act(t, c)
			}
			web.requests()
			c.drop()
			r := s.until(t, tt.name, lease.Available, lease.ManualReview)
			answers, how := s.inspection(t, tt.name)
			if r.Decision != tt.decision {
				t.Errorf("%s %q, want %s", r.Decision, r.Reasons, tt.decision)
			}
			for name, want := range tt.answers {
				if answers[name] != want {
					t.Errorf("%s: %q (%s), want %s", name, answers[name], how[name], want)
				}
			}
			for _, e := range s.journal(t, tt.name) {
				if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "Pl4nt3d") || strings.Contains(string(b), "/me") {
					t.Errorf("the journal has a cookie's value, or the session check: %s %v", b, err)
				}
			}
			if asked := web.requests(); !slices.Equal(asked, tt.asked) {
				t.Errorf("after the loss the site was asked %q, want %q", asked, tt.asked)
			}
			if tt.name == "checked" {
				s.checks(t, web, tt.name)
			}
		})
	}
}

// checks goes through leasehold check on a profile that is signed in by a session cookie.
func (s *sidecar) checks(t *testing.T, web *members, profile string) {
	t.Helper()
	for _, tt := range []struct {
		text string
		code int
		says string
	}{
		{"ann is here", 0, "signed in: yes (GET " + web.URL + "/me was answered 200, with the text"},
		{"bob", 1, "signed in: no (GET " + web.URL + "/me was answered 200, without the text"},
	} {
		if out, err, code := s.cli(t, "profiles", "create", profile, "--session-check", web.URL+"/me", "--session-check-text", tt.text); code != 0 {
			t.Fatalf("%s%s", out, err)
		}
		out, err, code := s.cli(t, "check", profile)
		if code != tt.code || !strings.HasPrefix(out, profile+": "+tt.says) {
			t.Errorf("check: %d %s%s, want %s", code, out, err, tt.says)
		}
		if asked := web.requests(); !slices.Equal(asked, []string{"GET /me ann"}) {
			t.Errorf("the check asked %q", asked)
		}
	}
	if n := len(s.browsers(t)); n != 0 {
		t.Errorf("%d browsers are left", n)
	}
	if _, _, code := s.cli(t, "profiles", "create", profile, "--session-check", ""); code != 0 || s.record(t, profile).SessionCheck != nil {
		t.Errorf("a check cannot be removed: %d, %+v", code, s.record(t, profile).SessionCheck)
	}
	if _, err, code := s.cli(t, "check", profile); code != 8 || !strings.Contains(err, "session_check") {
		t.Errorf("a check of a profile that has none: %d %s", code, err)
	}
}
