package accountcheck

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/checkpoint/site"
)

// desk is a site that is asked about an account, and answers as badly as sites do.
type desk struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // METHOD PATH of what was asked for
	calls int
	late  func() // called when it is asked for what it does not answer to the end
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{}
	ended := make(chan struct{})
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.asked = append(d.asked, r.Method+" "+r.URL.Path)
		d.calls++
		calls := d.calls
		d.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		wait := func() {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}
		switch r.URL.Path {
		case "/app": // keeps a token as applications do that have no cookie
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<script>localStorage.setItem("token", "5f2b8c1e9d3a4f60"); localStorage.setItem("json", JSON.stringify("5f2b8c1e9d3a4f60")); localStorage.setItem("of: many", JSON.stringify({ user: { token: "5f2b8c1e9d3a4f60" } }))</script>`)
		case "/bearer":
			if r.Header.Get("Authorization") != "Bearer 5f2b8c1e9d3a4f60" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			fmt.Fprint(w, `{"n": 7}`)
		case "/headers":
			fmt.Fprintf(w, `{"n": %q}`, r.Header.Get("X-Requested-With")+" "+r.Header.Get("Accept"))
		case "/orders":
			fmt.Fprint(w, `{"n": 14, "last": "lamp"}`)
		case "/changes":
			fmt.Fprintf(w, `{"n": %d}`, calls)
		case "/hangs":
			d.late()
			wait()
		case "/drips":
			fmt.Fprint(w, `{"n":`)
			w.(http.Flusher).Flush()
			d.late()
			wait()
		case "/large", "/large-and-says-so":
			if r.URL.Path != "/large" {
				w.Header().Set("Content-Length", fmt.Sprint(20<<20))
			}
			for range 20 {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<20))); err != nil {
					return
				}
			}
		case "/signed-out":
			http.Redirect(w, r, "/login?next=5f2b8c1e9d3a4f60", http.StatusFound)
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"n": 14}`)
		case "/down":
			w.WriteHeader(http.StatusBadGateway)
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<b id=n>14</b><script src=/script></script>`)
		case "/pictures":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, strings.Repeat("<img src=/empty>", 3)+"<img src=/refused>")
		case "/draft": // an application that sends what it kept when it is opened
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<p id=workspace></p><script>
				alert("welcome back");
				workspace.textContent = "Team A";
				fetch("/outbox", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({text: "5f2b8c1e9d3a4f60"})});
				fetch("/feed", {method: "POST"});
				navigator.sendBeacon("/beacon", "x");
				new WebSocket(location.href.replace("http", "ws"));
			</script>`)
		case "/replays": // an outbox of GETs
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<script>fetch("/fav/7"); fetch("/empty?unread=1")</script>`)
		case "/of-the-account":
			http.Redirect(w, r, "/login?next=/of-the-account", http.StatusFound)
		case "/login":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<p id=workspace>Welcome</p><form><input type=password></form>`)
		case "/elsewhere":
			http.Redirect(w, r, "/page?id=5f2b8c1e9d3a4f60", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/fav/8", http.StatusFound)
		case "/asks-always":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<p id=workspace>Team B</p><script>setInterval(() => fetch("/orders"), 50)</script>`)
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/guest":
			fmt.Fprint(w, `{"n": null}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(d.Close)
	t.Cleanup(func() { close(ended) })
	return d
}

func (d *desk) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.asked
	d.asked = nil
	return asked
}

// book is what is known of the desk.
func (d *desk) book(t *testing.T, text string) *site.Book {
	t.Helper()
	f, err := site.Parse([]byte("name: desk\norigins: [\"" + d.URL + "\"]\n" + text))
	must(t, err)
	b, wrong := site.NewBook([]site.File{f})
	if wrong != nil {
		t.Fatal(wrong)
	}
	return b
}

