package cdpproxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// The close codes of the outside contract.
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
	// cutGrace is how long a client that was cut off may take to read the
	// reason and to answer the close frame. One that was refused in the middle
	// of what it says may take it again after each part, up to refuseGrace.
	cutGrace    = 2 * time.Second
	refuseGrace = 10 * time.Second
)

// End is how a connection ended.
type End struct {
	// Clean says that the client began the close handshake.
	Clean bool
	// Cut says that the launcher ended it.
	Cut bool
	Err error
}

// Cut ends the connection from our side: each command in flight gets one error
// with the reason, and the close frame follows at once.
func (c *Conn) Cut(code int, reason string) {
	c.mu.Lock()
	c.cutLocked(code, reason)
	c.mu.Unlock()
	c.flush()
}

func (c *Conn) cutLocked(code int, reason string) {
	if c.cut {
		return
	}
	for session, ids := range c.pending {
		if c.closingBrowser {
			break // it asked for the end: Chrome too leaves its commands unanswered
		}
		for id := range ids {
			m := map[string]any{"id": id, "error": &Error{codeServer, "leasehold: " + reason}}
			if session != "" {
				m["sessionId"] = session
			}
			if msg, err := json.Marshal(m); err == nil {
				c.out.add(ws.OpText, msg)
			}
		}
	}
	c.forgetPending()
	c.out.add(ws.OpClose, ws.NewCloseFrameBody(ws.StatusCode(code), clipReason(reason)))
	c.cut = true
	if c.fd >= 0 {
		c.startEndTimeout()
		_ = c.session.mux.wake() // for the deadline; fails for joining connections only
	}
}

// tooSlow cuts off a client for which too much waits already.
func (c *Conn) tooSlow() bool {
	if c.out.size <= MaxQueued {
		return false
	}
	c.cutLocked(CloseTooSlow, fmt.Sprintf("the client does not read: more than %d bytes wait for it", MaxQueued))
	return true
}

// linger bounds what is left of a connection that was cut.
func (c *Conn) startEndTimeout() {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(cutGrace)
	}
}

// clipReason keeps a close reason within what a close frame holds.
func clipReason(s string) string {
	const longest = 123
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "")
	}
	return s
}

// leave goes on to a later phase. The end that is given first counts.
func (c *Conn) enter(to phase, end End) {
	c.mu.Lock()
	if c.phase == reading {
		c.end = end
		c.end.Cut = c.cut
		c.cut = true
		c.forgetPending()
		c.startEndTimeout()
	}
	c.mu.Unlock()
	c.phase = to
}
