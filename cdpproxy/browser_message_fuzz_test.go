package cdpproxy

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// checkParseBrowserMessage: for a message as Chrome writes it, the shortcut finds what a full
// parse does; for any other, it may find no session, but never a wrong one.
func checkParseBrowserMessage(t interface{ Fatalf(string, ...any) }, msg []byte) {
	a := parseBrowserMessage(msg)
	if len(msg) == 0 || a.bodyEnd < -1 || a.bodyEnd >= len(msg) {
		if len(msg) > 0 {
			t.Fatalf("%.300q: strip %d", msg, a.bodyEnd)
		}
		return
	}
	valid := json.Valid(msg) && msg[0] == '{' && msg[len(msg)-1] == '}'
	if isWholeMessage(msg) != (valid && len(msg) <= maxEarlyMessage && depth(msg) <= maxDepth) {
		t.Fatalf("%.300q: whole: %v", msg, isWholeMessage(msg))
	}
	if !valid {
		return // not from Chrome: what matters is that nothing breaks
	}
	for i := range msg {
		if isWholeMessage(msg[:i]) {
			t.Fatalf("%.300q: its beginning %.300q is taken for a message", msg, msg[:i])
		}
	}
	d := json.NewDecoder(bytes.NewReader(msg))
	if _, err := d.Token(); err != nil {
		t.Fatalf("%.300q: %v", msg, err)
	}
	var first, last string
	var firstValue, lastValue json.RawMessage
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatalf("%.300q: %v", msg, err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%.300q: %v", msg, err)
		}
		if last = key.(string); first == "" && firstValue == nil {
			first, firstValue = last, v
		}
		lastValue = v
	}
	if len(a.sessionID) > 0 && (last != "sessionId" || string(lastValue) != `"`+string(a.sessionID)+`"`) {
		t.Fatalf("%.300q: session %q is not its own", msg, a.sessionID)
	}
	if len(a.sessionID) > 0 && !json.Valid(append(bytes.Clone(msg[:a.bodyEnd]), '}')) {
		t.Fatalf("%.300q: without its session: %.300q", msg, msg[:a.bodyEnd])
	}
	if a.isReply && (first != "id" || !bytes.HasPrefix(firstValue, strconv.AppendInt(nil, a.id, 10))) {
		t.Fatalf("%.300q: id %d is not its own", msg, a.id)
	}
}

func FuzzParseBrowserMessage(f *testing.F) {
	for _, s := range []string{
		`{"id":5,"result":{},"sessionId":"AB"}`, `{"method":"M","params":{"sessionId":"x"},"sessionId":"AB"}`, `{"id":1,"error":{"code":-32000,"message":"no"}}`,
		`{"id":1,"result":{"sessionId":"AB"}}`, `{"method":"M","params":{"a":",\"sessionId\":\"AB\""}}`, `{"method":"M","params":",\"sessionId\":\"AB"}`,
		`{"method":"M","sessionId":"a\"b"}`, `{"id":-3,"sessionId":"\\"}`, `{"x":"\\","sessionId":"S"}`, `{"id":99999999999999999999,"sessionId":"S"}`, `{}`, `}`, `"}`, `,"sessionId":"A"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) { checkParseBrowserMessage(t, msg) })
}

func TestParseBrowserMessageIsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkParseBrowserMessage(t, (&jsonText{t: t}).message()) })
	// As Chrome writes it, it has to find what is there.
	rapid.Check(t, func(t *rapid.T) {
		body := jsonText{t: t}
		body.list('{', '}', 3, func() { body.member(someText.Draw(t, "key"), 3) })
		if !json.Valid([]byte(body.b.String())) {
			t.Skip("not from Chrome")
		}
		id := rapid.Int32().Draw(t, "id")
		session := rapid.SampledFrom([]string{"", "0123456789ABCDEF0123456789ABCDEF", "x"}).Draw(t, "session")
		reply := rapid.Bool().Draw(t, "reply")
		bare := `{"method":"M","params":` + body.b.String()
		if reply {
			bare = `{"id":` + strconv.Itoa(int(id)) + `,"result":` + body.b.String()
		}
		msg := bare + `}`
		if session != "" {
			msg = bare + `,"sessionId":"` + session + `"}`
		}
		a := parseBrowserMessage([]byte(msg))
		if string(a.sessionID) != session || msg[:a.bodyEnd] != bare || a.isReply != reply || reply && a.id != int64(id) {
			t.Fatalf("%s: %+v", msg, a)
		}
	})
}
