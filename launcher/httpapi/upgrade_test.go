package httpapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
)

// answersWith is a script in which every call that leads to a websocket succeeds, with
// this connection.
func answersWith(conn api.Connection) map[string]any {
	return map[string]any{"Acquire": held, "Connect": conn, "SessionByCapability": held, "SessionOf": held, "Session": held}
}

// echoOnce answers the first byte that the client sends.
func echoOnce(t *testing.T) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, buffered *bufio.Reader) {
		b, err := buffered.ReadByte()
		if err != nil {
			t.Errorf("reading the client's first byte: %v", err)
		}
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Errorf("writing: %v", err)
		}
	}
}

func TestUpgrade(t *testing.T) {
	const acquire = `Acquire {"task_id":"t","worker_id":"w","profile_id":"store.18"} true`
	byPort := func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) }
	for _, c := range []struct {
		name, path string
		headers    []string
		o          Options
		calls      []string
		handler    func(api.Service, Options) http.Handler
	}{
		{"one-shot", "/devtools/browser/store.18?worker=w&task=t", nil, Options{}, []string{acquire, `Connect "ses_1" "" true`}, New},
		{"base", "/profiles/store.18?worker=w&task=t", nil, Options{}, []string{acquire, `Connect "ses_1" "" true`}, New},
		{"base with a slash", "/profiles/store.18/?worker=w&task=t", nil, Options{}, []string{acquire, `Connect "ses_1" "" true`}, New},
		{"below the base", "/profiles/store.18/devtools/browser/0b5f?worker=w&task=t", nil, Options{}, []string{acquire, `Connect "ses_1" "" true`}, New},
		{"token in the query stays out of the manifest", "/devtools/browser/store.18?worker=w&task=t&token=" + aToken, nil, Options{Gate: gate(aToken)}, []string{acquire, `Connect "ses_1" "" true`}, New},
		{"a task may look like a path", "/profiles/store.18?worker=w&task=t%2Fjson/version", nil, Options{}, []string{strings.Replace(acquire, `"t"`, `"t/json/version"`, 1), `Connect "ses_1" "" true`}, New},
		{"a target of a task", "/profiles/store.18/devtools/page/T1?worker=w&task=t", nil, Options{}, []string{`SessionOf "store.18" "w" "t"`, `Connect "ses_1" "T1" true`}, New},
		{"a target of an ephemeral task", "/profiles/store.18/devtools/page/T1?worker=w&task=t&ephemeral=true", nil, Options{}, []string{`SessionOf "store.18" "w" "t" "ephemeral"`, `Connect "ses_1" "T1" true`}, New},
		{"capability", "/s/" + capability + "/devtools/browser/store.18", nil, Options{Gate: gate(aToken)}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" true`}, New},
		{"target by capability", "/s/" + capability + "/devtools/page/T1", nil, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "T1" true`}, New},
		{"port", "/devtools/browser/anything", nil, Options{Gate: gate(aToken)}, []string{`Session "ses_1"`, `Connect "ses_1" "" true`}, byPort},
		{"target by port", "/devtools/page/T1", nil, Options{}, []string{`Session "ses_1"`, `Connect "ses_1" "T1" true`}, byPort},
		{"go-rod", "/s/" + capability + "/devtools/browser/store.18", []string{"Sec-WebSocket-Key: nil"}, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" false`}, New},
		{"no key", "/s/" + capability + "/devtools/browser/store.18", []string{"Sec-WebSocket-Key:"}, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" false`}, New},
		{"key of 24 letters", "/s/" + capability + "/devtools/browser/store.18", []string{"Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!!!"}, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" false`}, New},
		{"offers", "/s/" + capability + "/devtools/browser/store.18", []string{"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Sec-WebSocket-Protocol: cdp"}, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" true`}, New},
		{"lists in the headers", "/s/" + capability + "/devtools/browser/store.18", []string{"Connection: keep-alive, upgrade", "Upgrade: WebSocket"}, Options{}, []string{`SessionByCapability "` + capability + `"`, `Connect "ses_1" "" true`}, New},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := newConnection(echoOnce(t))
			f := serveWith(t, c.o, answersWith(conn), c.handler)
			nc := f.dial()
			if _, err := io.WriteString(nc, f.upgrade(c.path, c.headers...)); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(nc)
			response, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != 101 {
				b, _ := io.ReadAll(response.Body)
				t.Fatalf("%s %s, want 101", response.Status, b)
			}
			for name, want := range map[string]string{
				"Upgrade": "websocket", "Connection": "Upgrade", "Leasehold-Session": "ses_1", "Leasehold-Token": "42", "Leasehold-Expires-At": "2026-11-20T12:00:30Z",
				"X-Playwright-Debug-Log": "leasehold session=ses_1 profile=store.18 token=42", "Sec-Websocket-Extensions": "", "Sec-Websocket-Protocol": "",
			} {
				if got := response.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			accept := map[string]string{"go-rod": "Q67D9eATKx531lK8F7u2rqQNnNI=", "no key": "Kfh9QIsMVZcl6xEPYxPHzW8SZ8w=", "key of 24 letters": "Ek+DIhBdl2dzD4vZ/hh8z7+W+/E="}[c.name]
			if accept == "" {
				accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
			}
			if got := response.Header.Get("Sec-Websocket-Accept"); got != accept {
				t.Errorf("Sec-WebSocket-Accept %q, want %q", got, accept)
			}
			// Nothing may follow the 101 before the client has sent something. Then its
			// own byte comes back, and nothing else.
			<-conn.served
			if _, err := nc.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(r); err != nil || string(b) != "x" {
				t.Errorf("read %q, %v after the 101, want the echo alone", b, err)
			}
			f.wantCalls(c.calls...)
			select {
			case <-conn.cancelled:
				t.Error("a served connection was cancelled")
			default:
			}
		})
	}
}

// TestEarlyMessage: what a client sends with its request is not lost.
func TestEarlyMessage(t *testing.T) {
	f := serve(t, Options{}, answersWith(newConnection(echoOnce(t))))
	nc := f.dial()
	if _, err := io.WriteString(nc, f.upgrade("/s/"+capability+"/devtools/browser/store.18")+"x"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 101 ") || !strings.HasSuffix(string(b), "\r\n\r\nx") {
		t.Errorf("%q, %v: want a 101 and the echo", b, err)
	}
}

func TestAdhocTask(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"Acquire": api.Refuse(api.CodeHostFull, "full")})
	r, _ := f.request("GET", "/devtools/browser/p", "", upgradeHeaders...)
	calls := f.taken()
	if r.StatusCode != 429 || len(calls) != 1 || !strings.HasPrefix(calls[0], `Acquire {"task_id":"adhoc-`) || !strings.Contains(calls[0], `"worker_id":"127.0.0.1"`) {
		t.Errorf("%s, calls %q", r.Status, calls)
	}
}

