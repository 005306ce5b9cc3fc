package sockets

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestWhatIsNotReadIsUnderWay: bytes count from their writing until the server has read them.
func TestWhatIsNotReadIsUnderWay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	is := func(want func(uint64) bool, what string) {
		t.Helper()
		var n uint64
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if n, err = UnderWay("http://" + l.Addr().String() + "/"); err != nil {
				t.Fatal(err)
			}
			if want(n) {
				return
			}
		}
		t.Fatalf("%s: %d are under way", what, n)
	}
	none, some := func(n uint64) bool { return n == 0 }, func(n uint64) bool { return n > 0 }
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	is(some, "a connection that is not accepted")
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	is(none, "an idle connection")
	if _, err := c.Write([]byte("four")); err != nil {
		t.Fatal(err)
	}
	is(some, "four bytes that nobody has read")
	if _, err := io.ReadFull(server, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	is(none, "bytes that were read")
}
