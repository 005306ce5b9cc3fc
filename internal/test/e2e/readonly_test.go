package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"leasehold/checkpoint"
	"leasehold/lease"
)

// writes is a site that notes every unsafe request and every opening of a websocket, by
// path.
type writes struct {
	URL string

	mu  sync.Mutex
	got map[string]bool
}

func newWrites(t *testing.T) *writes {
	t.Helper()
	w := &writes{got: map[string]bool{}}
	scripts := map[string]string{
		"/worker.js": `const w = new WebSocket('ws://' + location.host + '/ws-in-worker');
			Promise.allSettled([fetch('/in-worker', {method: 'POST'}), new Promise((done) => { w.onopen = w.onerror = done })]).then(() => postMessage('sent'))`,
		"/shared.js": `onconnect = (e) => fetch('/in-shared-worker', {method: 'POST'}).catch(() => {}).then(() => e.ports[0].postMessage('sent'))`,
		"/sw.js": `addEventListener('install', (e) => e.waitUntil(skipWaiting()));
			addEventListener('activate', (e) => e.waitUntil(clients.claim()));
			addEventListener('fetch', (e) => { if (e.request.url.includes('through')) e.respondWith(fetch(e.request)) });
			addEventListener('message', () => fetch('/in-service-worker', {method: 'POST'}))`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" {
			w.mu.Lock()
			w.got[r.URL.Path] = true
			w.mu.Unlock()
		}
		rw.Header().Set("Access-Control-Allow-Origin", "*")
		if script := scripts[r.URL.Path]; script != "" {
			rw.Header().Set("Content-Type", "text/javascript")
			_, _ = fmt.Fprint(rw, script)
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		page := ""
		switch r.URL.Path {
		case "/other-site":
			page = `<script>new WebSocket('ws://' + location.host + '/ws-in-frame'); fetch('/in-frame', {method: 'POST'}).catch(() => {}).then(() => parent.postMessage('sent', '*'))</script>`
		case "/policy":
			rw.Header().Set("Content-Security-Policy", "img-src 'none'; report-uri /policy-report")
			page = `<img src=/x.png>`
		}
		_, _ = fmt.Fprintf(rw, "<!doctype html><title>%s</title><body>%s", r.URL.Path, page)
	}))
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// paths are what came so far, sorted.
func (w *writes) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := []string{}
	for path := range w.got {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// allWrites makes a page send in every way that there is.
const allWrites = `(async () => {
  const form = (action, target) => {
    const f = document.createElement('form');
    f.method = 'post'; f.action = action; f.target = target;
    document.body.append(f); f.submit();
  };
  const frame = (src) => { const f = document.createElement('iframe'); f.src = src; f.name = 'frame' + src.length; document.body.append(f); return f; };
  const results = [];
  const note = (p) => p.then((r) => results.push('sent ' + r.url), (e) => results.push(e.message));
  await note(fetch('/fetch', {method: 'POST', body: 'x'}));
  await note(fetch('/put', {method: 'PUT'}));
  await note(fetch('/options', {method: 'OPTIONS', body: 'x'}));
  await note(fetch('/patch', {method: 'PATCH'}));
  await note(fetch('/delete', {method: 'DELETE'}));
  await note(fetch('/keepalive', {method: 'POST', keepalive: true}));
  await note(fetch('OTHER/cross-site', {method: 'POST', body: 'x'}));
  await new Promise((done) => { const x = new XMLHttpRequest(); x.open('POST', '/xhr'); x.onloadend = done; x.send('x'); });
  navigator.sendBeacon('/beacon', 'x');
  const link = document.createElement('a'); link.href = '#x'; link.ping = '/ping'; document.body.append(link); link.click();
  const blob = new Blob(["fetch('" + location.origin + "/in-blob-worker', {method: 'POST'}).catch(() => {}).then(() => postMessage('sent'))"]);
  const senders = [new Worker('/worker.js'), new Worker(URL.createObjectURL(blob)), new SharedWorker('/shared.js').port];
  // A page that is left may end them before they have sent anything.
  const sent = senders.map((sender) => new Promise((done) => { sender.onmessage = done; }));
  await navigator.serviceWorker.register('/sw.js');
  (await navigator.serviceWorker.ready).active.postMessage(1);
  for (let i = 0; i < 250 && !navigator.serviceWorker.controller; i++) await new Promise((r) => setTimeout(r, 20));
  await note(fetch('/through-service-worker', {method: 'POST'}));
  await new Promise((done) => { const w = new WebSocket('ws://' + location.host + '/ws'); w.onopen = () => { w.send('x'); done(); }; w.onerror = done; });
  await Promise.all([...sent, new Promise((done) => { onmessage = done; frame('OTHER/other-site'); }), new Promise((done) => { frame('/policy').onload = done; })]);
  await new Promise((r) => setTimeout(r, 300));
  const inside = frame('about:blank'); inside.name = 'inside'; form('/form-in-frame', 'inside');
  return results;
})()`

// inNewTabs sends from new tabs. Chrome opens one for each gesture.
var inNewTabs = []string{
	`(() => { const f = document.createElement('form'); f.method = 'post'; f.action = '/form-in-new-tab'; f.target = '_blank'; document.body.append(f); f.submit(); })()`,
	`(() => { open('about:blank').fetch(location.origin + '/in-popup', {method: 'POST'}).catch(() => {}); })()`,
}

// atTheEnd sends when the page is left. It is for a page without a service worker, which
// may be gone by then.
const atTheEnd = `addEventListener('pagehide', () => {
  navigator.sendBeacon('/beacon-at-the-end', 'x');
  fetch('/keepalive-at-the-end', {method: 'POST', keepalive: true});
})`

// everyWrite are the paths of allWrites, of inNewTabs and of atTheEnd, but for the websocket of a frame,
// which may be left before it opens.
var everyWrite = []string{
	"/beacon", "/beacon-at-the-end", "/cross-site", "/delete", "/fetch", "/form", "/form-in-frame", "/form-in-new-tab", "/in-blob-worker", "/in-frame",
	"/in-popup", "/in-service-worker", "/in-shared-worker", "/in-worker", "/keepalive", "/keepalive-at-the-end", "/options", "/patch", "/ping", "/policy-report",
	"/put", "/through-service-worker", "/ws", "/ws-in-worker", "/xhr",
}

// TestReadOnly: what a page of a read-only session sends does not arrive, in whatever way it
// sends it, whatever its client intercepts, and when the launcher is killed, too. Without
// read_only all of it arrives.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := start(t, "--reconnect-grace", "0s")
	put := func(profile string, settings map[string]any) {
		t.Helper()
		if code := s.call(t, "PUT", "/v1/profiles/"+profile, settings, nil); code != 200 {
			t.Fatalf("PUT %s: %d", profile, code)
		}
	}
	put("profile", map[string]any{"read_only": true})
	for _, tt := range []struct {
		profile, query string
		readOnly       bool // and the client intercepts
	}{
		{"control", "", false},
		{"profile", "&read_only=false", true}, // a manifest does not widen
	} {
		t.Run(tt.profile, func(t *testing.T) {
			web := newWrites(t)
			// Another site than 127.0.0.1, and a secure context as well.
			other := strings.Replace(web.URL, "127.0.0.1", "localhost", 1)
			c := dial(t, s.socket(tt.profile, "worker=w&task=1"+tt.query))
			page, _ := c.visit(t, web.URL+"/")
			run := func(script string, result any) {
				t.Helper()
				params := map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true}
				answer := struct{ Result struct{ Value any } }{}
				answer.Result.Value = result
				c.call(t, page, "Runtime.evaluate", params, &answer)
			}
			leave := func(address string) {
				t.Helper()
				c.call(t, page, "Page.navigate", map[string]any{"url": address}, nil)
				c.loaded(t, page, address)
			}
			if tt.readOnly {
				rewrites(t, c, web.URL)
				c.call(t, page, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*/nothing-of-the-page"}}}, nil)
			}
			for _, script := range inNewTabs {
				run(script, nil)
			}
			var results []string
			run(strings.ReplaceAll(allWrites, "OTHER", other), &results)
			if len(results) != 8 {
				t.Errorf("the page was told %q, want what became of 8 requests", results)
			}
			for _, r := range results {
				if blocked := !strings.HasPrefix(r, "sent "); blocked != tt.readOnly {
					t.Errorf("the page was told %q", r)
				}
			}
			leave(other + "/last")
			run(atTheEnd, nil)
			if !tt.readOnly {
				leave(other + "/elsewhere")
				run(`(() => { const f = document.createElement('form'); f.method = 'post'; f.action = '/form'; document.body.append(f); f.submit(); })()`, nil)
				eventually(t, "all of it to arrive", func() error {
					if got := slices.DeleteFunc(web.paths(), func(path string) bool { return path == "/ws-in-frame" }); !slices.Equal(got, everyWrite) {
						return fmt.Errorf("%v came, want %v", got, everyWrite)
					}
					return nil
				})
				c.close(t)
				c.ended(t)
				s.until(t, tt.profile, lease.Available)
				return
			}
			journal := filepath.Join(s.Dir, "sessions", s.record(t, tt.profile).SessionID+".journal")
			eventually(t, "what the page tried to be noted", func() error {
				entries, err := checkpoint.Read(journal)
				blocked := map[string]bool{}
				for _, e := range entries {
					if e.Kind == checkpoint.KindBlocked {
						blocked[e.Method+" "+e.URL[strings.LastIndex(e.URL, "/"):]] = true
					}
				}
				for _, want := range []string{"POST /fetch", "DELETE /delete", "POST /beacon", "POST /in-frame", "POST /form-in-new-tab", "POST /in-shared-worker"} {
					if !blocked[want] {
						return fmt.Errorf("%s is not in the journal: %v, %v", want, blocked, err)
					}
				}
				return err
			})
			// Nobody answers what pages send meanwhile, and its worker does not come back.
			s.kill(t)
			s.launch(t)
			s.until(t, tt.profile, lease.Available, lease.ManualReview)
			if got := web.paths(); len(got) > 0 {
				t.Errorf("%v came to the site", got)
			}
		})
	}
}

// rewrites has the worker of a read-only session make a POST of a GET that it paused: Chrome tells nobody
// that a paused request goes out with another method than it had.
func rewrites(t *testing.T, c *socket, site string) {
	t.Helper()
	page, _ := c.visit(t, site+"/start")
	c.call(t, page, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": site + "/rewritten"}}}, nil)
	answered := c.send(t, page, "Runtime.evaluate", map[string]any{"expression": "fetch('/rewritten').then(() => 'sent', () => 'refused')", "awaitPromise": true})
	var paused struct{ RequestID string }
	c.event(t, "Fetch.requestPaused", &paused)
	change := map[string]any{"requestId": paused.RequestID, "method": "POST", "postData": base64.StdEncoding.EncodeToString([]byte("buy=1"))}
	c.call(t, page, "Fetch.continueRequest", change, nil)
	if got := c.answer(t, answered).Result; !strings.Contains(string(got), "refused") {
		t.Errorf("a request that became a POST: %s", got)
	}
}
