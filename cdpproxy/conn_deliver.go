package cdpproxy

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/gobwas/ws"
)

// largeMessage is from which size, in bytes, a message is written from where it
// was read.
const largeMessage = 128 << 10

// deliver queues a message from Chrome; the loop calls it, and flushes when it has
// no more at hand. It is true where the connection keeps msg.
func (c *Conn) deliver(a browserMessage, msg []byte) (kept bool) {
	own := string(a.sessionID) == c.session.defaultID
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	if a.isReply {
		ids := c.pending[string(a.sessionID)]
		if own {
			ids = c.pending[""]
		}
		disposes, ok := ids[a.id]
		if !ok {
			return false // the answer to a command of ours
		}
		delete(ids, a.id)
		c.session.mux.inFlight.Add(-1)
		c.session.mux.repliedToClient = true
		switch {
		case disposes != nil && a.isError:
			c.session.restorePaused(disposes)
		case disposes != nil:
			c.session.mux.ledger.append(lineSettled, disposes.request.sessionID, disposes.request.requestID)
		}
	}
	if c.tooSlow() {
		return false
	}
	if own {
		msg[a.bodyEnd] = '}'
		msg = msg[:a.bodyEnd+1]
	}
	if !a.isReply {
		msg = c.session.mux.hideObserver(msg)
	}
	if len(msg) >= largeMessage && c.out.size == 0 && c.fd >= 0 {
		return c.deliverLarge(msg)
	}
	c.out.add(ws.OpText, msg)
	if !c.queuedForFlush {
		c.queuedForFlush = true
		c.session.mux.unflushed = append(c.session.mux.unflushed, c)
	}
	return false
}

// deliverLarge writes what the socket takes at once, and keeps the rest without a
// copy where it is large. c.mu is held.
func (c *Conn) deliverLarge(msg []byte) (kept bool) {
	var space [maxHeader]byte
	header := appendHeader(space[:0], ws.OpText, len(msg))
	n, err := writeParts(c.fd, header, msg)
	if err != nil {
		c.dropOutput(err)
		return false
	}
	if n < len(header) {
		c.out.addShared(slices.Clone(header[n:]))
		n = len(header)
	}
	msg = msg[n-len(header):]
	if kept = len(msg) >= largeMessage; !kept {
		msg = slices.Clone(msg)
	}
	c.out.addShared(msg)
	c.blocked = c.out.size > 0
	return kept
}

func (c *Conn) push(op ws.OpCode, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut && !c.tooSlow() {
		c.out.add(op, payload)
	}
}

// Notify sends a CDP event to every session of the client that used the Lease
// domain: others would not know it.
func (c *Conn) Notify(method string, params any) {
	c.mu.Lock()
	sessions := make([]string, 0, len(c.leaseSessions))
	for s := range c.leaseSessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	for _, s := range sessions {
		msg, err := json.Marshal(struct {
			Method    string `json:"method"`
			Params    any    `json:"params"`
			SessionID string `json:"sessionId,omitempty"`
		}{method, params, s})
		if err == nil {
			c.push(ws.OpText, msg)
		}
	}
	c.flush()
}

// flush writes what waits if that can be done without blocking, and leaves the
// rest to the loop.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queuedForFlush = false
	if c.blocked {
		return
	}
	if c.writeOut(); c.blocked {
		_ = c.session.mux.wake() // fails for joining connections only
	}
}

// writable goes on where the socket had taken no more.
func (c *Conn) writable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked {
		c.writeOut()
	}
}

// writeOut writes what the socket takes. c.mu is held.
func (c *Conn) writeOut() {
	if c.fd < 0 || c.out.size == 0 {
		return
	}
	if err := c.out.write(c.fd); err != nil {
		c.dropOutput(err)
		return
	}
	c.blocked = c.out.size > 0
}

// fail gives up what waits for a client that is gone. The loop ends the
// connection. c.mu is held.
func (c *Conn) dropOutput(err error) {
	c.writeErr = os.NewSyscallError("write", err)
	c.out, c.blocked = outbox{}, false
	_ = c.session.mux.wake() // fails for joining connections only
}
