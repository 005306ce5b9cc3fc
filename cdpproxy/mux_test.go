package cdpproxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"go.uber.org/goleak"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
	"leasehold/internal/test/rawcdp"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser is a real Chromium behind a Mux.
func browser(t *testing.T) *cdpproxy.Mux {
	t.Helper()
	b := testchrome.Start(t, testchrome.Options(t))
	commands, events, err := b.TakePipe()
	if err != nil {
		t.Fatal(err)
	}
	m, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events}, noEffect, func(cdpproxy.Traffic) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testchrome.Patience)
		defer cancel()
		// The reply may be lost with the pipe.
		_ = m.Call(ctx, "Browser.close", nil, nil)
		<-m.Done()
	})
	return m
}

// handler answers every command of the Lease domain, and counts what else it is called
// for.
type handler struct {
	closes, refused atomic.Int32
	// readable and writable answer for files; nil: all are allowed.
	readable, writable func(string) error
	downloads          string
	taken              cdpproxy.Takeover

	mu     sync.Mutex
	denied []string // method and reason
	closed []string // targets that the client closes
}

func (h *handler) Lease(_ context.Context, method string, params json.RawMessage) (any, *cdpproxy.Error) {
	return map[string]any{"asked": method, "with": params}, nil
}
func (h *handler) ClosingTarget(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = append(h.closed, target)
}

func (h *handler) closedTargets() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.closed)
}

func (h *handler) CloseBrowser()    { h.closes.Add(1) }
func (h *handler) Refused(_ string) { h.refused.Add(1) }

func (h *handler) Readable(path string) error { return ask(h.readable, path) }

func (h *handler) Writable(dir string) error { return ask(h.writable, dir) }

func ask(answer func(string) error, path string) error {
	if answer == nil {
		return nil
	}
	return answer(path)
}

func (h *handler) DownloadDir() string { return h.downloads }

func (h *handler) Opened(*cdpproxy.Conn) func(context.Context) { return func(context.Context) {} }

func (h *handler) Takeover() *cdpproxy.Takeover { return &h.taken }

func (h *handler) Denied(method string, why *methods.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.denied = append(h.denied, method+" "+why.Reason)
}

// deniedSince returns what was denied since the last call.
func (h *handler) deniedSince() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	denied := h.denied
	h.denied = nil
	return denied
}

// client is a websocket client of a connection of the Mux.
type client struct {
	t    *testing.T
	conn *cdpproxy.Conn
	net  net.Conn
	end  chan cdpproxy.End
	id   int
}

// connect opens and serves a connection over TCP.
func connect(t *testing.T, m *cdpproxy.Mux, f *lease.Fence, h cdpproxy.Handler) *client {
	t.Helper()
	return connectAs(t, m, f, h, true)
}

// connectAs is connect for a client that takes close frames, or does not.
func connectAs(t *testing.T, m *cdpproxy.Mux, f *lease.Fence, h cdpproxy.Handler, closeFrames bool) *client {
	t.Helper()
	conn, err := m.Connect(t.Context(), "", f, h, closeFrames)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, conn)
}

// serve serves a connection over TCP.
func serve(t *testing.T, conn *cdpproxy.Conn) *client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, net: near, end: make(chan cdpproxy.End, 1)}
	go func() { c.end <- conn.Serve(context.WithoutCancel(t.Context()), far, bufio.NewReader(far)) }()
	t.Cleanup(func() { _ = near.Close() })
	return c
}

// send sends a command, and returns its id.
func (c *client) send(method, session string, params any) int {
	c.t.Helper()
	c.id++
	m := map[string]any{"id": c.id, "method": method, "params": params}
	if params == nil {
		delete(m, "params")
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := wsutil.WriteClientText(c.net, b); err != nil {
		c.t.Fatal(err)
	}
	return c.id
}

type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	SessionID string          `json:"sessionId"`
	Error     *cdpproxy.Error `json:"error"`
}

// next returns the next message.
func (c *client) next() (message, error) {
	_ = c.net.SetReadDeadline(time.Now().Add(testchrome.Patience))
	b, err := wsutil.ReadServerText(rawcdp.Heard{Conn: c.net})
	if err != nil {
		return message{}, err
	}
	var m message
	return m, json.Unmarshal(b, &m)
}

// call sends a command and returns the reply. It drops the events that come before.
func (c *client) call(method, session string, params any) message {
	c.t.Helper()
	id := c.send(method, session, params)
	for {
		m, err := c.next()
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		if m.ID == id {
			return m
		}
	}
}

