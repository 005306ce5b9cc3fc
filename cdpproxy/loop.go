package cdpproxy

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readChunk is the least room for one read of the pipe, and what is read of
	// a client at once.
	readChunk = 64 << 10
	// largestRead is how far the pipe's buffer grows before a message needs it:
	// what a pipe holds.
	largestRead = 1 << 20
)

// loop is the one reader of a browser's pipe and of the sockets of its
// connections: a thread that waits for all of them. Passing a message on takes no
// other, and so no wake-up but the kernel's. Nothing here may block: what does is
// left to a goroutine, while the connection that it belongs to is not read.
type loop struct {
	m     *Mux
	conns []*Conn
	fds   []unix.PollFd // the wake-up, the pipe, and then the conns'

	in   []byte // what a client sent
	pipe []byte // what the browser sent; it begins with a message
	none int    // bytes of pipe that are known to hold no end of a message
	// early says that the zero byte of the last message is still to come.
	early bool

	spin  spinner
	hurry hurry
}

// run serves until the pipe has ended and the last connection with it. Another
// run begins where a connection is served after that.
func (m *Mux) run() {
	l := &loop{m: m, in: make([]byte, readChunk), pipe: make([]byte, 0, readChunk)}
	for l.gather() {
		l.wait()
		l.turn()
	}
}

// fixed are the descriptors that come before the connections'.
const fixed = 2

// gather makes the list of what to wait for. It is false when there is nothing
// left and the loop has ended.
func (l *loop) gather() bool {
	m := l.m
	m.waking.Lock()
	l.conns = append(l.conns, m.joining...)
	m.joining = nil
	if m.stopped {
		l.pipeEnded()
	}
	over := m.events < 0 && len(l.conns) == 0
	if over {
		_ = unix.Close(m.wakeup)
		m.wakeup = -1
	}
	m.waking.Unlock()
	if over {
		return false
	}
	// A negative descriptor is not waited for.
	l.fds = append(l.fds[:0], unix.PollFd{Fd: int32(m.wakeup), Events: unix.POLLIN}, unix.PollFd{Fd: int32(m.events), Events: unix.POLLIN})
	for _, c := range l.conns {
		l.fds = append(l.fds, c.interest())
	}
	return true
}

// wait returns when something is ready or due.
func (l *loop) wait() {
	m := l.m
	awaited := m.awaited.Load()
	asked := m.asked
	m.asked = false
	if asked {
		l.hurry.asked = time.Now()
	}
	if asked && awaited > 0 && awaited <= spinAwaited && l.spin.wait(l.fds) {
		return
	}
	if rest := l.hurry.pause(); rest > 0 && m.events >= 0 {
		l.fds[1].Fd = -1 // the pipe fills for a moment
		pause := unix.NsecToTimespec(int64(rest))
		if n, err := unix.Ppoll(l.fds, &pause, nil); n == 0 && err == nil {
			l.fds[1].Revents = unix.POLLIN // it is tried
		}
		return
	}
	if l.early {
		// Its writer may only need this processor: a sleep would be a short one.
		l.early = false
		if yield(); pollNow(l.fds) {
			return
		}
	}
	timeout := -1
	now := time.Now()
	for _, c := range l.conns {
		if at, ok := c.due(); ok {
			left := max(0, int(at.Sub(now)/time.Millisecond)+1)
			if timeout < 0 || left < timeout {
				timeout = left
			}
		}
	}
	if _, err := unix.Poll(l.fds, timeout); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
		// Out of memory: nothing is lost, and it is tried again.
		time.Sleep(time.Millisecond)
	}
}

