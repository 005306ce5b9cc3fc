package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/internal/test/sockets"
)

// restless is a site whose pages write without pause, in every way that pages can: by
// themselves, from workers of all kinds, from frames of other sites, over HTTP/1, HTTP/2
// and websockets, and when they are closed. It notes every unsafe request and message that
// it receives.
type restless struct {
	URL string // of a page that writes

	mu       sync.Mutex
	received []arrival
	// sockets are the websockets that are open.
	sockets map[net.Conn]bool
}

// arrival is an unsafe request or message that the site received.
type arrival struct {
	at  time.Time
	how string // METHOD /path, where the path says what sent it
}

// restlessWays are the paths of the ways in which the page writes that repeat.
var restlessWays = []string{
	"/fetch", "/beacon", "/keepalive", "/xhr", "/form", "/socket", "/worker", "/shared", "/service", "/sync",
	"/frame/fetch", "/frame/beacon", "/frame/keepalive", "/frame/socket", "/h2/fetch", "/h2/beacon",
}

// writesOn is a script that writes to a base URL, each way again and again.
const writesOn = `function writes(base, where) {
	const again = (ms, what) => { what(); setInterval(what, ms) }
	let n = 0
	const path = (way) => base + where + way + '?n=' + (++n)
	again(120, () => fetch(path('/fetch'), {method: 'PUT', mode: 'cors', body: 'x'}).catch(() => {}))
	again(150, () => navigator.sendBeacon(path('/beacon'), 'x'))
	again(190, () => fetch(path('/keepalive'), {method: 'POST', keepalive: true, mode: 'no-cors', body: 'x'}).catch(() => {}))
	const open = () => {
		const socket = new WebSocket((base + where + '/socket').replace('http', 'ws'))
		const timer = setInterval(() => { if (socket.readyState === 1) socket.send('x') }, 100)
		socket.onclose = () => { clearInterval(timer); setTimeout(open, 20) }
	}
	if (!where.startsWith('/h2')) open()
	for (const end of ['pagehide', 'beforeunload', 'visibilitychange', 'unload'])
		addEventListener(end, () => {
			navigator.sendBeacon(base + '/end/' + end, 'x')
			fetch(base + '/end/' + end, {method: 'POST', keepalive: true, mode: 'no-cors', body: 'x'}).catch(() => {})
			try { const x = new XMLHttpRequest(); x.open('POST', base + '/end/' + end, false); x.send('x') } catch {}
		})
}`

const restlessPage = `<!doctype html><title>restless</title><h1>restless</h1>
<iframe name="sink" hidden></iframe>
<form id="form" target="sink" method="post" action="/form"><input name="a" value="b"></form>
<iframe id="other" src="%[1]s/other"></iframe><iframe id="secure" src="%[2]s/secure"></iframe>
<script>%[3]s
writes(location.origin, '')
setInterval(() => { const x = new XMLHttpRequest(); x.open('DELETE', '/xhr'); x.send() }, 200)
setInterval(() => document.getElementById('form').submit(), 300)
new Worker('/worker.js')
new SharedWorker('/shared.js')
navigator.serviceWorker.register('/service.js').then(() => navigator.serviceWorker.ready).then((r) => {
	setInterval(() => r.active.postMessage('write'), 160)
	let n = 0
	setInterval(() => r.sync.register('sync-' + (++n)).catch(() => {}), 400)
	document.title = 'ready'
})
</script>`

// newRestless serves the site until the test ends. Its frames are of two other sites: one
// is localhost, and the other one speaks HTTP/2.
func newRestless(t *testing.T) *restless {
	t.Helper()
	s := &restless{sockets: map[net.Conn]bool{}}
	mux := http.NewServeMux()
	plain := httptest.NewServer(s.noting(mux))
	secure := httptest.NewUnstartedServer(s.noting(mux))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(func() {
		s.mu.Lock()
		for conn := range s.sockets {
			_ = conn.Close()
		}
		s.mu.Unlock()
		for _, server := range []*httptest.Server{plain, secure} {
			server.CloseClientConnections()
			server.Close()
		}
	})
	other := strings.Replace(plain.URL, "127.0.0.1", "localhost", 1)
	page := func(path, kind, content string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, content)
		})
	}
	page("GET /{$}", "text/html", fmt.Sprintf(restlessPage, other, secure.URL, writesOn))
	page("GET /other", "text/html", "<script>"+writesOn+"\nwrites(location.origin, '/frame')</script>")
	page("GET /secure", "text/html", "<script>"+writesOn+"\nwrites(location.origin, '/h2')</script>")
	page("GET /quiet", "text/html", "<title>quiet</title>")
	page("GET /worker.js", "text/javascript", "setInterval(() => fetch('/worker', {method: 'POST', body: 'x'}).catch(() => {}), 150)")
	page("GET /shared.js", "text/javascript", "setInterval(() => fetch('/shared', {method: 'POST', body: 'x'}).catch(() => {}), 150)")
	page("GET /service.js", "text/javascript", `
addEventListener('install', () => skipWaiting())
addEventListener('activate', (e) => e.waitUntil(clients.claim()))
addEventListener('message', (e) => e.waitUntil(fetch('/service', {method: 'POST', body: 'x'}).catch(() => {})))
addEventListener('sync', (e) => e.waitUntil(fetch('/sync', {method: 'POST', body: 'x'})))`)
	mux.HandleFunc("GET /socket", s.socket)
	mux.HandleFunc("GET /frame/socket", s.socket)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.URL = plain.URL + "/"
	return s
}

// noting notes unsafe requests as soon as their headers are there.
func (s *restless) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
			s.note(r.Method + " " + r.URL.Path)
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		next.ServeHTTP(w, r)
	})
}

func (s *restless) note(how string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, arrival{now, how})
}

// socket notes every message on a websocket.
func (s *restless) socket(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.sockets[conn] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.sockets, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	for {
		if _, err := wsutil.ReadClientText(conn); err != nil {
			return
		}
		s.note("MESSAGE " + r.URL.Path)
	}
}

// count is how much was received.
func (s *restless) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.received)
}

// after lists what was received later than at.
func (s *restless) after(at time.Time) []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []arrival
	for _, w := range s.received {
		if w.at.After(at) {
			late = append(late, w)
		}
	}
	return late
}

// writing waits until something was received in each of the ways since at.
func (s *restless) writing(t *testing.T, at time.Time, ways ...string) {
	t.Helper()
	eventually(t, "the page to write", func() error {
		seen := map[string]bool{}
		for _, w := range s.after(at) {
			_, path, _ := strings.Cut(w.how, " ")
			seen[path] = true
		}
		for _, way := range ways {
			if !seen[way] {
				return fmt.Errorf("nothing by %s", way)
			}
		}
		return nil
	})
}

// quiet waits until nothing is received any more, and returns how much was.
func (s *restless) quiet(t *testing.T) (count int) {
	t.Helper()
	eventually(t, "the page to be quiet", func() error {
		count = s.count()
		time.Sleep(500 * time.Millisecond) // the page writes more often
		if under, err := sockets.UnderWay(s.URL); err != nil || under > 0 {
			return fmt.Errorf("%d bytes are under way, %v", under, err)
		}
		if now := s.count(); now != count {
			return fmt.Errorf("%d more came", now-count)
		}
		return nil
	})
	return count
}