// page opens a page, and returns its target and a CDP session on it once it is loaded.
func (c *client) page(url string) (target, session string) {
	c.t.Helper()
	var r struct{ TargetID, SessionID string }
	if err := json.Unmarshal(c.call("Target.createTarget", "", map[string]any{"url": url}).Result, &r); err != nil {
		c.t.Fatal(err)
	}
	target = r.TargetID
	if err := json.Unmarshal(c.call("Target.attachToTarget", "", map[string]any{"targetId": target, "flatten": true}).Result, &r); err != nil {
		c.t.Fatal(err)
	}
	if url != "about:blank" {
		c.awaitLoad(url, r.SessionID)
	}
	return target, r.SessionID
}

// awaitLoad waits until the page of a CDP session is loaded from the URL. Until then a new page shows an empty document, which counts as loaded.
func (c *client) awaitLoad(url, session string) {
	c.t.Helper()
	for loaded := false; !loaded; {
		shown := c.call("Runtime.evaluate", session, map[string]any{"expression": "document.readyState + ' ' + location.href"})
		loaded = strings.Contains(string(shown.Result), `"complete `+url)
	}
}

// open returns a fence that is open for an hour.
func open() *lease.Fence {
	return lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
}

func TestConnectionsAreKeptApart(t *testing.T) {
	m := browser(t)
	a, b := connect(t, m, open(), &handler{}), connect(t, m, open(), &handler{})
	_, sa := a.page("about:blank")
	_, sb := b.page("about:blank")
	// Both use the same message ids.
	if got := string(a.call("Runtime.evaluate", sa, map[string]any{"expression": "'a'+1"}).Result); !strings.Contains(got, `"a1"`) {
		t.Errorf("%s, want %s in it", got, `"a1"`)
	}
	if got := string(b.call("Runtime.evaluate", sb, map[string]any{"expression": "'b'+1"}).Result); !strings.Contains(got, `"b1"`) {
		t.Errorf("%s, want %s in it", got, `"b1"`)
	}
	if e := b.call("Runtime.evaluate", sa, map[string]any{"expression": "1"}).Error; e == nil || e.Code != -32001 {
		t.Errorf("another connection's session: %v", e)
	}
	if e := b.call("Runtime.evaluate", "no-such", nil).Error; e == nil || e.Code != -32001 {
		t.Errorf("an unknown session: %v", e)
	}
	if e := b.call("No.such", "", nil).Error; e == nil || e.Code != -32601 {
		t.Errorf("an unknown method: %v", e)
	}
	// Events of a do not reach b.
	a.call("Runtime.enable", sa, nil)
	a.call("Runtime.evaluate", sa, map[string]any{"expression": "for(let i=0;i<50;i++)console.log(i)"})
	id := b.send("Browser.getVersion", "", nil)
	if next, err := b.next(); err != nil || next.ID != id || next.SessionID != "" {
		t.Errorf("b heard %+v, %v", next, err)
	}
}

func TestLargeMessagesBothWays(t *testing.T) {
	m := browser(t)
	c := connect(t, m, open(), &handler{})
	_, s := c.page("about:blank")
	const size = 5 << 20
	up := c.call("Runtime.evaluate", s, map[string]any{"expression": "'" + strings.Repeat("x", size) + "'.length", "returnByValue": true})
	if !strings.Contains(string(up.Result), fmt.Sprint(size)) {
		t.Errorf("up: %s %v", up.Result, up.Error)
	}
	if down := c.call("Runtime.evaluate", s, map[string]any{"expression": fmt.Sprintf("'y'.repeat(%d)", size)}); len(down.Result) < size {
		t.Errorf("down: %d bytes", len(down.Result))
	}
}

