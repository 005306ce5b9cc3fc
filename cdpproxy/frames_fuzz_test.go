package cdpproxy

import (
	"bytes"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"pgregory.net/rapid"

	"leasehold/cdpproxy/methods"
)

// feed gives the bytes to a new connection, in pieces of the lengths in cuts plus one,
// and returns what goes to the client and to the browser, and how far the connection got.
func (b *offline) feed(send []byte, cuts []byte) (client, browser []byte, reached phase) {
	c := b.conn()
	for i := 0; len(send) > 0 && c.phase == reading; i++ {
		n := len(send)
		if i < len(cuts) {
			n = min(n, int(cuts[i])+1)
		}
		piece := bytes.Clone(send[:n])
		send = send[n:]
		if len(c.in) > 0 {
			c.handleInput(append(c.in, piece...), true)
		} else {
			c.handleInput(piece, false)
			clear(piece) // it is valid only for the call
		}
		for c.offloading.Wait(); c.unread && c.phase == reading; c.offloading.Wait() {
			c.unread = false
			c.handleInput(c.in, true)
		}
		browser = append(browser, b.read()...)
	}
	for _, chunk := range c.out.chunks {
		client = append(client, chunk...)
	}
	return client, browser, c.phase
}

// checkFrames checks that the outcome is the same however the bytes are cut, that the
// browser gets what reference says, and that the client gets only whole frames without
// mask and fragments, none of them after a close frame.
func checkFrames(t interface{ Fatalf(string, ...any) }, b *offline, send, cuts []byte) {
	client, browser, reached := b.feed(send, nil)
	client2, browser2, reached2 := b.feed(send, cuts)
	if !bytes.Equal(browser, browser2) || reached != reached2 || !bytes.Equal(client, client2) {
		t.Fatalf("%q in pieces: the browser got %q, not %q; the client %q, not %q", send, browser2, browser, client2, client)
	}
	wantBrowser, wantClose := reference(send)
	if !bytes.Equal(browser, wantBrowser) {
		t.Fatalf("%q: the browser got %q, want %q", send, browser, wantBrowser)
	}
	r := bytes.NewReader(client)
	closed := ws.StatusCode(0)
	for r.Len() > 0 {
		h, err := ws.ReadHeader(r)
		if err != nil || h.Masked || !h.Fin || h.Rsv != 0 || closed != 0 {
			t.Fatalf("%q: a bad frame in %q: %+v %v", send, client, h, err)
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(r, payload); err != nil {
			t.Fatalf("%q: half a frame in %q", send, client)
		}
		if h.OpCode == ws.OpText && !utf8.Valid(payload) {
			t.Fatalf("%q: text that is not UTF-8: %q", send, payload)
		}
		if h.OpCode == ws.OpClose {
			closed = ws.StatusNoStatusRcvd
			if len(payload) > 0 {
				closed, _ = ws.ParseCloseFrameData(payload)
			}
		}
	}
	if closed != wantClose {
		t.Fatalf("%q: closed with %d, want %d", send, closed, wantClose)
	}
}

// reference reads a client's bytes frame by frame with another library. It returns what
// the browser has to get, and the code of the close frame, if there has to be one.
func reference(send []byte) (browser []byte, code ws.StatusCode) {
	r := bytes.NewReader(send)
	var parts []byte
	fragments := false
	for {
		unread := send[len(send)-r.Len():]
		whole, lengthKnown, badLength := true, true, false
		h, err := ws.ReadHeader(r)
		if err != nil {
			// A violation may show before the header is whole, and in its first two
			// bytes even before the length is known.
			if len(unread) < 2 {
				return browser, 0
			}
			whole = false
			pad := make([]byte, ws.MaxHeaderSize)
			if lengthKnown = len(unread) >= map[byte]int{126: 4, 127: 10}[unread[1]&0x7f]; lengthKnown {
				_, err = ws.ReadHeader(bytes.NewReader(append(bytes.Clone(unread), pad...)))
			} else {
				err = nil
			}
			badLength = err != nil
			from := unread[:2]
			if lengthKnown && !badLength {
				from = unread
			}
			h, _ = ws.ReadHeader(bytes.NewReader(append(bytes.Clone(from), pad...)))
		}
		switch {
		case h.Rsv != 0 || !h.Masked || h.OpCode.IsReserved():
			return browser, ws.StatusProtocolError
		case h.OpCode.IsControl() && (!h.Fin || unread[1]&0x7f > 125):
			return browser, ws.StatusProtocolError
		case h.OpCode == ws.OpContinuation && !fragments:
			return browser, ws.StatusProtocolError
		case (h.OpCode == ws.OpText || h.OpCode == ws.OpBinary) && fragments:
			return browser, ws.StatusProtocolError
		case h.OpCode == ws.OpBinary:
			return browser, CloseBadData
		case badLength:
			return browser, ws.StatusProtocolError
		case lengthKnown && h.Length > int64(MaxCommand-len(parts)):
			return browser, CloseTooBig
		case !whole || h.Length > int64(r.Len()):
			return browser, 0
		}
		payload := make([]byte, h.Length)
		_, _ = io.ReadFull(r, payload)
		ws.Cipher(payload, h.Mask, 0)
		if h.OpCode == ws.OpClose {
			switch status, reason := ws.ParseCloseFrameData(payload); {
			case len(payload) == 0:
				return browser, ws.StatusNoStatusRcvd
			case len(payload) == 1, !(status >= 1000 && status < 1004 || status >= 1007 && status < 1015 || status >= 3000 && status < 5000):
				return browser, ws.StatusProtocolError
			case !utf8.ValidString(reason):
				return browser, ws.StatusInvalidFramePayloadData
			default:
				return browser, status
			}
		}
		if h.OpCode.IsControl() {
			continue
		}
		parts = append(parts, payload...)
		if fragments = !h.Fin; fragments {
			continue
		}
		if !utf8.Valid(parts) {
			return browser, ws.StatusInvalidFramePayloadData
		}
		c, bad := expected(parts)
		switch {
		case bad != nil, c.hasSession && string(c.sessionID) != "S", !reachesBrowser(c):
		case c.hasSession:
			browser = append(append(browser, parts...), 0)
		default:
			browser = append(append(browser, parts[:c.lastBrace]...), `,"sessionId":"S"}`+"\x00"...)
		}
		parts = nil
	}
}

// reachesBrowser tells whether a command passes, with a handler that allows every file.
func reachesBrowser(c command) bool {
	m := methods.Find(c.method)
	if m == nil || string(c.method) == "Browser.close" {
		return false
	}
	_, denied := methods.Check(m, m.Name, c.params)
	return denied == nil
}

func FuzzFrames(f *testing.F) {
	b := newOffline(f)
	call := `{"id":1,"method":"DOM.getDocument","params":{}}`
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, send := range [][]byte{
		clientFrame(0x81, call),
		join(clientFrame(1, call[:7]), clientFrame(0x89, "ping"), clientFrame(0, ""), clientFrame(0x80, call[7:]), clientFrame(0x88, "\x03\xe8bye")),
		clientFrame(0x80, call), join(clientFrame(1, "a"), clientFrame(0x81, call)), clientFrame(0x82, call), clientFrame(0xc1, call), clientFrame(0x83, ""), clientFrame(0x8b, ""),
		clientFrame(9, ""), clientFrame(0x88, "\x03"), clientFrame(0x88, "\x03\xed"), clientFrame(0x88, "\x03\xe8\xff"), clientFrame(0x81, "\xff"),
		join(clientFrame(0x81, `{"id":1,"method":"Lease.x"}`), clientFrame(0x81, call), clientFrame(0x81, `{"id":2,"method":"Browser.close"}`)),
		join(clientFrame(0x81, call), clientFrame(0x81, `{"id":1,"method":"DOM.focus","sessionId":"S"}`), clientFrame(0x81, `{"id":1,"method":"DOM.focus","sessionId":"T"}`), clientFrame(0x8a, "x")),
		{0x81, 0xff, 0, 0, 0, 0, 7, 0, 0, 0, 1, 2, 3, 4}, {0x81, 0xff, 0xff}, {0x81, 0xfe, 0, 3, 1, 2, 3, 4, 5, 6, 7}, {0x81, 5, 1}, {0x89, 0xfe, 0, 200},
	} {
		f.Add(send, []byte{0, 1, 2, 30})
	}
	f.Fuzz(func(t *testing.T, send, cuts []byte) {
		if len(send) < 32<<10 { // what the pipe has room for
			checkFrames(t, b, send, cuts)
		}
	})
}

// TestFramesInPieces does what FuzzFrames does, with conversations that are nearly right.
func TestFramesInPieces(t *testing.T) {
	b := newOffline(t)
	rapid.Check(t, func(t *rapid.T) {
		var send []byte
		for range rapid.IntRange(1, 8).Draw(t, "frames") {
			payload := rapid.OneOf(
				rapid.SampledFrom([]string{"", `{"id":1,"method":"DOM.focus"}`, `{"id":1,`, `"method":"Lease.a"}`, `{"id":3,"method":"Lease.a"}`, "\x03\xe8", "\x03\xe8why", "\x00\x00", "\xff"}),
				rapid.StringN(0, 300, 600),
			).Draw(t, "payload")
			first := rapid.OneOf(rapid.SampledFrom([]byte{0x81, 0x81, 0x81, 1, 0, 0x80, 0x89, 0x8a, 0x88}), rapid.Byte()).Draw(t, "first")
			send = append(send, clientFrame(first, payload)...)
		}
		if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
			send[rapid.IntRange(0, len(send)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		checkFrames(t, b, send, rapid.SliceOfN(rapid.ByteRange(0, 40), 0, 40).Draw(t, "cuts"))
	})
}