func TestRefusedUpgrade(t *testing.T) {
	conflict := api.Refuse(api.CodeConflict, "profile p is held by worker wörker-7 for task\r\nX: y").With("current_worker_id", "wörker-7")
	conflict.RetryAfter = 12
	const one, key = "/devtools/browser/p?task=t", "/s/" + capability + "/devtools/browser/store.18"
	for _, c := range []struct {
		name, path string
		headers    []string
		answers    map[string]any
		line       string
		want       map[string]string
		log        string
	}{
		{
			"conflict", one, nil, map[string]any{"Acquire": conflict},
			"409 profile_lock_conflict: profile p is held by worker w?rker-7 for task??X: y", map[string]string{"Retry-After": "12"}, "",
		},
		{"long reason", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeBrowserStartFailed, "%s", strings.Repeat("y", 500))}, "502 browser_start_failed: " + strings.Repeat("y", maxReason-25) + "...", nil, ""},
		{"bad query", "/devtools/browser/p?tusk=t", nil, nil, "400 invalid_request: tusk: the manifest has no such field", nil, ""},
		{"session over", key, nil, map[string]any{"SessionByCapability": api.Refuse(api.CodeSessionEnded, "session ses_1 is over: released")}, "410 session_ended: session ses_1 is over: released", nil, ""},
		{"connect", key, nil, map[string]any{"SessionByCapability": held, "Connect": api.Refuse(api.CodeNotFound, "no target")}, "404 not_found: no target", nil, ""},
		{"other profile", "/s/" + capability + "/devtools/browser/other", nil, map[string]any{"SessionByCapability": held}, "400 invalid_request: profile_id: the URL names profile other, its session is on another", nil, ""},
		{"inside", one, nil, map[string]any{"Acquire": errors.New("open /secret: no")}, "500 internal_error: the launcher could not do it: its log says why", nil, "open /secret"},
		{"unknown path", "/devtools/nothing", nil, nil, "404 not_found: there is nothing at this path: /openapi.json lists what there is", nil, ""},
		{"no websocket there", "/?profile=p", nil, nil, "404 not_found: no websocket is served here: want /devtools/browser/{profile}", nil, ""},
		{"other page", one, []string{"Origin: https://example.com"}, nil, `403 forbidden: origin "https://example.com" is not this server's own`, nil, ""},
		{"proxy that drops Connection", one, []string{"Connection: close"}, nil, "400 invalid_request: the header Connection: Upgrade is missing: does a proxy in between drop it?", nil, ""},
		{"other version", one, []string{"Sec-WebSocket-Version: 8"}, nil, `426 invalid_request: want Sec-WebSocket-Version 13, got "8"`, map[string]string{"Sec-WebSocket-Version": "13"}, ""},
		{"no version", one, []string{"Sec-WebSocket-Version:"}, nil, `426 invalid_request: want Sec-WebSocket-Version 13, got ""`, nil, ""},
		{
			"home", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeWrongHome, "profile p lives on the host of launcher l2").With("location", "http://h2:9333")},
			"307 wrong_home: profile p lives on the host of launcher l2", map[string]string{"Location": "ws://h2:9333/devtools/browser/p?task=t"}, "",
		},
		{
			"home behind a path", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "https://h2/pool/")},
			"307 wrong_home: elsewhere", map[string]string{"Location": "wss://h2/pool/devtools/browser/p?task=t"}, "",
		},
		{
			"home in full", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "wss://h2/devtools/browser/p?task=u")},
			"307 wrong_home: elsewhere", map[string]string{"Location": "wss://h2/devtools/browser/p?task=u"}, "",
		},
		{"home unknown", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeWrongHome, "elsewhere")}, "421 wrong_home: elsewhere", map[string]string{"Location": ""}, ""},
		{"home that is no URL", one, nil, map[string]any{"Acquire": api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "h2:9333")}, "421 wrong_home: elsewhere", map[string]string{"Location": ""}, "cannot be redirected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{}, c.answers)
			nc := f.dial()
			if _, err := io.WriteString(nc, f.upgrade(c.path, c.headers...)); err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(nc)
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(string(raw), "\r\n")
			if line != "HTTP/1.1 "+c.line {
				t.Errorf("status line\n%s\nwant\nHTTP/1.1 %s", line, c.line)
			}
			r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(raw))), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || !r.Close || r.ContentLength != int64(len(body)) {
				t.Errorf("body of %d bytes, Content-Length %d, closing %v, %v", len(body), r.ContentLength, r.Close, err)
			}
			p := problemOf(t, r, string(body))
			if !strings.Contains(c.line, p.Code) {
				t.Errorf("problem %+v in an answer %s", p, line)
			}
			for name, want := range c.want {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if strings.Contains(string(raw), "secret") || !strings.Contains(f.log.String(), c.log) {
				t.Errorf("answer %q, log %q", raw, f.log)
			}
		})
	}
}