func TestWhatIsNotPassedOn(t *testing.T) {
	m := browser(t)
	h := &handler{}
	c := connect(t, m, open(), h)
	if got := c.call("Lease.step", "", map[string]any{"name": "one"}); !strings.Contains(string(got.Result), `{"name":"one"}`) {
		t.Errorf("%s", got.Result)
	}
	if got := c.call("Browser.close", "", nil); string(got.Result) != "{}" {
		t.Errorf("%s", got.Result)
	}
	for _, method := range []string{"Browser.crash", "Target.exposeDevToolsProtocol", "Target.sendMessageToTarget"} {
		if e := c.call(method, "", nil).Error; e == nil || !strings.Contains(e.Message, "leasehold refuses") {
			t.Errorf("%s: %v", method, e)
		}
	}
	// The client is answered first, but its next message is not read before the handler
	// has returned.
	if n := h.closes.Load(); n != 1 {
		t.Errorf("the handler was told %d times that the browser is to be closed", n)
	}
	// For the browser, what follows a zero byte would be a message on the root session.
	if err := wsutil.WriteClientText(c.net, []byte("{\"id\":1,\"method\":\"m\"}\x00{\"id\":2,\"method\":\"Browser.close\"}")); err != nil {
		t.Fatal(err)
	}
	if got, err := c.next(); err != nil || got.Error == nil || got.Error.Code != -32700 {
		t.Errorf("%+v %v", got, err)
	}
	if c.call("Browser.getVersion", "", nil).Error != nil {
		t.Error("the browser does not answer any more")
	}
}

func TestFenceShutsAtOnce(t *testing.T) {
	m := browser(t)
	h := &handler{}
	f := open()
	c := connect(t, m, f, h)
	_, s := c.page("about:blank")
	pending := c.send("Runtime.evaluate", s, map[string]any{"expression": "new Promise(()=>{})", "awaitPromise": true})
	c.call("Browser.getVersion", "", nil)
	f.Shut(&lease.FencedError{Profile: "p", Token: 1, Current: 2})
	if e := c.call("Runtime.evaluate", s, map[string]any{"expression": "document.title='late'"}).Error; e == nil || !strings.Contains(e.Message, "superseded by 2") || h.refused.Load() != 1 {
		t.Errorf("%v, %d reported", e, h.refused.Load())
	}
	c.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2")
	got, err := c.next()
	if err != nil || got.ID != pending || got.SessionID != s || got.Error == nil || !strings.Contains(got.Error.Message, "superseded by 2") {
		t.Errorf("the command in flight: %+v, %v", got, err)
	}
	for _, want := range []string{"Inspector.detached", "Target.detachedFromTarget"} {
		if got, err := c.next(); err != nil || got.Method != want {
			t.Errorf("behind it: %+v, %v, want %s", got, err, want)
		}
	}
	_, err = c.next()
	var closed wsutil.ClosedError
	if !errors.As(err, &closed) || closed.Code != cdpproxy.CloseFenced || closed.Reason != "token 1 superseded by 2" {
		t.Errorf("closed by %v", err)
	}
	if end := <-c.end; !end.Cut {
		t.Errorf("%+v", end)
	}
}

