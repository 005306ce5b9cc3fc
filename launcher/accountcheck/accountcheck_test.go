package accountcheck

import (
	"context"
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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestAnAnswerIsJudged(t *testing.T) {
	me := lease.SessionCheck{URL: "https://shop.example/me?token=secret"}
	named := lease.SessionCheck{URL: me.URL, Status: 203, Text: "ann"}
	for _, tt := range []struct {
		check lease.SessionCheck
		reply reply
		want  Answer
		says  string
	}{
		{me, reply{status: 200}, SignedIn, "answered 200"},
		{me, reply{status: 302, location: "/login?next=secret"}, SignedOut, "a redirect to https://shop.example/login?next=REDACTED"},
		{me, reply{status: 401}, SignedOut, "want 200"},
		{me, reply{status: 403}, SignedOut, "want 200"},
		{me, reply{status: 204}, SignedOut, "want 200"},
		{me, reply{status: 429}, Unknown, "troubles"},
		{me, reply{status: 503}, Unknown, "troubles"},
		{named, reply{status: 203, body: []byte("hello ann")}, SignedIn, "with the text"},
		{named, reply{status: 203, body: []byte("sign in")}, SignedOut, "without the text"},
		{named, reply{status: 200, body: []byte("hello ann")}, SignedOut, "want 203"},
	} {
		r := judgeSession(tt.check, tt.reply)
		if r.Answer != tt.want || r.Status != tt.reply.status || !strings.Contains(r.How, tt.says) || strings.Contains(r.How, "secret") {
			t.Errorf("%d %s: %+v, want %s: %s", tt.reply.status, tt.reply.body, r, tt.want, tt.says)
		}
	}
}

// shop notes what it is asked for, as METHOD PATH.
type shop struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	late func() // called when it is asked for /late, which it does not answer
}

func newSite(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.got = append(s.got, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/redirects":
			http.Redirect(w, r, "/acts/redirect", http.StatusFound)
		case "/asks":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case "/refuses":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "sign in")
		case "/late":
			s.late()
			<-r.Context().Done()
		case "/down":
			w.WriteHeader(http.StatusBadGateway)
		case "/set":
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: "5f2b8c1e9d3a4f60", Path: "/", HttpOnly: true})
		case "/rotate":
			http.SetCookie(w, &http.Cookie{Name: "lasting", Value: "2", Path: "/", MaxAge: 3600})
		case "/who":
			if c, err := r.Cookie("sid"); err != nil || c.Value != "5f2b8c1e9d3a4f60" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		default: // everything on it acts, if anything of it is loaded or run
			w.Header().Set("Link", "</acts/link>; rel=preload; as=script")
			w.Header().Set("Refresh", "0; url=/acts/header")
			fmt.Fprint(w, `hello ann <script>fetch("/acts/script", {method: "POST"}); location = "/acts/location"</script><img src=/acts/img>
				<iframe src=/acts/frame></iframe><link rel=stylesheet href=/acts/style><meta http-equiv=refresh content="0;url=/acts/refresh">`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// asked is what it was asked for since the last time.
func (s *shop) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// host is a profile with a driver for its browsers.
type host struct {
	t       *testing.T
	root    *profiledir.Root
	files   sessionfile.Dir
	jar     sessionfile.Jar
	driver  *browser.Driver
	lock    *profiledir.Lock
	path    string
	request Request
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	h := &host{t: t, files: sessionfile.NewDir(dir, testkey.Key), jar: sessionfile.NewJar(dir, testkey.Key)}
	_, err = h.files.Load()
	must(t, err)
	h.root, err = profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	must(t, err)
	h.path, err = h.root.Create("shop")
	must(t, err)
	h.lock, err = h.root.Lock("shop")
	must(t, err)
	binary, err := chrome.Find("")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	log := zerolog.New(zerolog.NewTestWriter(t))
	h.driver = browser.NewDriver(ctx, &work, browser.Options{Binary: binary, Files: h.files, Root: h.root, Key: testkey.Key, Log: log, Metrics: prometheus.NewRegistry()})
	t.Cleanup(func() {
		cancel()
		work.Wait()
		must(t, h.lock.Unlock())
	})
	h.request = Request{Profile: "shop", Path: h.path, Lock: h.lock, Token: 7, KeepCookies: true, Log: log}
	return h
}

// start starts a browser that only reads, and returns what closes it.
func (h *host) start(t *testing.T) (b *browser.Browser, done func()) {
	t.Helper()
	b, err := h.driver.Start(t.Context(), browser.Start{SessionID: "s", Token: 7, Lock: h.lock, Path: h.path, Headless: true, ReadOnly: true, Sink: func(checkpoint.Entry) {}, Log: h.request.Log})
	must(t, err)
	must(t, b.Monitor().Guard().Enforce(t.Context(), monitor.Rules{ReadOnly: true}))
	return b, func() {
		_, err := b.Close("shop", nil, h.request.Log)
		must(t, err)
	}
}

// visit opens a page, and returns when it is loaded.
func (h *host) visit(t *testing.T, b *browser.Browser, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := b.Mux().Observe(ctx, "Page.lifecycleEvent")
	must(t, err)
	var created struct{ TargetID string }
	must(t, o.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &created))
	var attached struct{ SessionID string }
	must(t, o.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}, &attached))
	must(t, o.Call(ctx, attached.SessionID, "Page.enable", nil, nil))
	must(t, o.Call(ctx, attached.SessionID, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil))
	var document struct{ LoaderID string }
	must(t, o.Call(ctx, attached.SessionID, "Page.navigate", map[string]any{"url": address}, &document))
	for loaded := false; !loaded; { // the blank page before it may be loaded only now
		events, err := o.Next(ctx)
		must(t, err)
		loaded = slices.ContainsFunc(events, func(e cdpproxy.Event) bool {
			var of struct{ LoaderID, Name string }
			must(t, json.Unmarshal(e.Params, &of))
			return of.LoaderID == document.LoaderID && of.Name == "load"
		})
	}
	must(t, o.Close(ctx))
}

