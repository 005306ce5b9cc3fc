package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
	"leasehold/lease"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

// testEffect judges by names of the tests' own.
func testEffect(method, _ []byte) (acts, types bool) {
	return string(method) != "Test.look", string(method) == "Test.type"
}

// offline is a Mux without a loop, for connections without a socket: the test calls what
// the loop would call.
type offline struct {
	mux      *Mux
	commands int // the browser's end of the pipe
}

func newOffline(t testing.TB) *offline {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Close(p[1]), unix.Close(p[0])) })
	m := &Mux{commands: p[1], wakeup: -1, events: -1}
	m.acts.Follow(testEffect, m.sessions.attached, m.reportCookies)
	return &offline{mux: m, commands: p[0]}
}

// conn returns a new connection, whose browser session is "S".
func (b *offline) conn() *Conn {
	s := &ClientSession{mux: b.mux, id: "S", defaultID: "S"}
	b.mux.sessions.add("S", s)
	return &Conn{
		session: s, fence: openFence(), handler: noHandler{}, closeFrames: true, fd: -1, ended: make(chan End, 1),
		pending: map[string]map[int64]*continuedRequest{"": {}}, leaseSessions: map[string]bool{}, suffix: append(append([]byte(nil), sessionKey...), `S"}`...),
	}
}

// read returns what the browser was sent since the last read.
func (b *offline) read() []byte {
	var all []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Read(b.commands, buf)
		if n <= 0 || err != nil {
			return all
		}
		all = append(all, buf[:n]...)
	}
}

// noHandler is a Handler that does nothing.
type noHandler struct{}

func (noHandler) Lease(context.Context, string, json.RawMessage) (any, *Error) {
	return struct{}{}, nil
}

func (noHandler) ClosingTarget(string) {}

func (noHandler) CloseBrowser() {}

func (noHandler) Refused(string) {}

func (noHandler) Readable(string) error { return nil }

func (noHandler) Writable(string) error { return nil }

func (noHandler) DownloadDir() string { return "" }

func (noHandler) Opened(*Conn) func(context.Context) { return func(context.Context) {} }

func (noHandler) Takeover() *Takeover { return nil }

func (noHandler) Denied(string, *methods.Refusal) {}

// slowLease is a Handler whose Lease commands are answered when answer is closed.
type slowLease struct {
	noHandler
	answer <-chan struct{}
}

func (s slowLease) Lease(context.Context, string, json.RawMessage) (any, *Error) {
	<-s.answer
	return struct{}{}, nil
}

// clientFrame is a client's frame as another library writes it.
func clientFrame(first byte, payload string) []byte {
	var b bytes.Buffer
	mask := [4]byte{1, 0x80, 0xff, 7}
	_ = ws.WriteHeader(&b, ws.Header{Fin: first&0x80 != 0, Rsv: first >> 4 & 7, OpCode: ws.OpCode(first & 15), Masked: true, Mask: mask, Length: int64(len(payload))})
	p := []byte(payload)
	ws.Cipher(p, mask, 0)
	return append(b.Bytes(), p...)
}

// openFence returns a fence that is open for an hour.
func openFence() *lease.Fence {
	return lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
}