// TestRefusalSurvivesEarlyMessage: a client that does not wait for the answer
// still gets to read it.
func TestRefusalSurvivesEarlyMessage(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"Acquire": api.Refuse(api.CodeHostFull, "full")})
	nc := f.dial()
	if _, err := io.WriteString(nc, f.upgrade("/devtools/browser/p?task=t")+strings.Repeat("x", 1<<16)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 429 host_full: full\r\n") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestOldHTTPIsRefused(t *testing.T) {
	f := serve(t, Options{}, nil)
	nc := f.dial()
	if _, err := io.WriteString(nc, strings.Replace(f.upgrade("/devtools/browser/p"), "HTTP/1.1", "HTTP/1.0", 1)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 invalid_request: want HTTP/1.1, got HTTP/1.0") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestClientThatLeaves: whenever a client leaves, no connection stays open in the
// browser, and nothing is logged as an error.
func TestClientThatLeaves(t *testing.T) {
	for _, c := range []struct {
		name    string
		acquire any
		calls   []string
		cancel  bool
		during  string
	}{
		{"during Acquire, which stops", context.Canceled, []string{"Acquire"}, false, "Acquire"},
		{"during Acquire, which goes on", held, []string{"Acquire"}, false, "Acquire"},
		{"during Connect", held, []string{"Acquire", "Connect"}, true, "Connect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := newConnection(nil)
			log := &testlog.Buffer{}
			svc := &leaving{fake: &fake{t: t, answers: map[string]any{"Acquire": c.acquire, "Connect": api.Connection(conn)}}, asked: make(chan struct{}), at: c.during}
			gone := make(chan struct{})
			h := New(svc, Options{Gate: gate(""), Log: zerolog.New(log)})
			srv := listening(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				svc.request = r.Context()
				h.ServeHTTP(w, r)
				close(gone)
			}))
			defer srv.Close()
			f := &fixture{fake: svc.fake, Server: srv, log: log}
			nc := f.dial()
			if _, err := io.WriteString(nc, f.upgrade("/devtools/browser/p?worker=w&task=t")); err != nil {
				t.Fatal(err)
			}
			<-svc.asked
			if err := nc.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-gone:
			case <-time.After(patience):
				t.Fatal("the request goes on")
			}
			var methods []string
			for _, call := range f.taken() {
				method, _, _ := strings.Cut(call, " ")
				methods = append(methods, method)
			}
			if !slices.Equal(methods, c.calls) {
				t.Errorf("calls %q, want %q", methods, c.calls)
			}
			select {
			case <-conn.cancelled:
				if !c.cancel {
					t.Error("cancelled what was not connected")
				}
			default:
				if c.cancel {
					t.Error("the connection was not cancelled")
				}
			}
			if len(conn.served) > 0 || strings.Contains(log.String(), `"level":"error"`) {
				t.Errorf("served %d, log %s", len(conn.served), log)
			}
		})
	}
}

