package cdpproxy

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// readChunk is the least room for one read of the pipe, and the most that is read from a
	// client at once, in bytes.
	readChunk = 64 << 10
	// largestRead is the size, in bytes, up to which the pipe's buffer grows without a message
	// that needs the room. It is the capacity of a pipe.
	largestRead = 1 << 20
)

// readPipe reads what the browser wrote, and routes every whole message.
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
		end := bytes.IndexByte(rest[l.scanned:], 0)
		if end < 0 {
			l.scanned = len(rest)
			break
		}
		if l.scanned+end > 0 {
			kept = l.m.route(rest[:l.scanned+end]) || kept
			messages++
		}
		rest, l.scanned = rest[l.scanned+end+1:], 0
	}
	if l.endPending = isWholeMessage(rest); l.endPending {
		_ = l.m.route(rest) // it is too small to be kept
		rest, l.scanned = nil, 0
		messages++
	}
	l.pacer.afterRead(messages, l.m.repliedToClient, l.m.sentToClient || l.m.replySeen, l.m.inFlight.Load())
	l.m.repliedToClient, l.m.sentToClient, l.m.replySeen = false, false, false
	switch {
	case kept:
		// A connection writes directly from the buffer, which now belongs to it.
		l.pipe = append(make([]byte, 0, max(readChunk, len(rest))), rest...)
	case len(rest) < len(l.pipe):
		l.pipe = l.pipe[:copy(l.pipe[:cap(l.pipe)], rest)]
		if cap(l.pipe) > 4*largestRead && len(l.pipe) < readChunk {
			l.pipe = append(make([]byte, 0, readChunk), l.pipe...)
		}
	}
	// A browser that fills the buffer gets a larger one, to save wake-ups.
	if full && cap(l.pipe) < largestRead {
		l.pipe = append(make([]byte, 0, 2*cap(l.pipe)), l.pipe...)
	}
}

// maxEarlyMessage is the largest message, in bytes, that may be routed before its zero
// byte has come.
const maxEarlyMessage = 16 << 10

// isWholeMessage tells whether b is a message that only lacks its zero byte. Chrome writes that
// byte separately, a moment later; waiting for it would cost a second wake-up for each message.
// A complete JSON object cannot be the beginning of another one.
func isWholeMessage(b []byte) bool {
	return len(b) > 1 && len(b) <= maxEarlyMessage && b[len(b)-1] == '}' && skipValue(b, 0) == len(b)
}

// pipeEnded closes the launcher's end of the pipe, and refuses further calls. The caller holds
// m.waking.
func (l *loop) pipeEnded() {
	m := l.m
	if m.events < 0 {
		return
	}
	_ = unix.Close(m.events)
	m.events = -1
	m.wrote()
	l.pipe = nil
	m.end(ErrBrowserGone)
}
