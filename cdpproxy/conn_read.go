package cdpproxy

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

// interest returns what the loop has to wait for on the socket.
func (c *Conn) interest() unix.PollFd {
	p := unix.PollFd{Fd: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked {
		p.Events |= unix.POLLOUT
	}
	if c.phase <= discarding && !c.busy.Load() {
		p.Events |= unix.POLLIN
	}
	if p.Events != 0 {
		p.Fd = int32(c.fd)
	}
	return p
}

// due returns when the loop has to look at the connection even if nothing is ready.
func (c *Conn) due() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero() && !c.busy.Load()
}

// turn is the connection's part of one turn of the loop: it reads what the client sent, and
// ends the connection if that is due.
func (c *Conn) turn(l *loop, readable bool) {
	if c.busy.Load() {
		return
	}
	if c.unread {
		c.unread = false
		c.handleInput(c.in, true)
	}
	if readable && c.phase <= discarding && !c.busy.Load() {
		c.read(l.in)
	}
	if c.busy.Load() {
		return
	}
	c.mu.Lock()
	writeErr, queued, cut := c.writeErr, c.out.size > 0, c.cut
	late := !c.deadline.IsZero() && !time.Now().Before(c.deadline)
	c.mu.Unlock()
	switch {
	case writeErr != nil:
		c.enter(over, End{Err: writeErr})
	case late:
		c.enter(over, End{Err: os.ErrDeadlineExceeded})
	case c.phase == draining && !queued:
		c.enter(over, End{})
	case (c.phase == discarding || cut && !c.closeFrames) && !queued && !c.writeShut:
		// This shows the client that nothing more will come, so that it closes too.
		c.writeShut = true
		_ = unix.Shutdown(c.fd, unix.SHUT_WR) // fails if the client is gone already
	}
	if c.phase == over {
		c.ended <- c.end
	}
}

// read reads what the client sent, and handles it. It reads into shared, unless c.in has the
// beginning of a frame.
func (c *Conn) read(shared []byte) {
	into := shared
	owned := len(c.in) > 0 && c.phase == reading
	if owned {
		const least = 4 << 10
		c.in = slices.Grow(c.in, max(least, c.frameLen-len(c.in)))
		into = c.in[len(c.in):cap(c.in)]
	}
	n, err := unix.Read(c.fd, into)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil:
		c.enter(draining, End{Err: os.NewSyscallError("read", err)})
	case n == 0:
		c.enter(draining, End{Err: io.EOF})
	case c.phase == discarding:
		c.mu.Lock()
		if now := time.Now(); now.Before(c.refusedAt.Add(refuseTimeout - cutTimeout)) {
			c.deadline = now.Add(cutTimeout)
		}
		c.mu.Unlock()
	case owned:
		c.handleInput(c.in[:len(c.in)+n], true)
	default:
		c.handleInput(into[:n], false)
	}
}

// handleInput handles the complete frames at the beginning of b, and keeps the bytes after
// them. If owned is set, b belongs to the connection; otherwise it is valid only until
// handleInput returns.
func (c *Conn) handleInput(b []byte, owned bool) {
	rest, stopped := c.handleFrames(b, owned)
	c.commit()
	c.keepRest(rest, owned, stopped)
}

// handleFrames handles the complete frames at the beginning of b, and returns the bytes after
// them. stopped says that it stopped because the connection had become busy, so that these
// bytes may begin with a complete frame. The caller must not use busy to find that out: the
// work may already be done by then.
func (c *Conn) handleFrames(b []byte, owned bool) (rest []byte, stopped bool) {
	c.frameLen = 0
	for c.phase == reading {
		if c.busy.Load() {
			return b, true
		}
		f, whole, bad := parseFrame(b, c.fragmentsLen())
		if bad != nil {
			c.refuse(bad)
		}
		if !whole {
			break
		}
		if length := f.size + f.length; len(b) < length {
			c.frameLen = length
			break
		}
		payload := b[f.size : f.size+f.length]
		b = b[f.size+f.length:]
		unmask(payload, f.mask)
		switch {
		case f.op == ws.OpClose:
			c.handleClose(payload)
		case f.op == ws.OpPing:
			c.push(ws.OpPong, payload)
			c.flush()
		case f.op == ws.OpPong:
		case f.fin && !c.inFragments:
			c.dispatch(payload, owned)
		default:
			c.fragments, c.inFragments = append(c.fragments, payload...), true
			if f.fin {
				msg := c.fragments
				c.fragments, c.inFragments = nil, false
				c.dispatch(msg, true)
			}
		}
	}
	return b, false
}

func (c *Conn) keepRest(b []byte, owned, stopped bool) {
	c.unread = stopped && len(b) > 0
	switch {
	case len(b) == 0 || c.phase != reading:
		c.in = nil
	case owned && (cap(b) <= largestRead || c.frameLen > readChunk):
		c.in = b
	default:
		c.in = append(make([]byte, 0, max(c.frameLen, 2*len(b))), b...)
	}
}

// fragmentsLen returns how many bytes of a message in fragments have come; -1 if no
// such message has begun.
func (c *Conn) fragmentsLen() int {
	if !c.inFragments {
		return -1
	}
	return len(c.fragments)
}

// handleClose answers the client's close frame.
func (c *Conn) handleClose(payload []byte) {
	answer, bad := closeAnswer(payload)
	if bad != nil {
		c.refuse(bad)
		return
	}
	c.enterWith(draining, End{Clean: true}, answer)
}

// refuse closes the connection of a client that broke the protocol. What the client sends until
// it closes too is still read, and discarded: closing a socket with unread bytes would reset
// it, and the client could not read the reason.
func (c *Conn) refuse(v *violation) {
	c.refusedAt = time.Now()
	if !c.closeFrames {
		c.enter(discarding, End{Err: v})
		c.flush()
		return
	}
	c.enterWith(discarding, End{Err: v}, ws.NewCloseFrameBody(v.code, clipReason(v.reason)))
}
