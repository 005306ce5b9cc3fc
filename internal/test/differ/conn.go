package differ

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// patience bounds every wait for one message.
const patience = 5 * time.Second

// message is one message that a connection received.
type message struct {
	raw []byte
	// method is of an event; "#7" for the answer to the command with the id 7; "" for
	// anything else.
	method  string
	session string
	waited  bool // a wait of the script has had it
}

// conn is one websocket connection that keeps all that it receives.
type conn struct {
	name   string
	socket net.Conn
	lastID int

	mu       sync.Mutex
	received []message
	lastAt   time.Time // when something came last
	closed   bool      // by the script
	ended    string    // how the other side ended it; "" while it is open
	changed  chan struct{}

	done chan struct{} // closed when the reader has ended
}

// dial opens a websocket, and reads it until close.
func dial(name, url string) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	refusal := ""
	dialer := ws.Dialer{OnStatusError: func(status int, reason []byte, _ io.Reader) { refusal = fmt.Sprintf(" %d %s", status, reason) }}
	socket, buffered, _, err := dialer.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w%s", url, err, refusal)
	}
	c := &conn{name: name, socket: socket, lastAt: time.Now(), changed: make(chan struct{}), done: make(chan struct{})}
	from := io.Reader(socket)
	if buffered != nil {
		from = buffered
	}
	go c.read(bufio.NewReaderSize(from, 64<<10))
	return c, nil
}

// read is the connection's reader. It keeps messages until the socket ends.
func (c *conn) read(from *bufio.Reader) {
	defer close(c.done)
	var whole []byte
	for {
		header, err := ws.ReadHeader(from)
		if err != nil {
			c.end(endOf(err))
			return
		}
		payload := make([]byte, header.Length)
		if _, err := io.ReadFull(from, payload); err != nil {
			c.end(endOf(err))
			return
		}
		switch header.OpCode {
		case ws.OpClose:
			said := "a close frame without a code"
			if len(payload) >= 2 {
				said = fmt.Sprintf("close frame %d %s", binary.BigEndian.Uint16(payload), payload[2:])
			}
			c.end(said)
			// The other side may wait for the answer.
			_ = c.frame(ws.NewCloseFrame(payload[:min(2, len(payload))]))
		case ws.OpPing, ws.OpPong:
			c.keep(message{raw: fmt.Appendf(nil, "websocket %s %q", map[ws.OpCode]string{ws.OpPing: "ping", ws.OpPong: "pong"}[header.OpCode], payload)})
		default:
			whole = append(whole, payload...)
			if header.Fin {
				c.keep(parseMessage(whole))
				whole = nil
			}
		}
	}
}

func endOf(err error) string {
	if errors.Is(err, io.EOF) {
		return "the socket was closed"
	}
	return "the socket was reset"
}

func parseMessage(raw []byte) message {
	m := message{raw: raw}
	var envelope struct {
		ID        *int64 `json:"id"`
		Method    string `json:"method"`
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(raw, &envelope) != nil {
		return m
	}
	m.method, m.session = envelope.Method, envelope.SessionID
	if envelope.ID != nil {
		m.method = "#" + strconv.FormatInt(*envelope.ID, 10)
	}
	return m
}

func (c *conn) keep(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, m)
	c.lastAt = time.Now()
	close(c.changed)
	c.changed = make(chan struct{})
}

// end notes how the connection ended. The first one counts.
func (c *conn) end(how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == "" && !c.closed {
		c.ended, c.closed = how, how == ""
		c.lastAt = time.Now()
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// errNothing says that something that was waited for did not come.
var errNothing = errors.New("it did not come")

// until waits until found is true; it is called with c.mu held.
func (c *conn) until(found func() bool) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		c.mu.Lock()
		ok, ended, changed := found(), c.ended, c.changed
		c.mu.Unlock()
		switch {
		case ok:
			return nil
		case ended != "":
			return fmt.Errorf("%w: %s", errNothing, ended)
		}
		select {
		case <-changed:
		case <-late.C:
			return errNothing
		}
	}
}

// wait waits for a message that no other wait has had. method is as in message. In any
// session if that is empty. Each condition is PATH=VALUE.
func (c *conn) wait(method, session string, conditions []string) (got message, err error) {
	err = c.until(func() bool {
		for i := range c.received {
			m := &c.received[i]
			if !m.waited && m.method == method && (session == "" || m.session == session) && holds(m.raw, conditions) {
				m.waited, got = true, *m
				return true
			}
		}
		return false
	})
	return got, err
}

func holds(raw []byte, conditions []string) bool {
	for _, condition := range conditions {
		at, want, _ := strings.Cut(condition, "=")
		if value, err := look(raw, at); err != nil || value != want {
			return false
		}
	}
	return true
}

// look finds a value in a JSON text by its path: members and indices, with dots between.
// A string is returned without its quotes, anything else as JSON.
func look(raw []byte, at string) (string, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(at, ".") {
		switch in := v.(type) {
		case map[string]any:
			inner, ok := in[name]
			if !ok {
				return "", fmt.Errorf("%.300s has no %s", raw, at)
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return "", fmt.Errorf("%.300s has no %s", raw, at)
			}
			v = in[i]
		default:
			return "", fmt.Errorf("%.300s has no %s", raw, at)
		}
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// frame sends one frame, masked as clients have to.
func (c *conn) frame(f ws.Frame) error {
	if err := c.socket.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return ws.WriteFrame(c.socket, ws.MaskFrame(f))
}

func (c *conn) text(msg string) error { return c.frame(ws.NewTextFrame([]byte(msg))) }

// call sends a command with the next id.
func (c *conn) call(session, method, params string) (id string, err error) {
	c.lastID++
	id = "#" + strconv.Itoa(c.lastID)
	msg := fmt.Sprintf(`{"id":%d,"method":%q`, c.lastID, method)
	if params != "" {
		msg += `,"params":` + params
	}
	if session != "" {
		msg += fmt.Sprintf(`,"sessionId":%q`, session)
	}
	return id, c.text(msg + "}")
}

// do sends a command, waits for its answer, and returns an error for one that failed.
func (c *conn) do(session, method, params string) ([]byte, error) {
	id, err := c.call(session, method, params)
	if err != nil {
		return nil, err
	}
	m, err := c.wait(id, "", nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if why, err := look(m.raw, "error.message"); err == nil {
		return nil, fmt.Errorf("%s: %s", method, why)
	}
	return m.raw, nil
}

// close ends the connection, and waits for its reader.
func (c *conn) close() {
	c.end("")            // nobody looks at how it ends now
	_ = c.socket.Close() // it may be closed already
	<-c.done
}

// quietSince returns when something came last.
func (c *conn) quietSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastAt
}
