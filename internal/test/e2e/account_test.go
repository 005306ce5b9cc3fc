package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

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
	if r.URL.Path == "/favicon.ico" { // Chrome's own
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

// signOut ends all sessions of the site.
func (m *members) signOut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sids)
}

// whetherTheAccountIsSignedIn: a worker is lost that was given the account's cookies, and the profile is
// decided by its session check, which nobody else sees. Then the site ends the session, which is an event:
// the profile is refused until a task that is to sign in has had it, and the sidecar asks by itself.
func whetherTheAccountIsSignedIn(t *testing.T, s *sidecar) {
	web := newMembers(t)
	settings := map[string]any{"session_check": map[string]any{"url": web.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/acct", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	c := dial(t, s.socket("acct", "worker=w&task=t"))
	c.visit(t, web.URL+"/in-for-now")
	c.call(t, "", "Storage.getCookies", nil, nil)
	web.requests()
	c.drop()
	r := s.until(t, "acct", lease.Available, lease.ManualReview)
	answers, how := s.inspection(t, "acct")
	if r.Decision != "release" || r.SignedIn != lease.SignedInYes {
		t.Errorf("%s %q, signed in %s, want a release", r.Decision, r.Reasons, r.SignedIn)
	}
	for name, want := range map[string]string{"account_session_kept": "yes", "session_check_failed": "no", "cookies_given_to_worker": "yes"} {
		if answers[name] != want {
			t.Errorf("%s: %q (%s), want %s", name, answers[name], how[name], want)
		}
	}
	for _, e := range s.journal(t, "acct") {
		if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "Pl4nt3d") || strings.Contains(string(b), "/me") {
			t.Errorf("the journal has a cookie's value, or the session check: %s %v", b, err)
		}
	}
	if asked := web.requests(); !slices.Equal(asked, []string{"GET /me ann"}) {
		t.Errorf("after the loss the site was asked %q", asked)
	}

	web.signOut()
	out, errs, code := s.cli(t, "check", "acct")
	if r := s.record(t, "acct"); !strings.HasPrefix(out, "acct: signed in: no") || code == 0 || r.SignedIn != lease.SignedInNo {
		t.Errorf("check: %d %s%s, and the record says %q", code, out, errs, r.SignedIn)
	}
	if asked := web.requests(); len(asked) == 0 || asked[0] != "GET /me" {
		t.Errorf("the check asked %q", asked)
	}
	if got := names(s.events(t, "acct")); !strings.HasSuffix(got, " signed_out") {
		t.Errorf("events: %s", got)
	}
	var refused map[string]any
	code = s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "task_id": "t", "worker_id": "w"}, &refused)
	if code != http.StatusLocked || refused["code"] != "profile_signed_out" || refused["sign_in_at"] != web.URL || refused["signed_in_since"] == nil {
		t.Errorf("a task: %d %v", code, refused)
	}
	if out, _, _ := s.cli(t, "profiles", "--signed-in", "no"); !strings.Contains(out, "acct") {
		t.Errorf("signed out are %s", out)
	}
	if out, _, _ := s.cli(t, "show", "acct"); !strings.Contains(out, "sign the account in at "+web.URL) {
		t.Errorf("show says %s", out)
	}
	ses := s.open(t, "acct", map[string]any{"sign_in": true, "task_id": "signs-in"})
	dial(t, ses.CDPURL).visit(t, web.URL+"/in-for-now")
	s.release(t, ses)
	eventually(t, "the sidecar to find acct signed in", func() error {
		if r := s.record(t, "acct"); r.SignedIn != lease.SignedInYes {
			return fmt.Errorf("signed in: %s (%s)", r.SignedIn, r.SignedInHow)
		}
		return nil
	})
	if _, _, code := s.cli(t, "profiles", "create", "acct", "--session-check", ""); code != 0 || s.record(t, "acct").SessionCheck != nil {
		t.Errorf("a check cannot be removed: %d, %+v", code, s.record(t, "acct").SessionCheck)
	}
	if _, err, code := s.cli(t, "check", "acct"); code != 8 || !strings.Contains(err, "session_check") {
		t.Errorf("a check of a profile that has none: %d %s", code, err)
	}
}
