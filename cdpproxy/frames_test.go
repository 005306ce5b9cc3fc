package cdpproxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
)

// Bits of a frame's first byte.
const (
	fin  = 0x80
	rsv1 = 0x40
	rsv3 = 0x10
)

// Opcodes.
const (
	continuation = 0x0
	text         = 0x1
	binaryOp     = 0x2
	closeOp      = 0x8
	ping         = 0x9
	pong         = 0xa
)

// raw is a client's frame, written without a library.
func raw(first byte, payload string) string {
	var b []byte
	switch n := len(payload); {
	case n < 126:
		b = []byte{first, 0x80 | byte(n)}
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(n))
	default:
		b = binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(n))
	}
	mask := [4]byte{0xa5, 0x5a, 0x01, 0xff}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i&3])
	}
	return string(b)
}

// closing is a client's close frame.
func closing(code uint16, reason string) string {
	return raw(fin|closeOp, string(binary.BigEndian.AppendUint16(nil, code))+reason)
}

// call1 is a command that the handler answers. What follows it is not read before that.
const call1 = `{"id":1,"method":"Lease.echo"}`

const answer1 = `{"id":1,"result":{"asked":"Lease.echo","with":null}}`

// server is a short frame of the server.
func server(op byte, payload string) string {
	return string([]byte{fin | op, byte(len(payload))}) + payload
}

// TestAutobahn has the cases of the Autobahn test suite, for a server that takes only
// text and answers by rules of its own: pings (2), reserved bits (3), opcodes (4),
// fragments (5), UTF-8 (6), closing (7) and sizes (9).
func TestAutobahn(t *testing.T) {
	bye := closing(1000, "")
	byeAnswer := server(closeOp, "\x03\xe8")
	euro := "\xe2\x82\xac"
	utf := `{"id":1,"method":"Lease.echo","params":{"a":"κόσμε ` + euro + ` 😀"}}`
	utfAnswer := `{"id":1,"result":{"asked":"Lease.echo","with":{"a":"κόσμε ` + euro + ` 😀"}}}`
	for _, tt := range []struct {
		name, send string
		want       string // all that is received, or what precedes a close frame with code
		code       uint16 // 0: want is all
	}{
		{"1.1.1 an empty text message", raw(fin|text, "") + bye, server(text, `{"error":{"code":-32700,"message":"JSON: the message is not one valid JSON object"}}`) + byeAnswer, 0},
		{"1.1.2 text", raw(fin|text, call1) + bye, server(text, answer1) + byeAnswer, 0},
		{"1.2.1 binary", raw(fin|binaryOp, call1), "", 1003},
		{"2.1 a ping without payload", raw(fin|ping, "") + bye, server(pong, "") + byeAnswer, 0},
		{"2.3 a ping with binary payload", raw(fin|ping, "\x00\xff\xfe\xfd\xfc\xfb\x00\xff") + bye, server(pong, "\x00\xff\xfe\xfd\xfc\xfb\x00\xff") + byeAnswer, 0},
		{"2.4 a ping of 125 bytes", raw(fin|ping, strings.Repeat("p", 125)) + bye, server(pong, strings.Repeat("p", 125)) + byeAnswer, 0},
		{"2.5 a ping of 126 bytes", raw(fin|ping, strings.Repeat("p", 126)), "", 1002},
		{"2.7 a pong that nobody asked for", raw(fin|pong, "") + raw(fin|pong, "late") + bye, byeAnswer, 0},
		{"2.10 ten pings at once", strings.Repeat(raw(fin|ping, "x"), 10) + bye, strings.Repeat(server(pong, "x"), 10) + byeAnswer, 0},
		{"3.1 a reserved bit", raw(fin|rsv1|text, call1), "", 1002},
		{"3.3 a reserved bit after a good message", raw(fin|ping, "a") + raw(fin|rsv3|text, call1), server(pong, "a"), 1002},
		{"3.5 a reserved bit on a ping", raw(fin|rsv1|ping, ""), "", 1002},
		{"4.1.1 opcode 3", raw(fin|3, ""), "", 1002},
		{"4.1.5 opcode 7", raw(fin|7, "x"), "", 1002},
		{"4.2.1 opcode 11", raw(fin|11, ""), "", 1002},
		{"4.2.5 opcode 15", raw(fin|15, "x"), "", 1002},
		{"5.1 a ping in fragments", raw(ping, "a") + raw(fin|continuation, "b"), "", 1002},
		{"5.2 a pong in fragments", raw(pong, "a") + raw(fin|continuation, "b"), "", 1002},
		{"5.3 two fragments", raw(text, call1[:9]) + raw(fin|continuation, call1[9:]) + bye, server(text, answer1) + byeAnswer, 0},
		{"5.6 a ping between fragments", raw(text, call1[:9]) + raw(fin|ping, "mid") + raw(fin|continuation, call1[9:]) + bye, server(pong, "mid") + server(text, answer1) + byeAnswer, 0},
		{"5.9 a continuation without a start", raw(fin|continuation, call1), "", 1002},
		{"5.10 a continuation that goes on, without a start", raw(continuation, call1), "", 1002},
		{"5.12 a continuation after the end", raw(text, call1[:3]) + raw(fin|continuation, call1[3:]) + raw(continuation, "x"), server(text, answer1), 1002},
		{"5.18 a new message before the end", raw(text, call1[:3]) + raw(fin|text, call1), "", 1002},
		{"5.19 five fragments, pings in between, empty ones too", raw(text, "") + raw(fin|ping, "1") + raw(continuation, call1[:1]) + raw(continuation, "") + raw(fin|ping, "2") + raw(continuation, call1[1:20]) + raw(fin|continuation, call1[20:]) + bye, server(pong, "1") + server(pong, "2") + server(text, answer1) + byeAnswer, 0},
		{"6.1.2 empty fragments", raw(text, "") + raw(continuation, "") + raw(fin|continuation, "") + bye, server(text, `{"error":{"code":-32700,"message":"JSON: the message is not one valid JSON object"}}`) + byeAnswer, 0},
		{"6.2.1 UTF-8", raw(fin|text, utf) + bye, server(text, utfAnswer) + byeAnswer, 0},
		{"6.2.3 UTF-8 cut between its bytes", raw(text, utf[:39]) + raw(continuation, utf[39:40]) + raw(fin|continuation, utf[40:]) + bye, server(text, utfAnswer) + byeAnswer, 0},
		{"6.3.1 bad UTF-8", raw(fin|text, `{"id":1,"method":"DOM.getDocument`+"\xce\xba\xed\xa0\x80edited"+`"}`), "", 1007},
		{"6.4.1 bad UTF-8 in a fragment", raw(text, `{"id":1,"method":"`) + raw(continuation, "\xf4\x90\x80\x80") + raw(fin|continuation, `"}`), "", 1007},
		{"6.6.1 UTF-8 that is not whole", raw(fin|text, "\xce"), "", 1007},
		{"6.20.1 a surrogate", raw(fin|text, "\"\xed\xa0\x80\""), "", 1007},
		{"7.1.1 a message, then a close frame", raw(fin|text, call1) + bye, server(text, answer1) + byeAnswer, 0},
		{"7.1.3 a ping after the close frame", bye + raw(fin|ping, "x"), byeAnswer, 0},
		{"7.1.4 a message after the close frame", bye + raw(fin|text, call1), byeAnswer, 0},
		{"7.1.5 a close frame between fragments", raw(text, call1[:3]) + bye + raw(fin|continuation, call1[3:]), byeAnswer, 0},
		{"7.3.1 an empty close frame", raw(fin|closeOp, ""), server(closeOp, ""), 0},
		{"7.3.2 a close frame of one byte", raw(fin|closeOp, "a"), "", 1002},
		{"7.3.4 a close frame with a reason", closing(1000, "going"), byeAnswer, 0},
		{"7.3.5 the longest reason", closing(1000, strings.Repeat("*", 123)), byeAnswer, 0},
		{"7.3.6 a longer one", closing(1000, strings.Repeat("*", 124)), "", 1002},
		{"7.5.1 a reason that is not UTF-8", closing(1000, "\xce\xba\xed\xa0\x80"), "", 1007},
		{"a message with more behind it than it says", raw(fin|text, call1) + "\x00\x00", server(text, answer1), 1002},
		{"without a mask", string([]byte{fin | text, byte(len(call1))}) + call1, "", 1002},
		{"a length of more than 63 bits", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", 1002},
		{"a length of 2^62", "\x81\xff\x40\x00\x00\x00\x00\x00\x00\x00", "", 1009},
		{"fragments that are too large together", raw(text, strings.Repeat(" ", 100)) + "\x00\xff" + string(binary.BigEndian.AppendUint64(nil, cdpproxy.MaxCommand-99)), "", 1009},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, chop := range []int{0, 1, 7} {
				checkConversation(t, tt.send, chop, tt.want, tt.code)
			}
		})
	}
	for _, code := range []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999} {
		t.Run(fmt.Sprint("7.7 close code ", code), func(t *testing.T) {
			checkConversation(t, closing(code, ""), 0, server(closeOp, string(binary.BigEndian.AppendUint16(nil, code))), 0)
		})
	}
	for _, code := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		t.Run(fmt.Sprint("7.9 close code ", code), func(t *testing.T) {
			checkConversation(t, closing(code, ""), 0, "", 1002)
		})
	}
	for _, size := range []int{125, 126, 127, 128, 65535, 65536, 4 << 20} {
		t.Run(fmt.Sprint("9 a message of ", size), func(t *testing.T) {
			msg := call1[:len(call1)-1]
			msg += strings.Repeat(" ", size-len(msg)-1) + `}`
			checkConversation(t, raw(fin|text, msg)+bye, 0, server(text, answer1)+byeAnswer, 0)
		})
	}
}

