package cdpproxy

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"

	"github.com/gobwas/ws"
)

// largeMessage is the smallest message, in bytes, that is written directly from the buffer into
// which it was read.
const largeMessage = 128 << 10

// deliver queues a message of the browser. The loop calls it, and calls flush when it
// has no more messages. deliver returns true if the connection keeps msg.
func (c *Conn) deliver(parsed browserMessage, msg []byte) (kept bool) {
	own := string(parsed.sessionID) == c.session.defaultID
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	if c.session.hides(parsed.sessionID) {
		if c.session.targetClosed(msg) {
			c.endWithTarget()
		}
		return false
	}
	if parsed.isReply {
		ids := c.pending[string(parsed.sessionID)]
		if own {
			ids = c.pending[""]
		}
		continued, ok := ids[parsed.id]
		if !ok {
			return false // the reply to a command of the launcher's own
		}
		c.settled(ids, parsed)
		if len(c.undiscovering) > 0 {
			c.discoveryAnswered(parsed)
		}
		c.session.mux.repliedToClient = true
		switch {
		case continued != nil && parsed.isError:
			c.session.restorePaused(continued)
		case continued != nil:
			c.session.mux.pipeLog.append(lineSettled, continued.request.sessionID, continued.request.requestID)
		}
	}
	if c.tooSlow() || !parsed.isReply && hiddenWorld(msg) {
		return false
	}
	if own {
		msg[parsed.bodyEnd] = '}'
		msg = msg[:parsed.bodyEnd+1]
	}
	if !parsed.isReply {
		if c.hidesBrowser(msg) {
			return false
		}
		c.noteTarget(parsed, msg)
	}
	msg = c.session.mux.hideObserver(msg, parsed.isReply)
	if len(msg) >= largeMessage && c.out.size == 0 && c.fd >= 0 {
		return c.deliverLarge(msg)
	}
	c.out.add(ws.OpText, msg)
	c.flushLater()
	return false
}

// settled notes that a command was answered. The client may have sent another command with the
// same id meanwhile, which will be answered, too. The caller holds c.mu.
func (c *Conn) settled(ids map[int64]*continuedRequest, parsed browserMessage) {
	if len(c.more) > 0 {
		key := inFlight{string(parsed.sessionID), parsed.id}
		if c.more[key]--; c.more[key] >= 0 {
			return
		}
		delete(c.more, key)
	}
	delete(ids, parsed.id)
	c.session.mux.inFlight.Add(-1)
}

// deliverRefusal queues the answer that a CDP session has ended, for each command with that id
// which the client has sent on such a session. The loop calls it.
func (c *Conn) deliverRefusal(id int64, msg []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sessionID, ids := range c.pending {
		_, ok := ids[id]
		if !ok || c.session.mux.sessions.isOpen(cmp.Or(sessionID, c.session.defaultID)) {
			continue
		}
		c.settled(ids, browserMessage{id: id, sessionID: []byte(cmp.Or(sessionID, c.session.defaultID))})
		c.out.add(ws.OpText, msg)
		c.flushLater()
	}
}

// flushLater makes the loop flush the connection after it has read the pipe. Only the loop
// calls it, holding c.mu.
func (c *Conn) flushLater() {
	if !c.queuedForFlush {
		c.queuedForFlush = true
		c.session.mux.unflushed = append(c.session.mux.unflushed, c)
	}
}

// deliverLarge writes what the socket takes at once. It keeps the rest, without a copy if that
// is large, and tells whether it did so. The caller holds c.mu.
func (c *Conn) deliverLarge(msg []byte) (kept bool) {
	var space [maxHeader]byte
	header := appendHeader(space[:0], ws.OpText, len(msg))
	n, err := writeParts(c.fd, header, msg)
	c.session.mux.wrote()
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

// push queues a frame of the launcher's own. flush has to follow.
func (c *Conn) push(op ws.OpCode, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushLocked(op, payload)
}

// pushLocked is push. The caller holds c.mu.
func (c *Conn) pushLocked(op ws.OpCode, payload []byte) {
	if !c.cut && !c.tooSlow() {
		c.out.add(op, payload)
	}
}

// Notify sends a CDP event on every CDP session on which the client has used the Lease domain.
// On others the client would not expect the event.
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

// flush writes as much of the queue as the socket takes, and leaves the rest to the loop.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queuedForFlush = false
	if c.blocked {
		return
	}
	if c.writeOut(); c.blocked {
		_ = c.session.mux.wake() // this can only fail for a joining connection
	}
}

// writable goes on writing after the socket was full.
func (c *Conn) writable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked {
		c.writeOut()
	}
}

// writeOut writes as much of the queue as the socket takes. The caller holds c.mu.
func (c *Conn) writeOut() {
	if c.fd < 0 || c.out.size == 0 {
		return
	}
	err := c.out.write(c.fd)
	c.session.mux.wrote()
	if err != nil {
		c.dropOutput(err)
		return
	}
	c.blocked = c.out.size > 0
}

// dropOutput discards the queue for a client that is gone. The loop then ends the connection.
// The caller holds c.mu.
func (c *Conn) dropOutput(err error) {
	c.writeErr = os.NewSyscallError("write", err)
	c.out, c.blocked = outbox{}, false
	_ = c.session.mux.wake() // this can only fail for a joining connection
}
