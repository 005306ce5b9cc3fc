package cdpproxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// TestAShutFenceRefusesWhatTakesTheSlowWay: a command whose parameters are looked at first
// meets the fence at its write, like the others.
func TestAShutFenceRefusesWhatTakesTheSlowWay(t *testing.T) {
	s := script(t)
	f, h := open(), &handler{}
	c := connect(t, s.mux, f, h)
	to := map[string]any{"url": "http://a/"}
	if got := c.call("Page.navigate", "", to); got.Error != nil {
		t.Fatalf("the browser answered with an error: %v", got.Error)
	}
	s.heard()
	f.Shut(&lease.FencedError{Profile: "p", Token: 1, Current: 2})
	if got := c.call("Page.navigate", "", to); got.Error == nil || !strings.Contains(got.Error.Message, "superseded by 2") {
		t.Errorf("%+v", got)
	}
	if heard := s.heard(); len(heard) != 0 || h.refused.Load() != 1 {
		t.Errorf("the browser heard %+v; %d reported, want 1", heard, h.refused.Load())
	}
}

// halfWritten has a command half in the pipe of a browser that does not read.
func halfWritten(t *testing.T, s *scripted) *client {
	t.Helper()
	c := connect(t, s.mux, open(), &handler{})
	c.works()
	c.send("DOM.disable", "", nil)
	c.send("DOM.getDocument", "", map[string]string{"a": strings.Repeat("x", 4<<20)})
	for deadline := time.Now().Add(testchrome.Patience); s.unread() < 32<<10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the large command did not reach the pipe")
		}
	}
	return c
}

// TestABarrierWaitsForTheMessageThatPassed: a message that passed the fence may still be on
// its way into the pipe. Whoever acts after Barrier acts after it.
func TestABarrierWaitsForTheMessageThatPassed(t *testing.T) {
	s := script(t)
	halfWritten(t, s)
	passed := make(chan struct{})
	go func() { defer close(passed); s.mux.Barrier() }()
	select {
	case <-passed:
		t.Error("a message is half written, and nobody waits for it")
	case <-time.After(50 * time.Millisecond):
	}
	s.mux.LimitWrites(time.Nanosecond)
	<-passed
}

// TestTheFirstCutCounts: the client is told one reason, and nothing after it.
func TestTheFirstCutCounts(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	c.works()
	c.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2")
	c.conn.Cut(cdpproxy.CloseShuttingDown, "bye")
	s.say(`{"method":"Test.event","params":{},"sessionId":"B1"}`)
	var closed wsutil.ClosedError
	if _, err := c.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseFenced {
		t.Errorf("closed by %v", err)
	}
	_ = c.net.SetReadDeadline(time.Now().Add(testchrome.Patience))
	if rest, err := io.ReadAll(c.net); len(rest) != 0 || err != nil {
		t.Errorf("after the close frame came %q, %v", rest, err)
	}
	<-c.end
}

// TestAClientThatDoesNotAnswerTheCutIsLeft, after a bound.
func TestAClientThatDoesNotAnswerTheCutIsLeft(t *testing.T) {
	t.Parallel()
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	c.works()
	c.conn.Cut(cdpproxy.CloseFenced, "token 1 superseded by 2")
	select {
	case end := <-c.end:
		if !end.Cut || end.Clean {
			t.Errorf("%+v", end)
		}
	case <-time.After(testchrome.Patience):
		t.Error("it is waited for")
	}
}

// TestARequestThatPausesBehindTheFenceIsFailed: nobody is there to continue it, and the end
// of the session would send it.
func TestARequestThatPausesBehindTheFenceIsFailed(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	c.works()
	s.say(`{"method":"Fetch.requestPaused","params":{"requestId":"before"},"sessionId":"B1"}`)
	if _, err := c.next(); err != nil {
		t.Fatal(err)
	}
	s.heard()
	c.conn.ClientSession().Fence()
	s.say(`{"method":"Fetch.requestPaused","params":{"requestId":"after"},"sessionId":"B1"}`)
	var failed []string
	for deadline := time.Now().Add(testchrome.Patience); len(failed) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, command := range s.heard() {
			failed = append(failed, command.Method+string(command.Params))
		}
	}
	want := []string{`Fetch.failRequest{"errorReason":"Aborted","requestId":"before"}`, `Fetch.failRequest{"errorReason":"Aborted","requestId":"after"}`}
	if !slices.Equal(failed, want) {
		t.Errorf("the browser heard %q", failed)
	}
}

// TestALargeCommandComesWhole, although the pipe takes it in pieces.
func TestALargeCommandComesWhole(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	if got := c.call("Target.attachToTarget", "", map[string]any{"targetId": "T", "flatten": true}); got.Error != nil {
		t.Fatalf("the browser answered with an error: %v", got.Error)
	}
	s.heard()
	var numbers strings.Builder
	for i := range 200_000 {
		fmt.Fprint(&numbers, i, " ")
	}
	for _, session := range []string{"", "B1-page"} { // in two parts, and in one
		if got := c.call("DOM.getDocument", session, map[string]string{"a": numbers.String()}); got.Error != nil {
			t.Fatalf("the browser answered with an error: %v", got.Error)
		}
		var params struct{ A string }
		if heard := s.heard(); len(heard) != 1 || json.Unmarshal(heard[0].Params, &params) != nil || params.A != numbers.String() {
			t.Errorf("session %q: the browser heard %d commands, and %d bytes of %d", session, len(heard), len(params.A), numbers.Len())
		}
	}
}
