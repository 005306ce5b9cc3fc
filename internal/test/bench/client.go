package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/gobwas/ws"
)

// client is a minimal websocket client. It writes a message in one write, and parses no
// more of the answers than it needs.
type client struct {
	net    net.Conn
	r      *bufio.Reader
	lastID int
	out    []byte
	in     []byte
}

func dial(url string) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	conn, r, _, err := ws.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connecting to the browser: %w", err)
	}
	if r == nil {
		r = bufio.NewReaderSize(conn, 64<<10)
	}
	return &client{net: conn, r: r}, nil
}

// close performs the close handshake, since a connection that just ends would be a lost
// worker.
func (c *client) close() error {
	c.frame(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))
	_ = c.net.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.net.Write(c.out); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, c.r)
	return c.net.Close()
}

func (c *client) frame(op ws.OpCode, payload []byte) {
	var b bytes.Buffer
	// Writing to memory cannot fail. The mask is useless on loopback, but required.
	mask := [4]byte{1, 2, 3, 4}
	_ = ws.WriteHeader(&b, ws.Header{Fin: true, OpCode: op, Masked: true, Mask: mask, Length: int64(len(payload))})
	c.out = append(append(c.out[:0], b.Bytes()...), payload...)
	ws.Cipher(c.out[b.Len():], mask, 0)
}

// send sends a command and returns its id.
func (c *client) send(session, method, params string) (int, error) {
	c.lastID++
	msg := append([]byte(nil), `{"id":`...)
	msg = strconv.AppendInt(msg, int64(c.lastID), 10)
	msg = append(msg, `,"method":"`+method+`","params":`...)
	msg = append(msg, params...)
	if session != "" {
		msg = append(msg, `,"sessionId":"`+session+`"`...)
	}
	msg = append(msg, '}')
	c.frame(ws.OpText, msg)
	_ = c.net.SetDeadline(time.Now().Add(answerTimeout))
	_, err := c.net.Write(c.out)
	return c.lastID, err
}

// next returns the next message, which is valid until the next call.
func (c *client) next() ([]byte, error) {
	for {
		h, err := ws.ReadHeader(c.r)
		if err != nil {
			return nil, err
		}
		if int64(cap(c.in)) < h.Length {
			c.in = make([]byte, h.Length)
		}
		c.in = c.in[:h.Length]
		if _, err := io.ReadFull(c.r, c.in); err != nil {
			return nil, err
		}
		switch h.OpCode {
		case ws.OpText:
			return c.in, nil
		case ws.OpClose:
			return nil, fmt.Errorf("closed by the other side: %q", c.in)
		}
	}
}

var idKey = []byte(`{"id":`)

// answer returns the answer with the id, and drops all messages before it.
func (c *client) answer(id int) ([]byte, error) {
	for {
		msg, err := c.next()
		if err != nil {
			return nil, err
		}
		rest, ok := bytes.CutPrefix(msg, idKey)
		if !ok || !bytes.HasPrefix(rest, strconv.AppendInt(nil, int64(id), 10)) {
			continue
		}
		if bytes.HasPrefix(bytes.TrimLeft(rest, "0123456789"), []byte(`,"error"`)) {
			return nil, fmt.Errorf("refused: %s", msg)
		}
		return msg, nil
	}
}

func (c *client) call(session, method, params string) ([]byte, error) {
	id, err := c.send(session, method, params)
	if err != nil {
		return nil, err
	}
	return c.answer(id)
}

// page opens a page, and returns the CDP session on it.
func (c *client) page() (string, error) {
	var r struct{ Result struct{ TargetID string } }
	msg, err := c.call("", "Target.createTarget", `{"url":"about:blank"}`)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(msg, &r); err != nil {
		return "", err
	}
	return c.attach(r.Result.TargetID)
}

// attach returns a CDP session on a target.
func (c *client) attach(targetID string) (string, error) {
	var r struct{ Result struct{ SessionID string } }
	msg, err := c.call("", "Target.attachToTarget", `{"targetId":"`+targetID+`","flatten":true}`)
	if err != nil {
		return "", err
	}
	err = json.Unmarshal(msg, &r)
	return r.Result.SessionID, err
}
