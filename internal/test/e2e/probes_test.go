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
	hold chan struct{} // the next question about orders waits until it is closed, or nobody wants the answer; nil: none does
}

// holds makes the next question about orders wait until go is called.
func (o *orders) holds() (release func()) {
	hold := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold, o.got = hold, nil // what came before is not the request that is held up
	return sync.OnceFunc(func() { close(hold) })
}

// has says how many the account has ordered.
func (o *orders) has(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n = n
}

// isAsked waits until it gets a request.
func (o *orders) isAsked(t *testing.T, request string) {
	t.Helper()
	eventually(t, "the site to get "+request, func() error {
		if got := o.requests(); !slices.Contains(got, request) {
			return fmt.Errorf("it got %q", got)
		}
		return nil
	})
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
	if hold := o.hold; hold != nil && r.URL.Path == "/api/orders" {
		o.hold, o.got = nil, append(o.got, r.Method+" "+r.URL.Path)
		o.mu.Unlock()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		o.mu.Lock()
	}
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
		"beside the worker": sitesAreAskedBesideTheWorker,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask(t, s)
		})
	}
}

// keeps waits until the answers that are kept of the profile's living session have a text.
func (s *sidecar) keeps(t *testing.T, profile, text string) {
	t.Helper()
	path := filepath.Join(s.Dir, "sessions", s.record(t, profile).SessionID+".baselines")
	eventually(t, "the answer at "+text, func() error {
		if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), text) {
			return fmt.Errorf("kept is %q, %v", b, err)
		}
		return nil
	})
}