// TestTheEndWithoutACloseFrame: a client that takes each frame for a message is cut, or
// refused, and gets messages only; then the stream ends.
func TestTheEndWithoutACloseFrame(t *testing.T) {
	m := browser(t)
	for _, tt := range []struct {
		name string
		end  func(c *client)
		cut  bool
		last string
	}{
		{"cut", func(c *client) { c.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2") }, true, "superseded by 2"},
		{"refused", func(c *client) {
			if err := wsutil.WriteClientMessage(c.net, ws.OpBinary, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := connectAs(t, m, open(), &handler{}, false)
			_, s := c.page("about:blank")
			pending := c.send("Runtime.evaluate", s, map[string]any{"expression": "new Promise(()=>{})", "awaitPromise": true})
			c.call("Browser.getVersion", "", nil)
			tt.end(c)
			if tt.last != "" {
				if got, err := c.next(); err != nil || got.ID != pending || got.Error == nil || !strings.Contains(got.Error.Message, tt.last) {
					t.Errorf("the command in flight: %+v, %v", got, err)
				}
			}
			if tt.cut { // Chrome's events of the end of the page's session
				if got, err := c.next(); err != nil || got.Method != "Inspector.detached" || got.SessionID != s {
					t.Errorf("behind the answers: %+v, %v", got, err)
				}
				if got, err := c.next(); err != nil || got.Method != "Target.detachedFromTarget" || !strings.Contains(string(got.Params), s) {
					t.Errorf("behind that: %+v, %v", got, err)
				}
			}
			if rest, err := io.ReadAll(c.net); err != nil || len(rest) != 0 {
				t.Errorf("behind the last message: %q, %v", rest, err)
			}
			if err := c.net.Close(); err != nil {
				t.Error(err)
			}
			if end := <-c.end; end.Cut != tt.cut {
				t.Errorf("%+v", end)
			}
		})
	}
}

// TestACommandAfterTheCut: a client that still sends while it is cut off does no harm.
func TestACommandAfterTheCut(t *testing.T) {
	m := browser(t)
	c := connect(t, m, open(), &handler{})
	c.call("Browser.getVersion", "", nil)
	c.conn.Cut(cdpproxy.CloseTooSlow, "enough")
	// A client that is late finds the connection closed.
	for range 3 {
		_ = wsutil.WriteClientText(c.net, []byte(`{"id":9,"method":"Browser.getVersion"}`))
	}
	_ = wsutil.WriteClientMessage(c.net, ws.OpClose, nil)
	if end := <-c.end; !end.Cut {
		t.Errorf("%+v", end)
	}
}

// TestARefusedContinueSendsNothing: a paused request that the client tries to continue
// after the fence was shut is failed like the others.
func TestARefusedContinueSendsNothing(t *testing.T) {
	var posts atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
		_, _ = io.WriteString(w, "<!doctype html>")
	}))
	defer web.Close()
	m := browser(t)
	f := open()
	c := connect(t, m, f, &handler{})
	_, s := c.page(web.URL)
	c.call("Fetch.enable", s, map[string]any{"patterns": []any{map[string]string{"urlPattern": "*pay*"}}})
	c.send("Runtime.evaluate", s, map[string]any{"expression": "void fetch('" + web.URL + "/pay', {method: 'POST', body: 'x'})"})
	var paused struct{ RequestID string }
	for paused.RequestID == "" {
		e, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Method == "Fetch.requestPaused" {
			if err := json.Unmarshal(e.Params, &paused); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A command that names the request without continuing it leaves it paused.
	c.call("Fetch.getResponseBody", s, map[string]any{"requestId": paused.RequestID})
	f.Shut(lease.ErrExpired)
	if e := c.call("Fetch.continueRequest", s, map[string]any{"requestId": paused.RequestID}).Error; e == nil {
		t.Error("the late command passed")
	}
	c.conn.ClientSession().Fence()
	m.Barrier()
	if err := m.Call(t.Context(), "Browser.close", nil, nil); err != nil && !errors.Is(err, cdpproxy.ErrBrowserGone) {
		t.Fatal(err)
	}
	<-m.Done()
	if n := posts.Load(); n != 0 {
		t.Errorf("%d POSTs were sent", n)
	}
}

func TestHowConnectionsEnd(t *testing.T) {
	m := browser(t)
	clean := connect(t, m, open(), &handler{})
	if err := wsutil.WriteClientMessage(clean.net, ws.OpClose, nil); err != nil {
		t.Fatal(err)
	}
	if end := <-clean.end; !end.Clean {
		t.Errorf("a close frame: %+v", end)
	}
	dropped := connect(t, m, open(), &handler{})
	if err := dropped.net.Close(); err != nil {
		t.Fatal(err)
	}
	if end := <-dropped.end; end.Clean || end.Cut {
		t.Errorf("a dropped socket: %+v", end)
	}
	binary := connect(t, m, open(), &handler{})
	if err := wsutil.WriteClientBinary(binary.net, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	var closed wsutil.ClosedError
	if _, err := binary.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseBadData {
		t.Errorf("a binary message: %v", err)
	}
	ping := connect(t, m, open(), &handler{})
	if err := wsutil.WriteClientMessage(ping.net, ws.OpPing, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	_ = ping.net.SetReadDeadline(time.Now().Add(testchrome.Patience))
	var pong [5]byte // unmasked: two bytes of header, and the payload
	if _, err := io.ReadFull(ping.net, pong[:]); err != nil || string(pong[:]) != "\x8a\x03abc" {
		t.Errorf("a ping: %q %v", pong, err)
	}
	// A message larger than Chrome's pipe takes.
	big := connect(t, m, open(), &handler{})
	if err := ws.WriteHeader(big.net, ws.Header{Fin: true, OpCode: ws.OpText, Masked: true, Length: cdpproxy.MaxCommand + 1}); err != nil {
		t.Fatal(err)
	}
	// The client goes on writing the message that it has begun, which is not read for ever.
	chunk := make([]byte, 1<<20)
	for sent := 0; sent <= cdpproxy.MaxCommand; sent += len(chunk) {
		if _, err := big.net.Write(chunk); err != nil {
			break
		}
	}
	if _, err := big.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseTooBig {
		t.Errorf("too big a message: %v", err)
	}
}

// TestASlowClientHoldsNobodyUp: much is sent to a client that does not read, while
// another one on the same browser is served.
func TestASlowClientHoldsNobodyUp(t *testing.T) {
	m := browser(t)
	slow, quick := connect(t, m, open(), &handler{}), connect(t, m, open(), &handler{})
	_, s := slow.page("about:blank")
	slow.call("Runtime.enable", s, nil)
	slow.send("Runtime.evaluate", s, map[string]any{"expression": "for(let i=0;i<600;i++)console.log('z'.repeat(20000)+i)"})
	_, q := quick.page("about:blank")
	for i := range 50 {
		if got := quick.call("Runtime.evaluate", q, map[string]any{"expression": fmt.Sprint(i)}); got.Error != nil {
			t.Fatalf("the browser answered with an error: %v", got.Error)
		}
	}
	// The slow one misses nothing.
	seen := 0
	for seen < 600 {
		got, err := slow.next()
		if err != nil {
			t.Fatalf("after %d: %v", seen, err)
		}
		if got.Method == "Runtime.consoleAPICalled" {
			seen++
		}
	}
}

// TestBehind: Behind reports what the browser has written and nobody has handled yet,
// whether it is still in the pipe or being handled.
func TestBehind(t *testing.T) {
	s := script(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	hear := func(cdpproxy.Event) {
		entered <- struct{}{}
		<-leave // the reader may have to wait for a disk like this
	}
	if _, err := s.mux.Listen(t.Context(), hear, []string{"DOM.undo"}); err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(testchrome.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within %v: %s", testchrome.Patience, what)
			}
		}
	}
	eventually("behind, with nothing said", func() bool { return !s.mux.Behind() })
	s.say(`{"method":"DOM.undo","params":{},"sessionId":"B1"}`)
	<-entered
	before := s.mux.Reads()
	if !s.mux.Behind() {
		t.Error("the reader is at work")
	}
	s.say(`{"method":"DOM.undo","params":{},"sessionId":"B1"}`)
	if !s.mux.Behind() || s.mux.Reads() != before {
		t.Error("the pipe is not empty, and not read")
	}
	leave <- struct{}{}
	<-entered
	leave <- struct{}{}
	eventually("behind, with everything taken in", func() bool { return !s.mux.Behind() })
	if s.mux.Reads() == before {
		t.Error("no more was read")
	}
}

// TestManyCallersAtOnce: under load, each call gets its own reply.
func TestManyCallersAtOnce(t *testing.T) {
	m := browser(t)
	o, err := m.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := o.Call(t.Context(), "", "Browser.getVersion", nil, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestCommandsAreLogged by method and target, also after the connection is gone. What the
// fence refused is not among them.
func TestCommandsAreLogged(t *testing.T) {
	m := browser(t)
	f := open()
	c := connect(t, m, f, &handler{})
	target, session := c.page("about:blank")
	c.call("Runtime.evaluate", session, map[string]any{"expression": "'Pl4nted'"})
	c.call("Lease.step", "", map[string]any{"name": "one"})
	c.call("Runtime.evaluate", "no-such", nil)
	f.Shut(errors.New("over"))
	c.call("Page.reload", session, nil)
	if err := c.net.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.end
	var got []string
	sent, missed := c.conn.ClientSession().Commands()
	for _, s := range sent {
		got = append(got, s.Method)
		if on := s.Method == "Runtime.evaluate"; on != (s.Target == target && s.Session == session) || time.Since(s.At).Abs() > testchrome.Patience {
			t.Errorf("%+v", s)
		}
	}
	if want := "Target.createTarget Target.attachToTarget Runtime.evaluate Lease.step"; strings.Join(got, " ") != want || missed != 0 {
		t.Errorf("%v, %d missed, want %s", got, missed, want)
	}
}

// releasing is a handler that cuts the connection after its answer.
type releasing struct {
	handler
	conn chan *cdpproxy.Conn
}

func (r *releasing) Lease(context.Context, string, json.RawMessage) (any, *cdpproxy.Error) {
	return cdpproxy.Last{Result: "released", Then: func() { (<-r.conn).Cut(1000, "released") }}, nil
}

func TestTheLastAnswerComesBeforeTheEnd(t *testing.T) {
	h := &releasing{conn: make(chan *cdpproxy.Conn, 1)}
	c := connect(t, browser(t), open(), h)
	h.conn <- c.conn
	if got := c.call("Lease.release", "", nil); string(got.Result) != `"released"` {
		t.Errorf("%s %v", got.Result, got.Error)
	}
	_, err := c.next()
	var closed wsutil.ClosedError
	if !errors.As(err, &closed) || closed.Code != 1000 || closed.Reason != "released" {
		t.Errorf("ended by %v", err)
	}
}