// checkConversation sends the bytes, in pieces of chop bytes unless that is 0. It wants
// to receive want, and then a close frame with the code unless that is 0.
func checkConversation(t *testing.T, send string, chop int, want string, code uint16) {
	t.Helper()
	c := connect(t, script(t).mux, open(), &handler{})
	_ = c.net.SetDeadline(time.Now().Add(testchrome.Patience))
	for rest := send; rest != ""; {
		n := len(rest)
		if chop > 0 {
			n = min(n, chop)
		}
		if _, err := io.WriteString(c.net, rest[:n]); err != nil {
			break // the connection may have ended already
		}
		rest = rest[n:]
	}
	got, err := io.ReadAll(c.net)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) { // a reset may follow what is received
		t.Fatal(err)
	}
	if code != 0 {
		at := bytes.LastIndexByte(got, fin|closeOp)
		if at < 0 || len(got) < at+4 || binary.BigEndian.Uint16(got[at+2:]) != code {
			t.Fatalf("chop %d: got %q, want a close frame with %d", chop, got, code)
		}
		got = got[:at]
	}
	if string(got) != want {
		t.Errorf("chop %d: got %q, want %q", chop, got, want)
	}
	_ = c.net.Close()
	if end := <-c.end; end.Clean != (code == 0) || (end.Err == nil) != (code == 0) {
		t.Errorf("chop %d: ended by %+v", chop, end)
	}
}
