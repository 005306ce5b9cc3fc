package cdpproxy

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// checkParseBrowserMessage compares parseBrowserMessage with a full parse. For a message
// as Chrome writes it, both find the same. For any other it may find no session, but not
// a wrong one.
func checkParseBrowserMessage(t interface{ Fatalf(string, ...any) }, msg []byte) {
	parsed := parseBrowserMessage(msg)
	if len(msg) == 0 || parsed.bodyEnd < -1 || parsed.bodyEnd >= len(msg) {
		if len(msg) > 0 {
			t.Fatalf("%.300q: strip %d", msg, parsed.bodyEnd)
		}
		return
	}
	valid := json.Valid(msg) && msg[0] == '{' && msg[len(msg)-1] == '}'
	if isWholeMessage(msg) != (valid && len(msg) <= maxEarlyMessage && depth(msg) <= maxDepth) {
		t.Fatalf("%.300q: whole: %v", msg, isWholeMessage(msg))
	}
	if !valid {
		return // Chrome does not write this: it is enough that nothing panics
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
	if len(parsed.sessionID) > 0 && (last != "sessionId" || string(lastValue) != `"`+string(parsed.sessionID)+`"`) {
		t.Fatalf("%.300q: session %q is not its own", msg, parsed.sessionID)
	}
	if len(parsed.sessionID) > 0 && !json.Valid(append(bytes.Clone(msg[:parsed.bodyEnd]), '}')) {
		t.Fatalf("%.300q: without its session: %.300q", msg, msg[:parsed.bodyEnd])
	}
	if parsed.isReply && (first != "id" || !bytes.HasPrefix(firstValue, strconv.AppendInt(nil, parsed.id, 10))) {
		t.Fatalf("%.300q: id %d is not its own", msg, parsed.id)
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
	// In a message as Chrome writes it, everything has to be found.
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
		parsed := parseBrowserMessage([]byte(msg))
		if string(parsed.sessionID) != session || msg[:parsed.bodyEnd] != bare || parsed.isReply != reply || reply && parsed.id != int64(id) {
			t.Fatalf("%s: %+v", msg, parsed)
		}
	})
}
