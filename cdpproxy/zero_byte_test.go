package cdpproxy

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestAZeroByteIsNoMessage: the one that Chrome writes behind a message that was passed on
// early delays nothing, as a message would that only the launcher listens to.
func TestAZeroByteIsNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOffline(t)
		c := b.conn()
		c.session.conn = c
		var events [2]int
		if err := unix.Pipe2(events[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(unix.Close(events[1]), unix.Close(events[0])) })
		b.mux.events = events[0]
		l := &loop{m: b.mux, pipe: make([]byte, 0, readChunk)}
		l.pacer.lastCommand = time.Now().Add(-time.Minute)
		for _, part := range []string{`{"method":"Test.event","params":{},"sessionId":"S"}`, "\x00"} {
			if _, err := unix.Write(events[1], []byte(part)); err != nil {
				t.Fatal(err)
			}
			l.readPipe()
			if delay := l.pacer.nextDelay(); delay != 0 {
				t.Errorf("behind %q the pipe is left alone for %v", part, delay)
			}
		}
		if c.out.size == 0 {
			t.Error("the message was not passed on")
		}
	})
}
