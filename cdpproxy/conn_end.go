package cdpproxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// The close codes of the public contract.
const (
	CloseNormal       = 1000
	CloseBadData      = 1003
	CloseTooSlow      = 1008
	CloseTooBig       = 1009
	CloseExpired      = 4408
	CloseFenced       = 4409
	CloseQuarantined  = 4410
	CloseCrashed      = 4411
	CloseShuttingDown = 4503
)

const (
	// cutTimeout is how long a client that was cut off may take to read the reason and
	// to answer the close frame.
	cutTimeout = 2 * time.Second
	// refuseTimeout is for a client that was refused while it was still sending. Whenever it
	// sends more, it gets another cutTimeout, until this time has passed.
	refuseTimeout = 10 * time.Second
)

// End is how a connection ended.
type End struct {
	// Clean says that the client began the close handshake, or that the connection's target was
	// closed.
	Clean bool
	// Cut says that the launcher ended it.
	Cut bool
	// Err is why it ended in another way: the client broke the protocol or left without the
	// handshake, or the connection could not be served.
	Err error
}

// Closing tells whether the connection ends cleanly: see End. This is known before the client reads that
// it ends, and may be before Serve returns.
func (c *Conn) Closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends()
}

// ends is Closing. The caller holds c.mu.
func (c *Conn) ends() bool { return c.end.Clean || c.targetClosed }

// Cut ends the connection from the launcher's side: each command in flight gets one error with
// the reason, and the close frame follows at once. code is one of the close codes. The client
// gets at most 123 bytes of the reason.
func (c *Conn) Cut(code int, reason string) {
	c.mu.Lock()
	c.cutLocked(code, reason)
	c.mu.Unlock()
	c.flush()
}

// cutLocked is Cut without the flush. The caller holds c.mu.
func (c *Conn) cutLocked(code int, reason string) {
	if c.cut {
		return
	}
	for sessionID, ids := range c.pending {
		if c.closingBrowser {
			break // the client asked for the end: Chrome would not answer these commands either
		}
		for id := range ids {
			r := ownReply{ID: &id, Error: &Error{codeServer, "leasehold: " + reason}, SessionID: sessionID}
			if msg, err := json.Marshal(r); err == nil {
				c.out.add(ws.OpText, msg)
			}
		}
	}
	c.cutLater(reason)
	c.forgetPending()
	c.tellTargets()
	if c.closeFrames {
		c.out.add(ws.OpClose, ws.NewCloseFrameBody(ws.StatusCode(code), clipReason(reason)))
	}
	c.cut = true
	if c.fd >= 0 {
		c.startEndTimeout()
		_ = c.session.mux.wake() // for the deadline; this can only fail for a joining connection
	}
}

// tooSlow cuts off a client for which more than MaxQueued bytes wait. The caller holds c.mu.
func (c *Conn) tooSlow() bool {
	if c.out.size <= MaxQueued {
		return false
	}
	c.cutLocked(CloseTooSlow, fmt.Sprintf("the client does not read: more than %d bytes wait for it", MaxQueued))
	return true
}

// startEndTimeout limits how long the rest of a connection may take that was cut or is ending.
// The caller holds c.mu.
func (c *Conn) startEndTimeout() {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(cutTimeout)
	}
}

// clipReason shortens a close reason to what fits into a close frame.
func clipReason(s string) string {
	const longest = 123
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "")
	}
	return s
}

// enterWith is enter with a last frame for the client, who reads it only when the end is known.
func (c *Conn) enterWith(to phase, end End, closeFrame []byte) {
	c.mu.Lock()
	c.pushLocked(ws.OpClose, closeFrame)
	c.enterLocked(to, end)
	c.mu.Unlock()
	c.flush()
}

// enter moves the connection to a later phase. If it is ended several times, the first end
// counts.
func (c *Conn) enter(to phase, end End) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enterLocked(to, end)
}

// enterLocked is enter. The caller holds c.mu.
func (c *Conn) enterLocked(to phase, end End) {
	if c.phase == reading {
		c.end = end
		if c.end.Cut = c.cut; c.targetClosed {
			c.end = End{Clean: true}
		}
		c.cut = true
		c.forgetPending()
		c.startEndTimeout()
	}
	c.phase = to
}