// turn serves what is ready.
func (l *loop) turn() {
	const readable = unix.POLLIN | unix.POLLHUP | unix.POLLERR | unix.POLLNVAL
	if l.fds[0].Revents != 0 {
		l.m.drainWakeup()
	}
	if l.fds[1].Revents&readable != 0 {
		l.m.routing.Store(true)
		l.readPipe()
		l.m.flush()
		l.m.routing.Store(false)
	}
	left := l.conns[:0]
	for i, c := range l.conns {
		events := l.fds[fixed+i].Revents
		if events&(unix.POLLOUT|unix.POLLHUP|unix.POLLERR) != 0 {
			c.writable()
		}
		c.turn(l, events&readable != 0)
		if c.phase != over {
			left = append(left, c)
		}
	}
	clear(l.conns[len(left):])
	l.conns = left
}

// readPipe takes what the browser wrote, and routes every whole message.
func (l *loop) readPipe() {
	if free := cap(l.pipe) - len(l.pipe); free < readChunk {
		l.pipe = append(make([]byte, 0, 2*cap(l.pipe)), l.pipe...)
	}
	n, err := unix.Read(l.m.events, l.pipe[len(l.pipe):cap(l.pipe)])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil || n == 0:
		l.m.waking.Lock()
		l.pipeEnded()
		l.m.waking.Unlock()
		return
	}
	l.m.reads.Add(1)
	full := len(l.pipe)+n == cap(l.pipe)
	l.pipe = l.pipe[:len(l.pipe)+n]
	rest := l.pipe
	kept, messages := false, 0
	for {
		end := bytes.IndexByte(rest[l.none:], 0)
		if end < 0 {
			l.none = len(rest)
			break
		}
		if l.none+end > 0 {
			kept = l.m.route(rest[:l.none+end]) || kept
			messages++
		}
		rest, l.none = rest[l.none+end+1:], 0
	}
	if l.early = whole(rest); l.early {
		_ = l.m.route(rest) // too small to be kept
		rest, l.none = nil, 0
		messages++
	}
	l.hurry.read(messages, l.m.answered, l.m.relayed || l.m.replied, l.m.awaited.Load())
	l.m.answered, l.m.relayed, l.m.replied = false, false, false
	switch {
	case kept:
		// A connection writes out of the buffer: it is that connection's now.
		l.pipe = append(make([]byte, 0, max(readChunk, len(rest))), rest...)
	case len(rest) < len(l.pipe):
		l.pipe = l.pipe[:copy(l.pipe[:cap(l.pipe)], rest)]
		if cap(l.pipe) > 4*largestRead && len(l.pipe) < readChunk {
			l.pipe = append(make([]byte, 0, readChunk), l.pipe...)
		}
	}
	// A browser that fills the buffer gets a larger one: fewer wake-ups.
	if full && cap(l.pipe) < largestRead {
		l.pipe = append(make([]byte, 0, 2*cap(l.pipe)), l.pipe...)
	}
}

// earlyMessage is up to which size, in bytes, a message is looked at before its end
// is marked.
const earlyMessage = 16 << 10

// whole tells whether b is a message that only lacks the zero byte behind it.
// Chrome writes that by itself, later: waiting for it would cost a second wake-up
// for each message. No JSON object is the beginning of another.
func whole(b []byte) bool {
	return len(b) > 1 && len(b) <= earlyMessage && b[len(b)-1] == '}' && value(b, 0) == len(b)
}

// pipeEnded refuses what comes now. m.waking is held.
func (l *loop) pipeEnded() {
	m := l.m
	if m.events < 0 {
		return
	}
	_ = unix.Close(m.events)
	m.events = -1
	l.pipe = nil
	m.end(ErrBrowserGone)
}

// wake has the loop look around. It begins another where the last one ended.
func (m *Mux) wake(joining ...*Conn) error {
	m.waking.Lock()
	defer m.waking.Unlock()
	m.joining = append(m.joining, joining...)
	if m.wakeup < 0 {
		if len(joining) == 0 {
			return nil
		}
		fd, err := newWakeup()
		if err != nil {
			m.joining = nil
			return err
		}
		m.wakeup = fd
		go m.run()
		return nil
	}
	// A counter that is full wakes as well.
	_, _ = unix.Write(m.wakeup, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return nil
}

func newWakeup() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("a descriptor to wake the reader of the browser's pipe: %w", err)
	}
	return fd, nil
}

