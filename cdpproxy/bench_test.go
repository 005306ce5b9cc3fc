package cdpproxy

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func BenchmarkScan(b *testing.B) {
	for name, msg := range map[string]string{
		"small": `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"1+1","returnByValue":true},"sessionId":"0123456789ABCDEF0123456789ABCDEF"}`,
		"large": `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"'` + strings.Repeat("x", 4<<20) + `'.length"}}`,
		"text":  `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"` + strings.Repeat(`let a = \"b\";\n`, 1<<14) + `"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			raw := []byte(msg)
			for b.Loop() {
				if _, err := scan(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnmask(b *testing.B) {
	payload := make([]byte, 1<<20)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		unmask(payload, [4]byte{1, 2, 3, 4})
	}
}

// roundTrip returns a function that takes one command from a client's frame to the
// pipe, and an event and the reply from the pipe's buffer to the client's socket.
func roundTrip(tb testing.TB) func() {
	tb.Helper()
	m := newOffline(tb)
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = errors.Join(unix.Close(sockets[0]), unix.Close(sockets[1])) })
	s := newClientSession(m.mux, "S", 1)
	c := &Conn{
		session: s, fence: openFence(), fd: sockets[0], ended: make(chan End, 1), handler: noHandler{},
		pending: map[string]map[int64]*continuedRequest{"": {}}, leaseSessions: map[string]bool{}, suffix: []byte(`,"sessionId":"S"}`),
	}
	s.conn = c
	m.mux.sessions.add("S", s)
	m.mux.sessions.opened("P", "S", s, targetInfo{TargetID: "T", Type: "page"})
	frame := clientFrame(0x81, `{"id":7,"method":"Runtime.evaluate","params":{"expression":"1+1"},"sessionId":"P"}`)
	event := `{"method":"Network.requestWillBeSent","params":{"request":{"url":"http://a/","method":"GET"}},"sessionId":"P"}`
	reply := `{"id":7,"result":{"result":{"type":"number","value":2}},"sessionId":"P"}`
	const header = 2 // bytes of a short frame to the client
	in, out := make([]byte, 0, 1<<10), make([]byte, 1<<10)
	return func() {
		c.handleInput(append(in[:0], frame...), false)
		if n, err := unix.Read(m.commands, out); err != nil || n < len(reply) {
			tb.Fatalf("the browser got %q, %v", out[:max(n, 0)], err)
		}
		m.mux.route(append(in[:0], event...))
		m.mux.route(append(in[:0], reply...))
		m.mux.flush()
		if n, err := unix.Read(sockets[1], out); err != nil || n != header+len(event)+header+len(reply) {
			tb.Fatalf("the client got %q, %v", out[:max(n, 0)], err)
		}
	}
}

func TestARoundTripAllocatesNothing(t *testing.T) {
	one := roundTrip(t)
	for range 2 * commandLogLength { // until the command log has its full length
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	one := roundTrip(b)
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
}
