package cdpproxy

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// smallMessage is the largest message, in bytes, that is copied so that it goes out in
// one write together with others: each write may wake the browser.
const smallMessage = 32 << 10

// send writes one message, of up to two parts, to the pipe, and blocks while the pipe
// is full. If there is a fence, the message is written only while that is open: the
// check and the write are one step.
func (m *Mux) send(fence *lease.Fence, head, tail []byte) error {
	m.writing.Lock()
	m.scratch = m.scratch[:0]
	if len(head) <= smallMessage {
		m.scratch = append(append(append(m.scratch, head...), tail...), 0)
		head, tail = nil, nil
	} else {
		tail = append(tail, 0)
	}
	rest, err := m.begin(fence, head, tail)
	if err != nil || len(rest) == 0 {
		m.writing.Unlock()
		return err
	}
	return m.finish(rest)
}

// begin checks the fence, if there is one, and writes scratch, head and tail as far as
// the pipe takes them at once. It returns the rest for finish; until that is called
// nobody else may write. m.writing is held.
func (m *Mux) begin(fence *lease.Fence, head, tail []byte) (rest [][]byte, err error) {
	if fence != nil {
		if m.passedAt, err = fence.CheckAt(); err != nil {
			return nil, err
		}
	}
	m.parts, m.written, m.failed = [...][]byte{m.scratch, head, tail}, 0, nil
	defer func() { m.parts = [3][]byte{} }()
	if err := errors.Join(m.rawCommands.Write(m.onWritable), m.failed); err != nil {
		return nil, pipeError(err)
	}
	n := m.written
	for _, part := range m.parts {
		if n >= len(part) {
			n -= len(part)
			continue
		}
		rest = append(rest, part[n:])
		n = 0
	}
	return rest, nil
}

// writeOnce makes one attempt to write m.parts. It is m.onWritable.
func (m *Mux) writeOnce(fd uintptr) bool {
	m.written, m.failed = writeParts(int(fd), m.parts[:]...)
	return true
}

// finish writes the rest of a message, however long that takes, and lets others write.
func (m *Mux) finish(rest [][]byte) error {
	defer m.writing.Unlock()
	for _, part := range rest {
		if _, err := m.commands.Write(part); err != nil {
			return pipeError(err)
		}
	}
	return nil
}

// writeParts writes what the descriptor takes at once, in one system call. n is 0
// where it takes nothing now.
func writeParts(fd int, parts ...[]byte) (n int, err error) {
	only, several := parts[0], false
	for _, part := range parts[1:] {
		if len(part) > 0 {
			several = several || len(only) > 0
			only = part
		}
	}
	for {
		if several {
			n, err = unix.Writev(fd, parts)
		} else {
			n, err = unix.Write(fd, only)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}

func pipeError(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBrowserGone, err)
	}
	return nil
}