// sitesAreAskedBesideTheWorker: at the grant and at each safe checkpoint, and the worker, which follows every
// target, is told nothing of it. What somebody else did before the grant, and what
// the session did before a safe checkpoint, does not speak against it.
func sitesAreAskedBesideTheWorker(t *testing.T, s *sidecar) {
	web := newOrders(t)
	about := map[string]any{"origins": []string{web.URL}, "probes": []map[string]any{{"name": "orders", "get": "/api/orders", "take": []string{"$.total"}}}}
	if code := s.call(t, "PUT", "/v1/sites/beside", about, nil); code != 200 {
		t.Fatalf("the file: %d", code)
	}
	const (
		send  = `fetch("/order", {method: "POST", body: new URLSearchParams({id: 7})}).then(r => r.text())`
		acted = `"missing":{"beside/orders":"the session acted before the site answered"}`
		told  = `"told":{"beside/orders":{`
		grant = "compared with the answer at the grant"
		rest  = "compared with the last answer at rest: at the grant "
	)
	name := func(t *testing.T, c *socket, checkpoint string) (id int) {
		t.Helper()
		return c.send(t, "", "Lease.checkpoint", map[string]any{"name": checkpoint})
	}
	for n, tt := range []struct {
		name     string
		hangs    bool                                                    // the site, when it is asked at the grant
		worker   func(t *testing.T, p string, c *socket, release func()) // what is done until it is lost; release has the site answer
		decision string
		changed  string // probe_changed, and the same since the safe checkpoint
		says     string
	}{
		{"somebody ordered before the grant", false, func(t *testing.T, p string, c *socket, _ func()) {
			s.keeps(t, p, told)
			c.visit(t, web.URL+"/")
		}, "release", "no no", "beside: orders: 15, as before, " + grant},
		{"the session ordered before a checkpoint", false, func(t *testing.T, p string, c *socket, _ func()) {
			s.keeps(t, p, told)
			page, _ := c.visit(t, web.URL+"/")
			c.evaluate(t, page, send)
			answer := web.holds()
			named := name(t, c, "ordered")
			web.isAsked(t, "GET /api/orders")
			answer()
			c.answer(t, named) // it comes after the site's, and so may what the worker does next
			c.evaluate(t, page, `document.title`)
			s.keeps(t, p, `"name":"ordered",`+told)
		}, "resume", "yes no", "beside: orders: 15, now 16, " + grant + "; as before, compared with the answer at checkpoint ordered"},
		{"somebody ordered after the checkpoint", false, func(t *testing.T, p string, c *socket, _ func()) {
			s.keeps(t, p, told)
			c.visit(t, web.URL+"/")
			c.answer(t, name(t, c, "listed"))
			s.keeps(t, p, `"name":"listed",`+told)
			web.has(17)
		}, "manual_review", "yes yes", "beside: orders: 15, now 17, " + grant + "; not what it was, compared with the answer at checkpoint listed"},
		{"the session acted before the site answered at the checkpoint", false, func(t *testing.T, p string, c *socket, _ func()) {
			s.keeps(t, p, told)
			page, _ := c.visit(t, web.URL+"/")
			answer := web.holds()
			name(t, c, "early")
			web.isAsked(t, "GET /api/orders")
			c.evaluate(t, page, send)
			answer()
			s.keeps(t, p, `"name":"early",`+acted)
		}, "manual_review", "yes yes", "beside: orders: 15, now 16, " + grant + "; not what it was, " + grant + ": at checkpoint early the session acted before the site answered"},
		{"it acted before the site answered at the grant", true, func(t *testing.T, p string, c *socket, release func()) {
			web.isAsked(t, "GET /api/orders")
			c.visit(t, web.URL+"/")
			release()
			s.keeps(t, p, acted)
		}, "manual_review", "yes yes", "beside: orders: 14, now 15, " + rest + "the session acted before the site answered"},
		{"the worker was gone before", true, func(t *testing.T, _ string, c *socket, _ func()) {
			web.isAsked(t, "GET /api/orders")
			c.page(t, web.URL+"/", "")
			web.isAsked(t, "GET /")
		}, "manual_review", "yes yes", "beside: orders: 14, now 15, " + rest + "the worker was gone before the site answered"},
	} {
		p := fmt.Sprint("beside_", n)
		web.has(14)
		c := dial(t, s.socket(p, "worker=w&task=t"))
		c.visit(t, web.URL+"/in")
		c.close(t)
		s.until(t, p, lease.Available)
		web.requests()
		web.has(15)
		answer := func() {}
		if tt.hangs {
			answer = web.holds()
		}
		c = dial(t, s.socket(p, "worker=w&task=t&resumable=true"))
		all := []struct{}{{}}
		c.call(t, "", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": all}, nil)
		c.call(t, "", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true, "filter": []map[string]any{{"type": "tab", "exclude": true}, {}}}, nil)
		tt.worker(t, p, c, answer)
		listed := c.answer(t, c.send(t, "", "Target.getTargets", map[string]any{"filter": all}))
		seen := strings.Join(c.targetEvents(t), "\n") + string(listed.Result)
		c.drop()
		for _, what := range []string{"/api/", "about:blank#", `"type":"other"`} {
			if strings.Contains(seen, what) || !strings.Contains(seen, web.URL) {
				t.Errorf("%s: the worker was told %s", tt.name, seen)
			}
		}
		r := s.until(t, p, lease.Available, lease.ResumePending, lease.ManualReview)
		answers, how := s.inspection(t, p)
		var found api.Inspection
		s.call(t, "GET", "/v1/profiles/"+p+"/inspection", nil, &found)
		if changed := answers["probe_changed"] + " " + answers["probe_changed_since_safe_checkpoint"]; r.Decision != tt.decision || changed != tt.changed {
			t.Errorf("%s: %s %q; changed: %s (%s)", tt.name, r.Decision, r.Reasons, changed, how["probe_changed_since_safe_checkpoint"])
		}
		if !strings.Contains(strings.Join(found.Account, "\n"), tt.says) {
			t.Errorf("%s: it says %q", tt.name, found.Account)
		}
		for _, e := range s.journal(t, p) {
			if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "/api/") {
				t.Errorf("%s: the journal has that the site was asked: %s %v", tt.name, b, err)
			}
		}
		answer()
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
		s.keeps(t, "asked", `"told":{"shop/orders":{`) // at its grant the site was asked, too
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
