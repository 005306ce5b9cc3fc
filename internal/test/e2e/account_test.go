package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	sids map[string]string
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
	page := func(body string) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>%s</title><body>%s%s", r.URL.Path, who, body)
	}
	switch r.URL.Path {
	case "/in-for-now": // a session cookie
		sid := "Pl4nt3d000000010123456789abcdef"
		m.sids[sid] = "ann"
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: sid, Path: "/", HttpOnly: true})
		page("")
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

// TestWhetherTheAccountIsStillSignedIn: a worker is lost that was given the account's cookies, and the
// profile is decided by its session check, which nobody else sees.
func TestWhetherTheAccountIsStillSignedIn(t *testing.T) {
	t.Parallel()
	web := newMembers(t)
	proxy := testproxy.HTTP(t, strings.TrimPrefix(web.URL, "http://"), "customer", proxyPassword)
	file := filepath.Join(t.TempDir(), "proxies.yaml")
	write(t, file, fmt.Appendf(nil, "one:\n  server: %s\n  username: customer\n  password: %s\n", proxy.URL, proxyPassword))
	s := start(t, "--proxies", file)
	settings := map[string]any{"proxy_id": "one", "session_check": map[string]any{"url": web.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/checked", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	c := dial(t, s.socket("checked", "worker=w&task=t"))
	c.visit(t, web.URL+"/in-for-now")
	c.call(t, "", "Storage.getCookies", nil, nil)
	web.requests()
	c.drop()
	r := s.until(t, "checked", lease.Available, lease.ManualReview)
	answers, how := s.inspection(t, "checked")
	if r.Decision != "release" {
		t.Errorf("%s %q, want a release", r.Decision, r.Reasons)
	}
	for name, want := range map[string]string{"account_session_kept": "yes", "session_check_failed": "no", "cookies_given_to_worker": "yes"} {
		if answers[name] != want {
			t.Errorf("%s: %q (%s), want %s", name, answers[name], how[name], want)
		}
	}
	for _, e := range s.journal(t, "checked") {
		if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "Pl4nt3d") || strings.Contains(string(b), "/me") {
			t.Errorf("the journal has a cookie's value, or the session check: %s %v", b, err)
		}
	}
	if asked := web.requests(); !slices.Equal(asked, []string{"GET /me ann"}) {
		t.Errorf("after the loss the site was asked %q", asked)
	}
	out, errs, code := s.cli(t, "check", "checked")
	if want := "checked: signed in: yes (GET " + web.URL + "/me was answered 200, with the text"; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("check: %d %s%s, want %s", code, out, errs, want)
	}
	if asked := web.requests(); !slices.Equal(asked, []string{"GET /me ann"}) {
		t.Errorf("the check asked %q", asked)
	}
	if n := len(s.browsers(t)); n != 0 {
		t.Errorf("%d browsers are left", n)
	}
	if _, _, code := s.cli(t, "profiles", "create", "checked", "--session-check", ""); code != 0 || s.record(t, "checked").SessionCheck != nil {
		t.Errorf("a check cannot be removed: %d, %+v", code, s.record(t, "checked").SessionCheck)
	}
	if _, err, code := s.cli(t, "check", "checked"); code != 8 || !strings.Contains(err, "session_check") {
		t.Errorf("a check of a profile that has none: %d %s", code, err)
	}
}

// signOut ends all sessions of the site.
func (m *members) signOut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sids)
}

// TestASignedOutAccountIsForWhoSignsIn: the site ends the session, which is an event; the profile is
// refused, and passed over, until a task that is to sign in has had it; then the sidecar asks the site
// by itself.
func TestASignedOutAccountIsForWhoSignsIn(t *testing.T) {
	t.Parallel()
	web := newMembers(t)
	s := start(t, "--cooldown", "0s")
	s.label(t, "spare", map[string]string{"pool": "ann"})
	s.label(t, "acct", map[string]string{"pool": "ann"})
	settings := map[string]any{"session_check": map[string]any{"url": web.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/acct", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	use := func(profile string, more map[string]any) {
		t.Helper()
		ses := s.open(t, profile, more)
		c := dial(t, ses.CDPURL)
		c.visit(t, web.URL+"/in-for-now")
		s.release(t, ses)
	}
	checked := func(want string) {
		t.Helper()
		out, errs, code := s.cli(t, "check", "acct")
		if !strings.HasPrefix(out, "acct: signed in: "+want) || (code == 0) != (want == "yes") || string(s.record(t, "acct").SignedIn) != want {
			t.Errorf("check: %d %s%s, the record says %q, want %s", code, out, errs, s.record(t, "acct").SignedIn, want)
		}
	}
	if r := s.record(t, "acct"); r.SignedIn != lease.SignedInUnknown {
		t.Errorf("never asked: %q", r.SignedIn)
	}
	use("acct", nil)
	checked("yes")
	web.signOut()
	checked("no")
	if got := names(s.events(t, "acct")); !strings.HasSuffix(got, "released signed_in signed_out") {
		t.Errorf("events: %s", got)
	}
	var refused map[string]any
	code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "task_id": "t", "worker_id": "w"}, &refused)
	if code != http.StatusLocked || refused["code"] != "profile_signed_out" || refused["sign_in_at"] != web.URL || refused["signed_in_since"] == nil {
		t.Errorf("a task: %d %v", code, refused)
	}
	if out, _, _ := s.cli(t, "profiles", "--signed-in", "no"); !strings.Contains(out, "acct") || strings.Contains(out, "spare") {
		t.Errorf("signed out are %s", out)
	}
	if out, _, _ := s.cli(t, "show", "acct"); !strings.Contains(out, "sign the account in at "+web.URL) {
		t.Errorf("show says %s", out)
	}
	var other struct {
		twoStep
		ProfileID string `json:"profile_id"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"labels": map[string]string{"pool": "ann"}, "task_id": "t", "worker_id": "w"}, &other); code != http.StatusCreated || other.ProfileID != "spare" {
		t.Errorf("any of the pool: %d, %s", code, other.ProfileID)
	}
	s.release(t, other.twoStep)
	use("acct", map[string]any{"sign_in": true, "task_id": "signs-in"})
	eventually(t, "the sidecar to find acct signed in", func() error {
		if r := s.record(t, "acct"); r.SignedIn != lease.SignedInYes {
			return fmt.Errorf("signed in: %s (%s)", r.SignedIn, r.SignedInHow)
		}
		return nil
	})
	use("acct", map[string]any{"task_id": "goes-on"})
}
