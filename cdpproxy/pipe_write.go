package cdpproxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy/acts"
	"leasehold/internal/boottime"
	"leasehold/lease"
)

// smallMessage is the largest message, in bytes, that is copied so that it can be sent in one
// write together with others: each write may wake the browser.
const smallMessage = 32 << 10

// send writes one message to the pipe, and blocks while the pipe is full. If there is a fence, the
// message is written only while the fence is open: the check and the write are one step.
func (m *Mux) send(fence *lease.Fence, message []byte) error {
	return m.sendIf(nil, fence, nil, message, nil)
}

var errTooLong = errors.New("not sent: a message of 100 MiB would end the browser's pipe")

// sendIf is send for a message of up to two parts that is written only if allowed returns no error in
// the same step. allowed may be nil. passing is the command in the message, unless the launcher sends
// it for itself.
func (m *Mux) sendIf(allowed func() error, fence *lease.Fence, passing []stagedCommand, head, tail []byte) error {
	if len(head)+len(tail) >= tooLong {
		return errTooLong
	}
	m.writing.Lock()
	if err := m.sendPosted(); err != nil {
		m.writing.Unlock()
		if fence != nil {
			return cmp.Or(fence.Check(), err) // if it has shut meanwhile, that is why
		}
		return err
	}
	if allowed != nil {
		if err := allowed(); err != nil {
			m.writing.Unlock()
			return err
		}
	}
	m.scratch = m.scratch[:0]
	if len(head) <= smallMessage {
		m.scratch = append(append(append(m.scratch, head...), tail...), 0)
		head, tail = nil, nil
	} else {
		tail = append(tail, 0)
	}
	rest, err := m.begin(fence, passing, head, tail)
	if err != nil || len(rest) == 0 {
		m.writing.Unlock()
		return err
	}
	_, err = m.finish(fence, rest, passing)
	return err
}

// begin checks the fence, if there is one, and writes scratch, head and tail as far as the pipe
// takes them at once. passing are the commands in them. It returns the rest for finish; nobody else
// may write before finish is called. The caller holds m.writing.
func (m *Mux) begin(fence *lease.Fence, passing []stagedCommand, head, tail []byte) (rest [][]byte, err error) {
	if fence != nil {
		if m.passedAt, err = fence.CheckAt(); err != nil {
			return nil, err
		}
	}
	m.passed(m.passedAt, passing)
	parts := [...][]byte{m.scratch, head, tail}
	n, err := m.write(parts[:]...)
	if err != nil {
		return nil, pipeError(err)
	}
	for _, part := range parts {
		if n >= len(part) {
			n -= len(part)
			continue
		}
		rest = append(rest, part[n:])
		n = 0
	}
	return rest, nil
}

// passed is told of every command of a client, and of every call on behalf of a lease, that passes
// the fence: before the browser can get it, so that what the browser reports of its effect comes
// later. If the pipe was full, it is told again when the browser can have all of it. The caller
// holds m.writing.
func (m *Mux) passed(at boottime.Instant, commands []stagedCommand) {
	for i := range commands {
		c := &commands[i]
		m.acts.Sent(at, acts.Command{Session: c.session, Method: c.method, Params: c.params, Listed: c.listed})
	}
	m.endsListening(commands)
	m.lookIfLetRun(commands...)
}

// spoiler ends a message of which only a part is in the pipe, so that it is none: not even if all of it was
// there, but for the zero byte.
var spoiler, zeroByte = []byte{'!', 0}, []byte{0}

// finish writes the rest of a message, however long that takes but only while the fence is open, and lets
// others write. fence and passing are what begin got. A message that cannot be finished is spoiled before
// anything else is written; unsent is how many do not reach the browser, of the last ones.
func (m *Mux) finish(fence *lease.Fence, rest [][]byte, passing []stagedCommand) (unsent int, err error) {
	defer m.writing.Unlock()
	for i, part := range rest {
		for len(part) > 0 {
			n, err := m.writeMore(fence, part)
			if err != nil {
				m.spoil()
				for _, left := range append(rest[i+1:], part) {
					unsent += bytes.Count(left, zeroByte)
				}
				return unsent, err
			}
			part = part[n:]
		}
	}
	m.passed(boottime.Now(), passing)
	return 0, nil
}

// spoil has the end of what is half written sent before anything else.
func (m *Mux) spoil() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.posts = append([][]byte{spoiler}, m.posts...)
	if m.endCause == nil {
		m.callPoster()
	}
}

// writeMore writes a part of a message as far as the pipe takes it, if its fence is still open, and waits
// for a moment if that is not at all.
func (m *Mux) writeMore(fence *lease.Fence, part []byte) (n int, err error) {
	if fence != nil {
		if err := fence.Check(); err != nil {
			return 0, err
		}
	}
	n, err = m.write(part)
	if err == nil && n == 0 {
		err = m.awaitRoom()
	}
	return n, pipeError(err)
}

// write makes one attempt to write the parts, and returns how many bytes the pipe took. The
// caller holds m.writing.
func (m *Mux) write(parts ...[]byte) (int, error) {
	if m.commands < 0 {
		return 0, os.ErrClosed
	}
	n, err := writeParts(m.commands, parts...)
	m.wrote()
	return n, err
}

// roomSlice is the longest time that a writer waits for room before it checks again for the
// limit of writes, and for the end of the Mux.
const roomSlice = 20 * time.Millisecond

// awaitRoom waits for a moment until the pipe takes more. It fails if the Mux has ended, or the
// limit of writes has passed. The caller holds m.writing.
func (m *Mux) awaitRoom() error {
	if by := m.writeBy.Load(); by != nil && time.Now().After(*by) {
		return os.ErrDeadlineExceeded
	}
	m.mu.Lock()
	ended := m.endCause
	m.mu.Unlock()
	if ended != nil {
		return ended
	}
	return m.poll([]unix.PollFd{{Fd: int32(m.commands), Events: unix.POLLOUT}}, int(roomSlice/time.Millisecond))
}

// LimitWrites says that nobody waits for a browser that does not read once d has passed: a write
// that is waiting then fails, and so does each later one for which the pipe has no room. What a
// browser takes at once is written whenever it comes. Zero removes the limit.
func (m *Mux) LimitWrites(d time.Duration) {
	if d <= 0 {
		m.writeBy.Store(nil)
		return
	}
	by := time.Now().Add(d)
	m.writeBy.Store(&by)
}

// closeCommands closes the launcher's end when no message is being written.
func (m *Mux) closeCommands() {
	m.writing.Lock()
	defer m.writing.Unlock()
	_ = unix.Close(m.commands)
	m.commands = -1
	m.wrote()
}

// writeParts writes what the descriptor takes at once, in one system call. n is 0 if it takes
// nothing now.
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
