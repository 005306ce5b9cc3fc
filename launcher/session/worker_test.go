package session

import (
	"bufio"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/test/rawcdp"
)

// worker is a client on a websocket of a session.
type worker struct {
	*rawcdp.Conn
	t *testing.T
}

// connect connects a worker to the session.
func (r *room) connect(s *Session) *worker {
	r.t.Helper()
	c, err := s.Connect(r.t.Context(), "", true)
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	w := &worker{rawcdp.On(near), r.t}
	opened := func() int {
		return strings.Count(strings.Join(r.journal(s), "\n"), "connection "+connectionOpened)
	}
	before := opened()
	var serving sync.WaitGroup
	serving.Go(func() { c.Serve(far, bufio.NewReader(far)) })
	r.t.Cleanup(func() {
		w.Drop()
		for range w.Got {
		}
		serving.Wait()
	})
	r.await("the connection is noted", func() bool { return opened() > before })
	return w
}

// send sends a command.
func (w *worker) send(method, session string, params any) {
	w.t.Helper()
	if _, err := w.Send(session, method, params); err != nil {
		w.t.Fatal(err)
	}
}

// call sends a command and returns its answer. What came before is dropped.
func (w *worker) call(method, session string, params any) rawcdp.Message {
	w.t.Helper()
	w.send(method, session, params)
	m, err := w.Answer(w.t.Context(), w.LastID)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Forget()
	return m
}

// attach opens a CDP session on the browser's first tab.
func (w *worker) attach() (session string) {
	w.t.Helper()
	var r struct{ SessionID string }
	if err := json.Unmarshal(w.call("Target.attachToTarget", "", map[string]any{"targetId": "T0", "flatten": true}).Result, &r); err != nil {
		w.t.Fatal(err)
	}
	return r.SessionID
}

// close ends the connection with a close handshake.
func (w *worker) close() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.end()
}

// drop ends the connection without one.
func (w *worker) drop() { w.Drop() }

// end waits for the end of the connection, and returns the close code and reason, and the
// events that came before.
func (w *worker) end() (code int, reason string, events []rawcdp.Message) {
	w.t.Helper()
	code, reason, err := w.Ended(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return code, reason, w.Forget()
}
