package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// worker is a client on a websocket of a session.
type worker struct {
	t      *testing.T
	conn   net.Conn
	lastID int
	// got are the messages that came, until it is closed.
	got chan message
	// closed is set before got is closed.
	closed wsutil.ClosedError
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
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
	w := &worker{t: r.t, conn: near, got: make(chan message, 1024)}
	opened := func() int {
		return strings.Count(strings.Join(r.journal(s), "\n"), "connection "+connectionOpened)
	}
	before := opened()
	var both sync.WaitGroup
	both.Go(func() { c.Serve(far, bufio.NewReader(far)) })
	both.Go(w.read)
	r.t.Cleanup(func() {
		_ = near.Close()
		both.Wait()
	})
	r.await("the connection is noted", func() bool { return opened() > before })
	return w
}

func (w *worker) read() {
	defer close(w.got)
	for {
		b, err := wsutil.ReadServerText(w.conn)
		if err != nil {
			errors.As(err, &w.closed)
			_ = w.conn.Close()
			return
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			w.t.Errorf("%.200q: %v", b, err)
		}
		w.got <- m
	}
}

// send sends a command.
func (w *worker) send(method, session string, params any) {
	w.t.Helper()
	w.lastID++
	m := map[string]any{"id": w.lastID, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = wsutil.WriteClientText(w.conn, b)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// call sends a command and returns its answer.
func (w *worker) call(method, session string, params any) message {
	w.t.Helper()
	w.send(method, session, params)
	for {
		select {
		case m, ok := <-w.got:
			if !ok {
				w.t.Fatalf("%s: the connection ended: %+v", method, w.closed)
			}
			if m.ID == w.lastID {
				return m
			}
		case <-time.After(patience):
			w.t.Fatalf("%s: no answer", method)
		}
	}
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
	if err := ws.WriteFrame(w.conn, ws.MaskFrame(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, "")))); err != nil {
		w.t.Fatal(err)
	}
	w.end()
}

// drop ends the connection without one.
func (w *worker) drop() { _ = w.conn.Close() }

// end waits for the end of the connection, and returns the close code and reason, and the
// events that came before.
func (w *worker) end() (code int, reason string, events []message) {
	w.t.Helper()
	for {
		select {
		case m, ok := <-w.got:
			if !ok {
				return int(w.closed.Code), w.closed.Reason, events
			}
			events = append(events, m)
		case <-time.After(patience):
			w.t.Fatal("the connection does not end")
		}
	}
}
