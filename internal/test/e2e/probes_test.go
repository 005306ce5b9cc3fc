package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// orders is a shop that tells by itself what an account has ordered, to who has its cookie.
type orders struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	n    int
	whom string
}

func newOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{n: 14, whom: "ann@shop.example"}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.URL.Path != "/favicon.ico" { // Chrome asks for it at a moment of its own
		o.got = append(o.got, r.Method+" "+r.URL.Path)
	}
	c, err := r.Cookie("sid")
	known := err == nil && c.Value == "Pl4nt3d000000010123456789abcdef"
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/in":
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "Pl4nt3d000000010123456789abcdef", Path: "/", HttpOnly: true})
		fallthrough
	case r.URL.Path == "/outbox": // an application that sends what waits whenever it is opened
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<title>outbox</title><script>if (localStorage.waits) fetch("/order", {method: "POST", body: "x"})</script>`)
	case r.URL.Path == "/" || r.URL.Path == "/favicon.ico":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<title>shop</title>")
	case !known:
		http.Redirect(w, r, "/sign-in", http.StatusFound)
	case r.URL.Path == "/api/me":
		fmt.Fprintf(w, `{"email": %q}`, o.whom)
	case r.URL.Path == "/api/orders":
		fmt.Fprintf(w, `{"total": %d, "items": [{"title": "lamp, 29.90"}]}`, o.n)
	case r.URL.Path == "/api/visits": // a probe that writes, and so is none
		o.n++
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/order" && r.Method == http.MethodPost:
		if r.URL.Query().Get("dry") == "" {
			o.n++
		}
		fmt.Fprint(w, "{}")
	}
}

// requests are those since it was asked before.
func (o *orders) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.got
	o.got = nil
	return found
}

// TestWhatTheSiteSaysDecides: a site is asked by the profile's own browser, when nobody else has it.
func TestWhatTheSiteSaysDecides(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, ask := range map[string]func(*testing.T, *sidecar){
		"of the account": whatTheSiteSaysOfTheAccount, "of the sign-in": whetherTheAccountIsSignedIn, "of what waits": whatWaitsInTheProfile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask(t, s)
		})
	}
}

// whatWaitsInTheProfile: a page that the site's file names is opened after the loss, and sends nothing;
// what it wants to send is for a person.
func whatWaitsInTheProfile(t *testing.T, s *sidecar) {
	web := newOrders(t)
	if code := s.call(t, "PUT", "/v1/sites/outbox", map[string]any{"origins": []string{web.URL}, "rehearse": []map[string]any{{"open": "/outbox"}}}, nil); code != 200 {
		t.Fatalf("the file: %d", code)
	}
	for _, tt := range []struct{ script, waits, decision string }{{"1", "no", "release"}, {"localStorage.waits = 1", "yes", "manual_review"}} {
		c := dial(t, s.socket("waits", "worker=w&task=t"))
		session, _ := c.visit(t, web.URL+"/in")
		c.evaluate(t, session, tt.script)
		web.requests()
		c.drop()
		r := s.until(t, "waits", lease.Available, lease.ManualReview)
		answers, how := s.inspection(t, "waits")
		if r.Decision != tt.decision || answers["writes_waiting_in_profile"] != tt.waits {
			t.Errorf("%s: %s %q; waiting: %s (%s)", tt.script, r.Decision, r.Reasons, answers["writes_waiting_in_profile"], how["writes_waiting_in_profile"])
		}
		if got := web.requests(); !slices.Equal(got, []string{"GET /outbox"}) {
			t.Errorf("%s: after the loss the site got %q", tt.script, got)
		}
	}
	if _, how := s.inspection(t, "waits"); how["writes_waiting_in_profile"] != "outbox: page /outbox: as before; it wants to send POST "+web.URL+"/order text" {
		t.Errorf("it says %q", how["writes_waiting_in_profile"])
	}
}

// whatTheSiteSaysOfTheAccount: what was sent does not count where its answer proves that nothing was
// done; a changed answer, and another account, is for a person. Kinds of requests are counted of sessions that
// ended in order: a lost one counts nothing.
func whatTheSiteSaysOfTheAccount(t *testing.T, s *sidecar) {
	web := newOrders(t)
	about := map[string]any{
		"origins": []string{web.URL}, "identity": map[string]any{"get": "/api/me", "take": []string{"$.email"}},
		"probes": []map[string]any{{"name": "orders", "get": "/api/orders", "take": []string{"$.total"}, "show": "$.items[0].title", "covers": []string{"POST /order"}}},
	}
	if code := s.call(t, "PUT", "/v1/sites/shop", about, nil); code != 200 {
		t.Fatalf("the file: %d", code)
	}
	asked := []string{"GET /api/me", "GET /api/orders"}
	tries := filepath.Join(t.TempDir(), "tries.yaml")
	write(t, tries, fmt.Appendf(nil, "name: tries\norigins: [%q]\nprobes:\n  - {name: orders, get: /api/orders, take: [$.total], show: \"$.items[0].title\"}\n  - {name: visits, get: /api/visits, take: [$.n]}\n", web.URL))
	const send = `fetch(%q, {method: "POST", body: new URLSearchParams({id: 7})}).then(r => r.text())`
	c := dial(t, s.socket("asked", "worker=w&task=t0"))
	session, _ := c.visit(t, web.URL+"/in")
	c.evaluate(t, session, fmt.Sprintf(send, "/order?dry=1"))
	web.requests()
	c.close(t)
	s.until(t, "asked", lease.Available)
	if got := web.requests(); !slices.Equal(got, asked) {
		t.Errorf("at an end in order the site was asked %q", got)
	}
	if r := s.record(t, "asked"); r.LastKnownURL != web.URL+"/in" {
		t.Errorf("the last URL is %s", r.LastKnownURL)
	}
	out, errs, code := s.cli(t, "sites", "try", tries, "--profile", "asked")
	for _, want := range []string{"14 (lamp, 29.90)", "this probe changes by itself, or by being asked: then 15", "this probe writes, or may: it was answered without content"} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("try: %d %s%s, want %s", code, out, errs, want)
		}
	}
	web.mu.Lock()
	web.n = 14
	web.mu.Unlock()
	web.requests()
	for n, tt := range []struct {
		send     string // what the lost worker's page sends
		before   func() // what happens elsewhere
		decision string
		facts    map[string]string
		says     string
	}{
		{"/order?dry=1", func() {}, "release", map[string]string{"probe_changed": "no", "identity_kept": "yes", "unsafe_requests": "no"}, "shop: orders: 14 (lamp, 29.90), as before"},
		{"/order", func() { web.whom = "bob@shop.example" }, "manual_review", map[string]string{"probe_changed": "yes", "identity_kept": "no", "unsafe_requests": "yes"}, "shop: orders: 14 (lamp, 29.90), now 15 (lamp, 29.90)"},
	} {
		c := dial(t, s.socket("asked", fmt.Sprintf("worker=w&task=t%d", n+1)))
		session, _ := c.visit(t, web.URL+"/")
		c.evaluate(t, session, fmt.Sprintf(send, tt.send))
		web.mu.Lock()
		tt.before()
		web.mu.Unlock()
		web.requests()
		c.drop()
		r := s.until(t, "asked", lease.Available, lease.ManualReview)
		if another := tt.facts["identity_kept"] == "no"; r.AnotherAccount != another || r.SignedOut() != another || r.SignedIn == lease.SignedInUnknown {
			t.Errorf("%s: signed in %s, another account %v (%s)", tt.send, r.SignedIn, r.AnotherAccount, r.SignedInHow)
		}
		answers, how := s.inspection(t, "asked")
		var found api.Inspection
		s.call(t, "GET", "/v1/profiles/asked/inspection", nil, &found)
		if r.Decision != tt.decision || !strings.Contains(strings.Join(found.Account, "; "), tt.says) {
			t.Errorf("%s: %s %q; %q", tt.send, r.Decision, r.Reasons, found.Account)
		}
		for name, want := range tt.facts {
			if answers[name] != want {
				t.Errorf("%s: %s: %q (%s), want %s", tt.send, name, answers[name], how[name], want)
			}
		}
		if got := web.requests(); !slices.Equal(got[:min(2, len(got))], asked) {
			t.Errorf("%s: after the loss the site was asked %q", tt.send, got)
		}
		for _, e := range s.journal(t, "asked") {
			if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "lamp") || strings.Contains(string(b), "/api/") {
				t.Errorf("the journal has what the site said, or that it was asked: %s %v", b, err)
			}
		}
		if b, err := json.Marshal(r); err != nil || strings.Contains(string(b), "@shop.example") || strings.Contains(string(b), "lamp") {
			t.Errorf("the record has what the site said: %s %v", b, err)
		}
	}
	if log, err := os.ReadFile(filepath.Join(s.Dir, "stderr.log")); err != nil || strings.Contains(string(log), "lamp") || strings.Contains(string(log), "@shop.example") {
		t.Errorf("the log has what the site said, %v", err)
	}
	want := map[string][4]uint64{"POST " + web.URL + "/order?dry form(id)": {1, 1, 0, 0}}
	eventually(t, "the counts", func() error {
		var all struct{ Items []api.SiteShape }
		s.call(t, "GET", "/v1/sites/shop/shapes", nil, &all)
		got := map[string][4]uint64{}
		for _, one := range all.Items {
			got[one.Shape] = [4]uint64{one.Sessions, uint64(one.Accounts), one.Unchanged, one.Changed}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("they are %v, want %v", got, want)
		}
		return nil
	})
	if pid := s.anyBrowserOf(t, "asked"); pid != 0 {
		t.Errorf("browser %d is left", pid)
	}
}
