package cdpproxy

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endings is a handler, and a Waiting, that notes what was known of a connection's end when its client could
// first have read something.
type endings struct {
	noHandler
	conn    *Conn
	told    bool // the handler was told of the end
	written bool
	known   bool // when something was written
}

func (e *endings) Lease(context.Context, string, json.RawMessage) (any, *Error) {
	return Last{Result: "released", Then: func() { e.told = true }}, nil
}

func (e *endings) CloseBrowser() { e.told = true }

func (e *endings) Poll([]unix.PollFd, time.Duration) error { return nil }

// Wrote is called with the connection's mutex held.
func (e *endings) Wrote() {
	if !e.written {
		e.written, e.known = true, e.told || e.conn.ends()
	}
}

// TestTheEndIsKnownBeforeTheClientReadsOfIt: a client that reads that its connection ends may ask for the
// profile at once, and must not be told that its own session still has it.
func TestTheEndIsKnownBeforeTheClientReadsOfIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*Conn)
	}{
		{"its close frame is answered", func(c *Conn) { c.handleInput(clientFrame(0x88, "\x03\xe8"), false) }},
		{"Browser.close", func(c *Conn) { c.handleInput(clientFrame(0x81, `{"id":1,"method":"Browser.close"}`), false) }},
		{"Lease.release", func(c *Conn) { c.handleInput(clientFrame(0x81, `{"id":1,"method":"Lease.release"}`), false) }},
		{"its page is closed", func(c *Conn) {
			c.session.defaultID = "P"
			c.session.conn = c
			c.session.mux.route([]byte(`{"method":"Target.detachedFromTarget","params":{"sessionId":"P","targetId":"T"},"sessionId":"S"}`))
			c.session.mux.flush()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = errors.Join(unix.Close(sockets[0]), unix.Close(sockets[1])) })
			b := newOffline(t)
			c := b.conn()
			c.fd, c.ctx = sockets[0], t.Context()
			e := &endings{conn: c}
			c.handler, b.mux.waiting = e, e
			tt.end(c)
			c.offloading.Wait()
			if !e.written || !e.known {
				t.Errorf("the client was written to: %v; the end was known by then: %v", e.written, e.known)
			}
		})
	}
}
