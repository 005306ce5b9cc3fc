package rawcdp

import (
	"net"
	"syscall"
	"testing"

	"github.com/gobwas/ws"
)

// deaf is a connection whose other side takes nothing any more.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestTheEndIsToldByWhoIsGone: the close frame of a side that does not wait for the answer is read.
func TestTheEndIsToldByWhoIsGone(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := On(deaf{near})
	frame := ws.NewCloseFrame(ws.NewCloseFrameBody(4409, "token 1 superseded by 2"))
	if err := ws.WriteFrame(far, frame); err != nil {
		t.Fatal(err)
	}
	if code, reason, err := c.Ended(t.Context()); code != 4409 || reason != "token 1 superseded by 2" || err != nil {
		t.Errorf("closed with %d %q, %v", code, reason, err)
	}
}