// TestBadAnswersAreNone: whatever a site does, each question has an answer that says so, in bounded
// time, and nothing else is asked of the site.
func TestBadAnswersAreNone(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	probes := ""
	want := []struct {
		path  string
		state site.State
		says  string
	}{
		{"orders", site.Told, "answered 200"},
		{"headers", site.Told, "answered 200"},
		{"hangs", site.NotHad, "in time"},
		{"drips", site.NotHad, "in time"},
		{"large", site.NotHad, "larger than"},
		{"large-and-says-so", site.NotHad, "too large"},
		{"signed-out", site.NotTold, "a redirect to " + web.URL + "/login?next=REDACTED"},
		{"refused", site.NotTold, "answered 403"},
		{"busy", site.NotHad, "troubles"},
		{"down", site.NotHad, "troubles"},
		{"page", site.NotHad, "no JSON"},
		{"guest", site.NotTold, "no such value"},
		{"nowhere", site.NotHad, "want 200"},
		{"empty", site.NotHad, "want 200"},
	}
	for _, w := range want {
		probes += fmt.Sprintf("  - {name: %s, get: /%s, take: [\"$.n\"], show: \"$.last\"}\n", w.path, w.path)
	}
	book := web.book(t, "headers: {X-Requested-With: leasehold, Accept: application/json}\nprobes:\n"+probes)
	h.request.Questions = book.Questions([]string{web.URL}, nil)
	b, done := h.start(t)
	defer done()
	for i, q := range h.request.Questions {
		ctx, cancel := context.WithCancel(t.Context()) // of those that hang, each is asked by itself
		web.late = cancel
		a := Ask(ctx, b.Mux(), []site.Question{q})[0]
		cancel()
		if a.State != want[i].state || !strings.Contains(a.How, want[i].says) {
			t.Errorf("%s: %s %q, want %s %q", q.Name, a.State, a.How, want[i].state, want[i].says)
		}
		if wrote := a.Writes != ""; wrote != (q.Name == "empty") {
			t.Errorf("%s: it may write: %q", q.Name, a.Writes)
		}
		if text := map[string]string{"orders": "14 (lamp)", "headers": "leasehold application/json"}[q.Name]; a.Text != text {
			t.Errorf("%s: %q, want %q", q.Name, a.Text, text)
		}
		if asked := web.took(); !slices.Equal(asked, []string{"GET /" + want[i].path}) {
			t.Errorf("%s: the site was asked %q", q.Name, asked)
		}
	}
}

// TestAnApplicationThatKeepsItsTokenIsAsked: with the token that is in its local storage, which is
// read without asking the site for anything; session checks have it, too.
func TestAnApplicationThatKeepsItsTokenIsAsked(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	b, done := h.start(t)
	defer done()
	h.visit(t, b, web.URL+"/app")
	web.took()
	for name, want := range map[string]struct {
		state site.State
		in    Answer
	}{"token": {site.Told, SignedIn}, "json": {site.Told, SignedIn}, "another": {site.NotTold, SignedOut},
		"of: many $.user.token": {site.Told, SignedIn}, "of: many $.token": {site.NotTold, SignedOut}, "token $.token": {site.NotTold, SignedOut}} {
		book := web.book(t, "bearer_from: \"localStorage."+name+"\"\nidentity: {get: /bearer, take: [\"$.n\"]}\n")
		if a := Ask(t.Context(), b.Mux(), book.Questions([]string{web.URL}, nil)); a[0].State != want.state {
			t.Errorf("%s: %s %q", name, a[0].State, a[0].How)
		}
		check := sessionCheck(web.URL + "/bearer")
		if r := checkSession(t.Context(), b.Mux(), check, book.AskFor(check.URL)); r.Answer != want.in {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, asked := range web.took() {
		if asked != "GET /bearer" && asked != "GET /favicon.ico" { // the application's own page wants that
			t.Errorf("the site was asked %s", asked)
		}
	}
}

// TestWhatAnEarlierPageWantsIsNotTheAnswer: the page from which a token was read may want an icon.
func TestWhatAnEarlierPageWantsIsNotTheAnswer(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	b, done := h.start(t)
	defer done()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := b.Mux().Observe(ctx, eventPaused, eventAuth)
	must(t, err)
	defer release(o)
	p, err := openPage(ctx, o)
	must(t, err)
	defer p.close()
	must(t, p.navigate(ctx, web.URL+"/pictures", func(r paused) bool {
		p.o.Resolve(p.session, r.RequestID, "Fetch.continueRequest", map[string]any{"requestId": r.RequestID})
		return r.answered()
	}))
	if _, err := o.Next(ctx); err != nil { // the first picture is asked for, and the others are
		t.Fatal(err)
	}
	web.took()
	a := p.get(ctx, web.URL+"/orders", map[string]string{"Authorization": "Bearer 5f2b8c1e9d3a4f60"}, http.StatusOK, maxAnswer)
	if a.status != http.StatusOK || !strings.Contains(string(a.body), "lamp") {
		t.Errorf("answered %d %q, %s; want the orders", a.status, a.body, a.problem)
	}
	if asked := web.took(); !slices.Equal(asked, []string{"GET /orders"}) {
		t.Errorf("the site was asked %q, want nothing but the orders", asked)
	}
}

// TestWhatSettlesIsAskedAgain in the same browser, and only what is named.
func TestWhatSettlesIsAskedAgain(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	book := web.book(t, "probes:\n  - {name: a, get: /changes, take: [\"$.n\"]}\n  - {name: b, get: /orders, take: [\"$.n\"]}\n")
	h.request.Questions = book.Questions([]string{web.URL}, nil)
	h.request.Again = func(first []site.Answer) []site.Question { return []site.Question{first[0].Question} }
	f, err := h.checker().Run(t.Context(), h.request)
	if err != nil || len(f.Answers) != 2 || len(f.Again) != 1 || f.Answers[0].Values == f.Again[0].Values || f.Again[0].State != site.Told {
		t.Errorf("%+v, %v", f, err)
	}
	if asked := web.took(); !slices.Equal(asked, []string{"GET /changes", "GET /orders", "GET /changes"}) {
		t.Errorf("the site was asked %q", asked)
	}
}