func (m *Mux) drainWakeup() {
	var count [8]byte
	_, _ = unix.Read(m.wakeup, count[:])
}

// How long a loop asks again and again before it lets the kernel wake it. That
// is only worth it while an answer is awaited, and only if answers do come that
// fast: after spins in vain, most are left out.
const (
	spinFor     = 400 * time.Microsecond
	spinAwaited = 2 // with more in flight, throughput counts
	spinTrust   = 8
	spinProbe   = 16
)

// spinning is how many loops of this process spin, of at most maxSpinning: with
// more the browsers would not get a processor.
var spinning atomic.Int32

var maxSpinning = int32(max(1, runtime.GOMAXPROCS(0)-1))

type spinner struct {
	trust   int // up to spinTrust; spins in vain lower it
	skipped int
}

// wait spins if that may be worth it, and tells whether something is ready.
func (s *spinner) wait(fds []unix.PollFd) bool {
	if s.trust <= 0 {
		if s.skipped++; s.skipped < spinProbe {
			return false
		}
		s.skipped = 0
	}
	defer spinning.Add(-1)
	if spinning.Add(1) > maxSpinning {
		return false
	}
	for begun := time.Now(); ; {
		if pollNow(fds) {
			s.trust = min(s.trust+1, spinTrust)
			return true
		}
		// Chrome may need this processor for the answer.
		yield()
		if time.Since(begun) > spinFor {
			s.trust = max(s.trust-2, 0)
			return false
		}
	}
}

// A browser that writes many messages one by one pays for waking its reader each
// time, and so do the reader and the client. Where they come that fast, the pipe
// is left alone between reads.
const (
	hurryGap    = 300 * time.Microsecond // between reads, at most, to count as fast
	hurryReads  = 16                     // fast reads in a row
	hurryPause  = 150 * time.Microsecond // at first; it doubles while it is worth it
	longestRest = time.Millisecond
	hurryWindow = 16 // commands in flight from which on answers may wait as well
	// The launcher's own events wait for each other for ownRest at most, and where a
	// client awaits an answer, for no more than a part of what it has waited.
	ownRest = 2 * time.Millisecond
	ownPart = 8
)

// hurry tells when the browser's messages come fast.
type hurry struct {
	last  time.Time
	fast  int           // reads in a row
	rest  time.Duration // before each read; 0: none
	due   bool          // a rest is, before the next read
	taken bool          // it was
	asked time.Time     // when a client's last command was seen
}

// read notes a read of the pipe: how many messages it brought, whether there was an
// answer to a client among them, and anything that somebody may wait for: whatever is
// for a client, and answers to the launcher's own calls. A client that waits for an
// answer before it goes on is not kept waiting. What only the launcher listens to, the
// requests of a page that loads, is fetched together; a large message is not that.
func (h *hurry) read(messages int, answered, wanted bool, awaited int32) {
	now := time.Now()
	gap := now.Sub(h.last)
	fast := gap < hurryGap
	h.last = now
	switch {
	case !wanted && messages > 0 && now.Sub(h.asked) > ownPart*hurryPause && (gap < ownRest || h.taken && messages > 1):
		h.fast, h.rest = 0, min(ownRest, now.Sub(h.asked)/ownPart)
	case answered && awaited < hurryWindow:
		h.fast, h.rest = 0, 0
	case h.taken && messages < 2:
		h.fast, h.rest = 0, 0
	case h.taken && !answered:
		h.rest = min(2*h.rest, longestRest)
	case h.rest > 0:
		h.rest = hurryPause
	case fast:
		if h.fast++; h.fast >= hurryReads {
			h.rest = hurryPause
		}
	default:
		h.fast = 0
	}
	h.due, h.taken = h.rest > 0, false
}

// pause returns, once after each read, for how long the pipe is to be left alone.
func (h *hurry) pause() time.Duration {
	if !h.due {
		return 0
	}
	h.due, h.taken = false, true
	return h.rest
}