func (h *host) checker() *Checker {
	return New(Options{Driver: h.driver, Root: h.root, Files: h.files, Jar: h.jar, Headless: true})
}

func sessionCheck(url string) lease.SessionCheck { return lease.SessionCheck{URL: url} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyTheURLIsAskedFor: whatever the answer is, nothing else of the site is asked for, and
// nothing of the answer is run.
func TestOnlyTheURLIsAskedFor(t *testing.T) {
	h, web := newHost(t), newSite(t)
	b, done := h.start(t)
	for _, tt := range []struct {
		path, text string
		want       Answer
		status     int
	}{
		{"/page", "", SignedIn, 200},
		{"/page", "hello ann", SignedIn, 200},
		{"/page", "hello bob", SignedOut, 200},
		{"/redirects", "", SignedOut, 302},
		{"/asks", "", SignedOut, 401},
		{"/refuses", "sign in", SignedOut, 403},
		{"/down", "", Unknown, 502},
		{"/late", "", Unknown, 0},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		web.late = cancel
		r := checkSession(ctx, b.Mux(), lease.SessionCheck{URL: web.URL + tt.path, Text: tt.text}, site.Ask{URL: web.URL + tt.path})
		cancel()
		if r.Answer != tt.want || r.Status != tt.status || r.How == "" {
			t.Errorf("%s: %+v, want %s %d", tt.path, r, tt.want, tt.status)
		}
	}
	done() // what was still to come has come, or never does
	want := []string{"GET /page", "GET /page", "GET /page", "GET /redirects", "GET /asks", "GET /refuses", "GET /down", "GET /late"}
	if got := web.asked(); !slices.Equal(got, want) {
		t.Errorf("the site was asked %q, want %q", got, want)
	}
}

// TestSessionCookiesAreLentAndKept: a check has the session cookies of the browser before it,
// and the next one has those that it leaves.
func TestSessionCookiesAreLentAndKept(t *testing.T) {
	h, web := newHost(t), newSite(t)
	c := New(Options{Driver: h.driver, Root: h.root, Files: h.files, Jar: h.jar, Headless: true})
	page := site.Question{Ask: site.Ask{URL: web.URL + "/who"}, Opens: true} // and what it stores is not looked at
	for i, tt := range []struct {
		path      string
		pages     []site.Question
		unchanged bool
	}{{"/set", nil, false}, {"/who", nil, true}, {"/rotate", nil, false}, {"/who", nil, true}, {"/who", []site.Question{page}, false}} {
		h.request.Check, h.request.Questions = &lease.SessionCheck{URL: web.URL + tt.path}, tt.pages
		if r, err := c.Run(t.Context(), h.request); err != nil || r.Session.Answer != SignedIn || r.Unchanged != tt.unchanged {
			t.Errorf("%d: %s: %+v, %v, want unchanged: %t", i, tt.path, r, err, tt.unchanged)
		}
	}
	if in, err := h.root.Inspect("shop"); err != nil || in.ClosedCleanly.Answer != profiledir.Yes {
		t.Errorf("the directory is left as %+v, %v", in.ClosedCleanly, err)
	}
	if _, open, err := h.root.Running("shop"); open || err != nil {
		t.Errorf("a browser is noted as running: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(h.files.Journal("x")), "*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %q, %v", left, err)
	}
}

// lastingCookie is a browser with one cookie that lasts, as far as the jar asks.
type lastingCookie struct{ domain string }

func (b lastingCookie) Call(_ context.Context, _, _ string, _, result any) error {
	return json.Unmarshal(fmt.Appendf(nil, `{"cookies":[{"name":"lasting","value":"1","domain":%q,"path":"/","expires":%d}]}`, b.domain, time.Now().Add(time.Hour).Unix()), result)
}

// TestLastingCookiesAreLentOnce: a check has the lasting cookies that are kept of a browser that crashed.
// Once a check's browser has closed in order, they are in the directory as the site changed them, and the
// kept ones would take the changes back.
func TestLastingCookiesAreLentOnce(t *testing.T) {
	h, web := newHost(t), newSite(t)
	must(t, h.jar.KeepAll(t.Context(), lastingCookie{"127.0.0.1"}, "shop"))
	before, err := h.jar.Export("shop")
	must(t, err)
	if len(before) != 1 {
		t.Fatalf("%d files with cookies are kept, want that of the lasting ones", len(before))
	}
	h.request.Check = &lease.SessionCheck{URL: web.URL + "/rotate"}
	if r, err := h.checker().Run(t.Context(), h.request); err != nil || r.Session.Answer != SignedIn {
		t.Fatalf("%+v, %v", r, err)
	}
	if after, err := h.jar.Export("shop"); err != nil || len(after) > 0 {
		t.Errorf("after a check that ended in order the jar has %q, %v", after, err)
	}
}

// TestACheckIsNotMadeWithoutTheProxy that the profile's last browser went out through: where
// no proxies are configured any more, and where the record names none.
func TestACheckIsNotMadeWithoutTheProxy(t *testing.T) {
	h, web := newHost(t), newSite(t)
	must(t, os.WriteFile(filepath.Join(h.path, "leasehold_proxy"), []byte("dallas"), 0o600))
	file := filepath.Join(t.TempDir(), "proxies.yaml")
	must(t, os.WriteFile(file, []byte("dallas: {server: 'http://127.0.0.1:9'}\n"), 0o600))
	set, err := proxies.Load(file)
	must(t, err)
	h.request.Check = &lease.SessionCheck{URL: web.URL + "/page"}
	for name, tt := range map[string]struct {
		record     string
		configured *proxies.Set
	}{"no proxies": {"dallas", nil}, "none in the record": {"", set}, "neither": {"", nil}} {
		h.request.ProxyID = tt.record
		r, err := New(Options{Driver: h.driver, Root: h.root, Files: h.files, Jar: h.jar, Proxies: tt.configured, Headless: true}).Run(t.Context(), h.request)
		if err != nil || r.Session.Answer != Unknown || !strings.Contains(r.Session.How, "dallas") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if got := web.asked(); len(got) > 0 {
		t.Errorf("the site was asked %q, directly", got)
	}
}

// TestACheckNotesItsProxy: the account was seen at its address, and nothing opens it without that proxy
// from then on.
func TestACheckNotesItsProxy(t *testing.T) {
	for name, how := range map[string]string{"of the browser": "", "of a relay": ", username: u, password: secret"} {
		h := newHost(t)
		file := filepath.Join(t.TempDir(), "proxies.yaml")
		must(t, os.WriteFile(file, []byte("dallas: {server: 'http://127.0.0.1:9'"+how+"}\n"), 0o600))
		set, err := proxies.Load(file)
		must(t, err)
		h.request.ProxyID, h.request.Check = "dallas", &lease.SessionCheck{URL: "http://shop.example/"}
		_, err = New(Options{Driver: h.driver, Root: h.root, Files: h.files, Jar: h.jar, Proxies: set, Headless: true}).Run(t.Context(), h.request)
		must(t, err)
		if was, err := slots.LastProxy(h.path); err != nil || was != "dallas" {
			t.Errorf("%s: the directory was opened through %q, %v, want dallas", name, was, err)
		}
	}
}

// TestACheckThatCannotBeMadeIsUnknown: with a proxy that is not configured nothing is sent,
// and no browser is started.
func TestACheckThatCannotBeMadeIsUnknown(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(t.TempDir(), "proxies.yaml")
	must(t, os.WriteFile(file, []byte("one: {server: 'http://127.0.0.1:9'}\n"), 0o600))
	set, err := proxies.Load(file)
	must(t, err)
	h.request.ProxyID, h.request.Check = "another", &lease.SessionCheck{URL: "http://shop.example/"}
	r, err := New(Options{Driver: h.driver, Root: h.root, Files: h.files, Jar: h.jar, Proxies: set}).Run(t.Context(), h.request)
	if err != nil || r.Session.Answer != Unknown || !strings.Contains(r.Session.How, "no proxy another") || !r.Unchanged {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestTheEndOfACheck: a browser that has to be killed is not killed without evidence, since no session has it,
// whose evidence there would be. Sites may have replaced the login of one that did not end in order, which Chrome
// had no time to write: a person decides.
func TestTheEndOfACheck(t *testing.T) {
	for name, tt := range map[string]struct {
		script    fakechrome.Script
		preserved int
		doubt     string
	}{
		"in order":     {},
		"it crashes":   {fakechrome.Script{Crashes: true}, 0, "did not end in order"},
		"it is killed": {fakechrome.Script{RefusesClose: true, Stubborn: true}, 1, "had to be ended by sigkill"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			fakechrome.Direct(t, h.path, tt.script)
			ctx, cancel := context.WithCancel(context.Background())
			var work sync.WaitGroup
			t.Cleanup(func() { cancel(); work.Wait() })
			driver := browser.NewDriver(ctx, &work, browser.Options{
				Binary: fakechrome.Binary(t), Files: h.files, Root: h.root, Key: testkey.Key, Log: h.request.Log, Metrics: prometheus.NewRegistry(),
				CloseTimeouts: chrome.CloseTimeouts{Ask: time.Second, Interrupt: 100 * time.Millisecond},
			})
			h.request.Check = &lease.SessionCheck{URL: "http://127.0.0.1:1/"}
			preserved := 0
			c := New(Options{Driver: driver, Root: h.root, Files: h.files, Jar: h.jar, Headless: true})
			c.PreserveBy(func(profile, _, _ string, b *browser.Browser) error {
				if preserved++; profile != "shop" {
					t.Errorf("evidence of %s", profile)
				}
				select {
				case <-b.Exited():
					t.Error("it is gone before the evidence")
				default:
				}
				return nil
			})
			if r, err := c.Run(t.Context(), h.request); (err == nil) != (tt.doubt == "") || r.Session.Answer != Unknown || preserved != tt.preserved {
				t.Errorf("%+v, %v, preserved %d times", r, err, preserved)
			}
			if why, err := h.root.Replaced("shop"); err != nil || (why == "") != (tt.doubt == "") || !strings.Contains(why, tt.doubt) {
				t.Errorf("a person is told %q, %v; want %q", why, err, tt.doubt)
			}
		})
	}
}
