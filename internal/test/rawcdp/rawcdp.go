// Package rawcdp is the tests' own client of CDP on a websocket. It hides nothing: it keeps what comes
// and nobody waited for, and knows how the connection ended.
package rawcdp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// patience bounds a wait whose context has no end. It is over much sooner unless something is broken.
const patience = 90 * time.Second

// Message is a message that came.
type Message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *Error          `json:"error"`
	SessionID string          `json:"sessionId"`
}

// Error is the error in the answer to a command.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// Conn is a connection. Its methods are for one goroutine at a time.
type Conn struct {
	// Header is the header of the upgrade's answer.
	Header http.Header
	// Got has what came; it is closed when the connection has ended.
	Got <-chan Message
	// LastID is the id of the newest command.
	LastID int

	conn net.Conn
	kept []Message // that nobody waited for yet
	end  error     // set before Got is closed
}

// Dial opens a websocket. An answer other than the upgrade is part of the error, unless the dialer
// takes it.
func Dial(ctx context.Context, d ws.Dialer, address string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	header := http.Header{}
	d.OnHeader = func(key, value []byte) error {
		header.Add(string(key), string(value))
		return nil
	}
	var refusal bytes.Buffer
	if d.OnStatusError == nil {
		d.OnStatusError = func(_ int, _ []byte, answer io.Reader) { _, _ = io.Copy(&refusal, answer) }
	}
	conn, buffered, _, err := d.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w %s", address, err, &refusal)
	}
	if buffered != nil {
		return nil, errors.Join(fmt.Errorf("%s: %d bytes came before the client said anything", address, buffered.Buffered()), conn.Close())
	}
	c := On(conn)
	c.Header = header
	return c, nil
}

// Heard is a connection on which only what comes counts. The other side may be gone before its close
// frame is answered: the library would tell of the broken pipe, and not of what the frame said.
type Heard struct{ net.Conn }

func (h Heard) Write(b []byte) (int, error) {
	_, _ = h.Conn.Write(b)
	return len(b), nil
}

// On is a client on a connection whose other side serves a websocket. It ends with the connection.
func On(conn net.Conn) *Conn {
	got := make(chan Message, 4096)
	c := &Conn{Got: got, conn: conn}
	go func() {
		defer close(got)
		defer conn.Close()
		for {
			b, err := wsutil.ReadServerText(Heard{conn}) // it also answers pings and the close handshake
			var m Message
			if err == nil {
				err = json.Unmarshal(b, &m)
			}
			if err != nil {
				c.end = err
				return
			}
			got <- m
		}
	}()
	return c
}

// Write sends a message as it is.
func (c *Conn) Write(raw []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return wsutil.WriteClientText(c.conn, raw)
}

// Send sends a command on a session, or on the connection's own if that is empty, and returns its id.
func (c *Conn) Send(session, method string, params any) (id int, err error) {
	c.LastID++
	m := map[string]any{"id": c.LastID, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = c.Write(b)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", method, err)
	}
	return c.LastID, err
}

// Next returns the first message that fits, of those kept and those to come.
func (c *Conn) Next(ctx context.Context, what string, fits func(Message) bool) (Message, error) {
	for i, m := range c.kept {
		if fits(m) {
			c.kept = append(c.kept[:i], c.kept[i+1:]...)
			return m, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case m, ok := <-c.Got:
			switch {
			case !ok:
				return Message{}, fmt.Errorf("waiting for %s, the connection ended: %w", what, c.end)
			case fits(m):
				return m, nil
			}
			c.kept = append(c.kept, m)
		case <-ctx.Done():
			return Message{}, fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

// Answer waits for the answer to a command.
func (c *Conn) Answer(ctx context.Context, id int) (Message, error) {
	return c.Next(ctx, fmt.Sprintf("the answer to %d", id), func(m Message) bool { return m.ID == id })
}

// Call sends a command, and decodes its result unless result is nil. An error in the answer is an *Error.
func (c *Conn) Call(ctx context.Context, session, method string, params, result any) error {
	id, err := c.Send(session, method, params)
	if err != nil {
		return err
	}
	m, err := c.Answer(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", method, err)
	case m.Error != nil:
		return fmt.Errorf("%s: %w", method, m.Error)
	case result != nil:
		return json.Unmarshal(m.Result, result)
	}
	return nil
}

// Ended waits for the end, and returns the close frame's code and reason, or 0 if there was none.
// Messages before it are kept.
func (c *Conn) Ended(ctx context.Context) (code int, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case m, ok := <-c.Got:
			if !ok {
				var closed wsutil.ClosedError
				errors.As(c.end, &closed)
				return int(closed.Code), closed.Reason, nil
			}
			c.kept = append(c.kept, m)
		case <-ctx.Done():
			return 0, "", fmt.Errorf("the connection does not end: %w", ctx.Err())
		}
	}
}

// Forget drops the messages that came and nobody waited for, and returns them.
func (c *Conn) Forget() []Message {
	kept := c.kept
	c.kept = nil
	return kept
}

// Close begins the close handshake.
func (c *Conn) Close() error {
	return ws.WriteFrame(c.conn, ws.MaskFrame(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))))
}

// Drop ends the connection without a close handshake.
func (c *Conn) Drop() { _ = c.conn.Close() }
