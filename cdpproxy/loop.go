package cdpproxy

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// loop is the one reader of a browser's pipe and of the sockets of its connections: one thread
// that waits for all of them. No other thread takes part in passing on a message, so that the
// kernel has to wake only this one. Nothing here may block. Work that may block is left to a
// goroutine (see Conn.offload), and until that is done its connection is not read.
type loop struct {
	m     *Mux
	conns []*Conn
	fds   []unix.PollFd // the wakeup descriptor, the pipe, and then one for each of conns

	in         []byte // room for what is read from a client
	pipe       []byte // what the browser wrote; it begins with a message
	scanned    int    // bytes of pipe that were searched for a message's end in vain
	endPending bool   // the zero byte of the last message is still to come

	spin  spinner
	pacer readPacer
}

// run serves until the pipe and the last connection have ended. Another run begins
// when a connection is served after that (see wake).
func (m *Mux) run() {
	l := &loop{m: m, in: make([]byte, readChunk), pipe: make([]byte, 0, readChunk)}
	for l.gather() {
		l.wait()
		l.turn()
	}
}

// fixedDescriptors is how many come before those of the connections.
const fixedDescriptors = 2

// gather lists the descriptors to wait for. It returns false if nothing is left and the loop
// has ended.
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
	// The kernel ignores a negative descriptor.
	l.fds = append(l.fds[:0], unix.PollFd{Fd: int32(m.wakeup), Events: unix.POLLIN}, unix.PollFd{Fd: int32(m.events), Events: unix.POLLIN})
	for _, c := range l.conns {
		l.fds = append(l.fds, c.interest())
	}
	return true
}

// wait returns when something is ready or due.
func (l *loop) wait() {
	m := l.m
	if m.waiting != nil { // with such a Waiting there is no use in being quick
		l.sleep()
		return
	}
	inFlight := m.inFlight.Load()
	commandSent := m.commandSent
	m.commandSent = false
	if commandSent {
		l.pacer.lastCommand = time.Now()
	}
	if commandSent && inFlight > 0 && inFlight <= spinInFlight && l.spin.wait(l.fds) {
		return
	}
	if delay := l.pacer.nextDelay(); delay > 0 && m.events >= 0 {
		l.fds[1].Fd = -1 // the pipe fills in the meantime
		timeout := unix.NsecToTimespec(int64(delay))
		if n, err := unix.Ppoll(l.fds, &timeout, nil); n == 0 && err == nil {
			l.fds[1].Revents = unix.POLLIN // a read that finds nothing does no harm
		}
		return
	}
	if l.endPending {
		// The browser may only need this processor in order to write the zero byte: sleeping
		// would not be worth it.
		l.endPending = false
		if yield(); pollNow(l.fds) {
			return
		}
	}
	l.sleep()
}

// sleep returns when something is ready, or a connection is due.
func (l *loop) sleep() {
	timeout := -1
	now := time.Now()
	for _, c := range l.conns {
		if at, ok := c.due(); ok {
			ms := max(0, int(at.Sub(now)/time.Millisecond)+1)
			if timeout < 0 || ms < timeout {
				timeout = ms
			}
		}
	}
	if err := l.m.poll(l.fds, timeout); err != nil && !errors.Is(err, unix.EAGAIN) {
		// The kernel is out of memory. Nothing is lost, and the loop tries again.
		time.Sleep(time.Millisecond)
	}
}

// turn serves what is ready, and drops the connections that have ended.
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
	living := l.conns[:0]
	for i, c := range l.conns {
		events := l.fds[fixedDescriptors+i].Revents
		if events&(unix.POLLOUT|unix.POLLHUP|unix.POLLERR) != 0 {
			c.writable()
		}
		c.turn(l, events&readable != 0)
		if c.phase != over {
			living = append(living, c)
		}
	}
	clear(l.conns[len(living):])
	l.conns = living
}

// wake makes the loop look at everything again, and adds the connections that join. If the loop
// has ended, they start another one. Only then can it fail.
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
	// The write fails if the counter is full, which wakes the loop as well.
	_, _ = unix.Write(m.wakeup, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	m.wrote()
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