// leaving is a Service whose client leaves during the call named at.
type leaving struct {
	*fake
	at      string
	asked   chan struct{}
	request context.Context
}

func (l *leaving) wait(method string) {
	if method == l.at {
		close(l.asked)
		<-l.request.Done()
	}
}

func (l *leaving) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	s, err := l.fake.Acquire(ctx, m)
	l.wait("Acquire")
	return s, err
}

func (l *leaving) Connect(ctx context.Context, sessionID, target string, closeFrames bool) (api.Connection, error) {
	c, err := l.fake.Connect(ctx, sessionID, target, closeFrames)
	l.wait("Connect")
	if ctx.Err() != nil {
		l.t.Errorf("Connect was interrupted: %v", ctx.Err())
	}
	return c, err
}

func TestKernelWatchesThePeer(t *testing.T) {
	seen := make(chan map[string]int, 1)
	conn := newConnection(func(nc net.Conn, _ *bufio.Reader) {
		options := map[string]int{}
		defer func() { seen <- options }()
		if over, ok := nc.(*tls.Conn); ok {
			nc = over.NetConn()
		}
		raw, err := nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		if err := raw.Control(func(fd uintptr) {
			for name, o := range map[string][2]int{
				"keepalive": {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, "idle": {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, "interval": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
				"count": {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, "user timeout": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
			} {
				v, err := unix.GetsockoptInt(int(fd), o[0], o[1])
				if err != nil {
					t.Error(err)
				}
				options[name] = v
			}
		}); err != nil {
			t.Error(err)
		}
	})
	check := func(kind string) {
		options := <-seen
		<-conn.served
		for name, want := range map[string]int{"keepalive": 1, "idle": 10, "interval": 5, "count": 3, "user timeout": 20000} {
			if options[name] != want {
				t.Errorf("%s: %s is %d, want %d", kind, name, options[name], want)
			}
		}
	}
	f := serve(t, Options{}, answersWith(conn))
	plain := f.dial()
	if _, err := io.WriteString(plain, f.upgrade("/s/"+capability+"/devtools/browser/store.18")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(plain); err != nil {
		t.Fatal(err)
	}
	check("TCP")

	over := httptest.NewTLSServer(New(f.fake, Options{TLS: true, Log: zerolog.Nop()}))
	defer over.Close()
	dialer := &tls.Dialer{Config: over.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	dialer.Config.NextProtos = []string{"http/1.1"}
	nc, err := dialer.DialContext(t.Context(), "tcp", over.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(nc, f.upgrade("/s/"+capability+"/devtools/browser/store.18")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 101 ") {
		t.Fatalf("%q, %v", b, err)
	}
	check("TLS")
}

// TestUpgradeIsLoggedWhenItBegins: the log's line about a websocket does not wait for the
// websocket's end, and is written once.
func TestUpgradeIsLoggedWhenItBegins(t *testing.T) {
	log := &testlog.Buffer{}
	atServe, done := make(chan string, 1), make(chan struct{})
	conn := newConnection(func(net.Conn, *bufio.Reader) { atServe <- log.String() })
	f := &fixture{fake: &fake{t: t, answers: answersWith(conn)}, log: log}
	h := New(f.fake, Options{Log: zerolog.New(log)})
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(done)
	}))
	defer f.Server.Close()
	nc := f.dial()
	if _, err := io.WriteString(nc, f.upgrade("/s/"+capability+"/devtools/browser/store.18")); err != nil {
		t.Fatal(err)
	}
	begun := <-atServe
	<-done
	if strings.Count(begun, `"status":101`) != 1 || log.String() != begun {
		t.Errorf("log at the beginning %q, at the end %q", begun, log)
	}
}

// FuzzRequestLine: no path and no query makes the surface panic, and only a one-shot URL
// reaches Acquire.
func FuzzRequestLine(f *testing.F) {
	for _, seed := range []string{
		"/devtools/browser/p?worker=w&task=t", "/profiles/p?task=t/json/version", "/s/c/devtools/page/T", "/profiles/p/json/new?task=t&http://x", "//", "/%2e%2e/%00", "/s", "/profiles/p?%zz", "/v1/sessions/%2F", "/?token=",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, target string, upgrade bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		if err != nil {
			return
		}
		if upgrade {
			for _, h := range upgradeHeaders {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
		}
		none := map[string]any{}
		for m := range reflect.TypeFor[api.Service]().Methods() {
			none[m.Name] = api.Refuse(api.CodeNotFound, "there is nothing")
		}
		svc := &refusing{fake: fake{t: t, answers: none}}
		w := httptest.NewRecorder()
		root := uint32(0)
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, user{uid: &root}))
		New(svc, Options{Gate: gate(""), Log: zerolog.Nop()}).ServeHTTP(w, r)
		if w.Code < 200 || w.Code > 599 {
			t.Errorf("%q: status %d", target, w.Code)
		}
		if svc.acquired && (!upgrade || !(strings.Contains(r.URL.Path, "devtools/browser") || strings.Contains(r.URL.Path, "profiles"))) {
			t.Errorf("%q took a lease", target)
		}
	})
}

// refusing is a Service that refuses every call, and remembers whether a lease was asked
// for.
type refusing struct {
	fake
	acquired bool
}

func (s *refusing) Acquire(context.Context, api.Manifest) (api.Session, error) {
	s.acquired = true
	return api.Session{}, api.Refuse(api.CodeUnknownProfile, "none")
}
