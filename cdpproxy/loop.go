package cdpproxy

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// loop is the one reader of a browser's pipe and of the sockets of its
// connections: a thread that waits for all of them. Passing a message on takes no
// other, and so no wake-up but the kernel's. Nothing here may block: what does is
// left to a goroutine, while the connection that it belongs to is not read.
type loop struct {
	m     *Mux
	conns []*Conn
	fds   []unix.PollFd // the wake-up, the pipe, and then the conns'

	in      []byte // what a client sent
	pipe    []byte // what the browser sent; it begins with a message
	scanned int    // bytes of pipe that are known to hold no end of a message
	// early says that the zero byte of the last message is still to come.
	endPending bool

	spin  spinner
	pacer readPacer
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
const fixedDescriptors = 2

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
	awaited := m.inFlight.Load()
	asked := m.commandSent
	m.commandSent = false
	if asked {
		l.pacer.lastCommand = time.Now()
	}
	if asked && awaited > 0 && awaited <= spinAwaited && l.spin.wait(l.fds) {
		return
	}
	if rest := l.pacer.nextDelay(); rest > 0 && m.events >= 0 {
		l.fds[1].Fd = -1 // the pipe fills for a moment
		pause := unix.NsecToTimespec(int64(rest))
		if n, err := unix.Ppoll(l.fds, &pause, nil); n == 0 && err == nil {
			l.fds[1].Revents = unix.POLLIN // it is tried
		}
		return
	}
	if l.endPending {
		// Its writer may only need this processor: a sleep would be a short one.
		l.endPending = false
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
		events := l.fds[fixedDescriptors+i].Revents
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
