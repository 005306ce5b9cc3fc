package cdpproxy

import (
	"bytes"
	"testing"
)

// TestFramesBehindAHandledCommandAreNotForgotten: at a command for the handler the
// connection stops handling frames until the command is answered. That may happen before
// the frames behind it are put away. They are handled all the same, without waiting for
// the client to send more.
func TestFramesBehindAHandledCommandAreNotForgotten(t *testing.T) {
	c, answer := newOffline(t).conn(), make(chan struct{})
	c.handler = slowLease{answer: answer} // else the command may be done before the next frame is looked at
	rest, held := c.handleFrames(bytes.Join([][]byte{clientFrame(0x81, `{"id":1,"method":"Lease.a"}`), clientFrame(0x81, `{"id":2,"method":"m"}`)}, nil), false)
	close(answer)
	c.offloading.Wait()
	c.keepRest(rest, false, held)
	if !c.unread || len(c.in) == 0 {
		t.Errorf("unread is %v, with %d bytes kept", c.unread, len(c.in))
	}
}
