package cdpproxy_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// works fails the test unless a call on the connection is answered next.
func (c *client) works() {
	c.t.Helper()
	id := c.send("DOM.getDocument", "", nil)
	if got, err := c.next(); err != nil || got.ID != id || got.Error != nil || string(got.Result) != `{"of":"DOM.getDocument"}` {
		c.t.Fatalf("answered %+v, %v", got, err)
	}
}

// TestSessionsBelongToOneConnection: only the connection that a CDP session was opened
// under may use it, and only that connection receives its events.
func TestSessionsBelongToOneConnection(t *testing.T) {
	s := script(t)
	a, b := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	for _, c := range []*client{a, b} {
		if got := c.call("Target.attachToTarget", "", flat); !strings.Contains(string(got.Result), "-page") {
			t.Fatalf("%+v", got)
		}
	}
	s.heard()
	for _, foreign := range []string{"B2", "B2-page", "B3", "", "B1\\u002dpage", "b1-page"} {
		got := a.call("DOM.getDocument", foreign, nil)
		if foreign == "" {
			continue // the connection's own
		}
		if got.Error == nil || got.Error.Code != -32001 || got.SessionID != "" { // Chrome names none
			t.Errorf("session %q of another: %+v", foreign, got)
		}
	}
	if heard := s.heard(); len(heard) != 1 || heard[0].SessionID != "B1" {
		t.Errorf("the browser heard %+v", heard)
	}
	// Events come on a's page, on a's browser session, on those of b, and on a session
	// that nobody has.
	for _, session := range []string{"B1-page", "B1", "B2-page", "B2", "B9"} {
		s.say(`{"method":"Test.event","params":{"of":"%s","sessionId":"B2"},"sessionId":"%s"}`, session, session)
	}
	s.say(`{"method":"Test.event","params":{"of":"the root"}}`)
	for _, want := range []struct {
		c     *client
		heard []string
	}{{a, []string{"B1-page", ""}}, {b, []string{"B2-page", ""}}} {
		for _, session := range want.heard {
			if e, err := want.c.next(); err != nil || e.Method != "Test.event" || e.SessionID != session {
				t.Errorf("heard %+v (%v), want an event of %q", e, err, session)
			}
		}
		want.c.works() // it would fail if another event had come
	}
	// A session that has ended belongs to nobody.
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"B1-page"},"sessionId":"B1"}`)
	if e, err := a.next(); err != nil || e.Method != "Target.detachedFromTarget" {
		t.Fatalf("message %v, error %v; want %s", e, err, "Target.detachedFromTarget")
	}
	if got := a.call("DOM.getDocument", "B1-page", nil); got.Error == nil || got.Error.Code != -32001 {
		t.Errorf("a session that is over: %+v", got)
	}
}

// TestConnectionsMayUseTheSameIDs: a reply goes to the connection that it is for, although
// another one waits for a reply with the same id.
func TestConnectionsMayUseTheSameIDs(t *testing.T) {
	s := script(t)
	a, b := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	a.send("Debugger.pause", "", nil)
	b.send("Debugger.pause", "", nil)
	for n, deadline := 0, time.Now().Add(testchrome.Patience); n < 2; n += len(s.heard()) {
		if time.Now().After(deadline) {
			t.Fatal("the browser did not hear both")
		}
		time.Sleep(time.Millisecond)
	}
	s.say(`{"id":1,"result":{"for":"b"},"sessionId":"B2"}`)
	s.say(`{"id":1,"result":{"for":"a"},"sessionId":"B1"}`)
	for c, want := range map[*client]string{a: "a", b: "b"} {
		if got, err := c.next(); err != nil || got.ID != 1 || !strings.Contains(string(got.Result), want) {
			t.Errorf("%s got %+v, %v", want, got, err)
		}
	}
	// A second reply with the same id goes to nobody.
	s.say(`{"id":1,"result":{},"sessionId":"B1"}`)
	a.works()
}

// TestAClientThatVanishesInAMessage does not affect another client, and the browser gets
// nothing of the message.
func TestAClientThatVanishesInAMessage(t *testing.T) {
	s := script(t)
	whole := raw(fin|text, `{"id":7,"method":"DOM.focus","params":{"a":"`+strings.Repeat("x", 200<<10)+`"}}`)
	fragment := raw(text, `{"id":7,"method":"DOM.focus"`)
	other := connect(t, s.mux, open(), &handler{})
	for _, half := range []string{whole[:1], whole[:5], whole[:13], whole[:100], whole[:len(whole)-1], fragment, fragment + raw(continuation, ` `)[:3]} {
		c := connect(t, s.mux, open(), &handler{})
		if _, err := io.WriteString(c.net, half); err != nil {
			t.Fatal(err)
		}
		other.works()
		if err := c.net.Close(); err != nil {
			t.Fatal(err)
		}
		if end := <-c.end; end.Clean || end.Cut || !errors.Is(end.Err, io.EOF) {
			t.Errorf("after %d bytes: %+v", len(half), end)
		}
		other.works()
	}
	for _, c := range s.heard() {
		if c.Method == "DOM.focus" {
			t.Error("half a message reached the browser")
		}
	}
}

// TestAClientThatFloods sends as fast as it can. Every command is answered, and another
// client is served all the while.
func TestAClientThatFloods(t *testing.T) {
	s := script(t)
	flood, other := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	const messages = 20000
	sent := make(chan error, 1)
	go func() {
		var all strings.Builder
		for i := range messages {
			all.WriteString(raw(fin|text, fmt.Sprintf(`{"id":%d,"method":"DOM.getDocument"}`, i)))
			if i%100 == 0 {
				all.WriteString(raw(fin|ping, "p"))
			}
		}
		_, err := io.WriteString(flood.net, all.String())
		sent <- err
	}()
	answers := make(chan error, 1)
	go func() {
		for i := range messages {
			got, err := flood.next()
			if err == nil && got.ID != i {
				err = fmt.Errorf("answer %d came in the place of %d", got.ID, i)
			}
			if err != nil {
				answers <- err
				return
			}
		}
		answers <- nil
	}()
	for range 50 {
		other.works()
	}
	for _, err := range []error{<-sent, <-answers} {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAClientThatDoesNotRead is cut off when more than MaxQueued bytes wait for it. Until
// then it takes little more memory than those.
func TestAClientThatDoesNotRead(t *testing.T) {
	s := script(t)
	deaf, other := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	deaf.works()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	big := strings.Repeat("x", 1<<20)
	most := uint64(0)
	for sent := 0; sent < cdpproxy.MaxQueued+32<<20; sent += len(big) {
		s.sayAll(`{"method":"Test.event","params":{"a":"` + big + `"},"sessionId":"B1"}`)
		if sent%(16<<20) == 0 {
			other.works()
			runtime.GC()
			runtime.ReadMemStats(&after)
			most = max(most, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
		}
	}
	if end := <-deaf.end; !end.Cut || end.Clean {
		t.Errorf("ended by %+v", end)
	}
	if limit := uint64(cdpproxy.MaxQueued + 32<<20); most > limit || most < cdpproxy.MaxQueued/2 {
		t.Errorf("%d MiB were held for it, want about %d", most>>20, cdpproxy.MaxQueued>>20)
	}
	other.works()
	// The memory is free again after the end.
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+32<<20 {
		t.Errorf("%d MiB are held after its end", (after.HeapAlloc-before.HeapAlloc)>>20)
	}
}

// TestASlowReaderMissesNothing, although more waits for it than the buffers of the
// system have room for. In the end the client learns why it is cut off.
func TestASlowReaderMissesNothing(t *testing.T) {
	s := script(t)
	slow := connect(t, s.mux, open(), &handler{})
	const events = 1500
	for i := range events {
		s.sayAll(fmt.Sprintf(`{"method":"Test.event","params":{"n":%d,"a":"%s"},"sessionId":"B1"}`, i, strings.Repeat("x", i*13)))
	}
	for i := range events {
		e, err := slow.next()
		if want := fmt.Sprintf(`{"n":%d,`, i); err != nil || !strings.HasPrefix(string(e.Params), want) {
			t.Fatalf("event %d: %.40s %v", i, e.Params, err)
		}
	}
	slow.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2")
	var closed wsutil.ClosedError
	if _, err := slow.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseFenced {
		t.Errorf("closed by %v", err)
	}
}

// TestAMessageIsPassedOnBeforeItsZeroByte, which Chrome writes separately. It is passed on
// only once, however the bytes are cut.
func TestAMessageIsPassedOnBeforeItsZeroByte(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	write := func(b string) {
		t.Helper()
		if _, err := s.out.WriteString(b); err != nil {
			t.Fatal(err)
		}
	}
	event := func(n int) string {
		return fmt.Sprintf(`{"method":"Test.event","params":{"n":%d,"a":"\\\"}","b":[{}]},"sessionId":"B1"}`, n)
	}
	next := func(n int) {
		t.Helper()
		e, err := c.next()
		if want := fmt.Sprintf(`{"n":%d,`, n); err != nil || !strings.HasPrefix(string(e.Params), want) {
			t.Fatalf("event %d: %.60s %v", n, e.Params, err)
		}
	}
	write(event(1))
	next(1) // its zero byte is not written yet
	write("\x00")
	write(event(2) + "\x00" + event(3))
	next(2)
	next(3)
	for i, b := range []byte("\x00" + event(4) + "\x00") {
		write(string(b))
		if i%16 == 0 {
			time.Sleep(time.Millisecond) // so that the loop reads a part of it
		}
	}
	next(4)
	c.works()
}

// TestABrowserThatDoesNotRead delays the commands to it and nothing else: events still
// come, connections are still read, and a cut takes effect at once. The pipe's write
// deadline ends the wait.
func TestABrowserThatDoesNotRead(t *testing.T) {
	s := script(t)
	a, b := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	a.works()
	b.works()
	a.send("DOM.disable", "", nil)
	fill := a.send("DOM.getDocument", "", map[string]string{"a": strings.Repeat("x", 4<<20)})
	for deadline := time.Now().Add(testchrome.Patience); s.unread() < 32<<10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the large command did not reach the pipe")
		}
	}
	// A part of it is in the pipe. A command of b has to wait for the rest.
	waiting := b.send("DOM.getDocument", "", nil)
	s.say(`{"method":"Test.event","params":{},"sessionId":"B1"}`)
	s.say(`{"method":"Test.event","params":{},"sessionId":"B2"}`)
	for _, c := range []*client{a, b} {
		if e, err := c.next(); err != nil || e.Method != "Test.event" {
			t.Errorf("%+v %v", e, err)
		}
	}
	a.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2")
	for i := range 2 {
		if got, err := a.next(); err != nil || got.Error == nil || got.ID > fill {
			t.Errorf("answer %d of the cut: %+v %v", i, got, err)
		}
	}
	var closed wsutil.ClosedError
	if _, err := a.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseFenced {
		t.Errorf("closed by %v", err)
	}
	s.mux.LimitWrites(100 * time.Millisecond)
	s.mux.Barrier()
	if got, err := b.next(); err != nil || got.ID != waiting || got.Error == nil || !strings.Contains(got.Error.Message, "browser") {
		t.Errorf("the command that waited: %+v %v", got, err)
	}
	if end := <-a.end; !end.Cut {
		t.Errorf("%+v", end)
	}
}

// TestAShutFenceRefusesEveryCommandOfARead: none of many commands that come together
// passes, and each is answered and reported to the handler.
func TestAShutFenceRefusesEveryCommandOfARead(t *testing.T) {
	s := script(t)
	f, h := open(), &handler{}
	c := connect(t, s.mux, f, h)
	c.works()
	s.heard()
	f.Shut(&lease.FencedError{Profile: "p", Token: 1, Current: 2})
	var all strings.Builder
	for i := range 100 {
		all.WriteString(raw(fin|text, fmt.Sprintf(`{"id":%d,"method":"DOM.enable"}`, 1000+i)))
	}
	if _, err := io.WriteString(c.net, all.String()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if got, err := c.next(); err != nil || got.ID != 1000+i || got.Error == nil {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if heard := s.heard(); len(heard) != 0 {
		t.Errorf("the browser heard %+v", heard)
	}
	if n := h.refused.Load(); n != 100 {
		t.Errorf("%d reported, want 100", n)
	}
}

func TestStopLeavesTheBrowser(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	c.works()
	s.mux.Stop()
	<-s.mux.Done()
	if err := s.mux.Call(t.Context(), "DOM.getDocument", nil, nil); !errors.Is(err, cdpproxy.ErrBrowserGone) {
		t.Errorf("after the end: %v", err)
	}
	// The connection outlives the pipe, so that its client can learn why it ends.
	c.conn.Cut(cdpproxy.CloseShuttingDown, "bye")
	var closed wsutil.ClosedError
	if _, err := c.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseShuttingDown {
		t.Errorf("closed by %v", err)
	}
	// next has answered the close frame; on a busy host, later than it is waited for.
	if end := <-c.end; !end.Cut || !end.Clean && !errors.Is(end.Err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v", end)
	}
}
