package cdpproxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy"
)

// TestAClientGetsNoRepliesButItsOwn: neither the browser's reply to a command of the launcher on
// the client's session, nor a second one to its own command, nor what is for others.
func TestAClientGetsNoRepliesButItsOwn(t *testing.T) {
	s := script(t)
	a, b := connect(t, s.mux, open(), &handler{}), connect(t, s.mux, open(), &handler{})
	a.works()
	s.say(`{"id":1,"result":{},"sessionId":"B1"}`)
	s.say(`{"method":"Test.event","params":{},"sessionId":"B2"}`)
	a.works()
	if e, err := b.next(); err != nil || e.Method != "Test.event" {
		t.Fatalf("message %v, error %v; want %s", e, err, "Test.event")
	}
	b.works()

	s.say(`{"method":"Fetch.requestPaused","params":{"requestId":"r"},"sessionId":"B1"}`)
	if e, err := a.next(); err != nil || e.Method != "Fetch.requestPaused" {
		t.Fatalf("message %v, error %v; want %s", e, err, "Fetch.requestPaused")
	}
	s.heard()
	a.conn.ClientSession().Fence()
	a.works() // the browser answers one after the other
	if heard := s.heard(); len(heard) != 2 || heard[0].Method != "Fetch.failRequest" || heard[0].SessionID != "B1" {
		t.Errorf("the browser heard %+v", heard)
	}
}

// TestAMessageIsPassedOnOnce, although its zero byte comes by itself: on a client's own session
// and on a page's.
func TestAMessageIsPassedOnOnce(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	if got := c.call("Target.attachToTarget", "", map[string]any{"targetId": "T", "flatten": true}); got.Error != nil {
		t.Fatalf("the browser answered with an error: %v", got.Error)
	}
	write := func(b string) {
		t.Helper()
		if _, err := s.out.WriteString(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, session := range []string{"B1", "B1-page"} {
		write(fmt.Sprintf(`{"method":"Test.event","params":{},"sessionId":%q}`, session))
		if e, err := c.next(); err != nil || e.Method != "Test.event" {
			t.Fatalf("message %v, error %v; want %s", e, err, "Test.event")
		}
		write("\x00")
		c.works()
	}
}

// TestALongReasonFitsTheCloseFrame, which has room for 123 bytes: a client's library would take
// a longer one, or half a character, for a broken connection.
func TestALongReasonFitsTheCloseFrame(t *testing.T) {
	s := script(t)
	for _, reason := range []string{strings.Repeat("x", 123), strings.Repeat("x", 124), strings.Repeat("ü", 100), strings.Repeat("字", 300)} {
		c := connect(t, s.mux, open(), &handler{})
		c.conn.Cut(cdpproxy.CloseFenced, reason)
		var closed wsutil.ClosedError
		if _, err := c.next(); !errors.As(err, &closed) || closed.Code != cdpproxy.CloseFenced {
			t.Fatalf("%d bytes: closed by %v", len(reason), err)
		}
		if got := closed.Reason; !strings.HasPrefix(reason, got) || !utf8.ValidString(got) || len(got) < 121 || len(got) > 123 {
			t.Errorf("of %d bytes came %d: %q", len(reason), len(got), got)
		}
		<-c.end
	}
}
