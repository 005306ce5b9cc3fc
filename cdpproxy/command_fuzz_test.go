package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// expected is what scan has to return for a message, found with encoding/json.
func expected(msg []byte) (c command, want *Error) {
	if !utf8.Valid(msg) {
		return c, errBadUTF8
	}
	if !json.Valid(msg) || bytes.TrimLeft(msg, " \t\r\n")[0] != '{' {
		return c, errNotJSON
	}
	d := json.NewDecoder(bytes.NewReader(msg))
	if _, err := d.Token(); err != nil {
		return c, errNotJSON
	}
	fail := func(e *Error) { // the first one counts
		if want == nil {
			want = e
		}
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return c, errNotJSON
		}
		var v json.RawMessage
		if d.Decode(&v) != nil || depth(v) > maxDepth {
			return c, errNotJSON
		}
		name := key.(string)
		// Only an id that was not valid may come again.
		if seen[name] && (name != "id" || c.hasID) && isMember(name) {
			fail(errDuplicate)
			continue
		}
		seen[name] = true
		switch name {
		case "id":
			if n, err := strconv.ParseInt(string(v), 10, 32); err == nil {
				c.id, c.hasID = n, true
			} else {
				fail(errNoID)
			}
		case "method":
			var s string
			if json.Unmarshal(v, &s) != nil || v[0] != '"' {
				fail(errNoMethod)
			} else {
				c.method = []byte(s)
			}
		case "params":
			if v[0] != '{' && v[0] != '[' && v[0] != 'n' {
				fail(errBadParams)
			} else {
				c.params = v
			}
		case "sessionId":
			if c.hasSession = true; v[0] != '"' {
				fail(errBadSession)
			} else {
				c.sessionID = v[1 : len(v)-1]
				c.emptySession = len(c.sessionID) == 0
			}
		default:
			fail(errUnknownMember)
		}
	}
	c.lastBrace = bytes.LastIndexByte(msg, '}')
	c.hasSession = c.hasSession && !c.emptySession
	switch {
	case !c.hasID:
		want = errNoID
	case want == nil && len(c.method) == 0:
		want = errNoMethod
	}
	return c, want
}

func isMember(name string) bool {
	return name == "id" || name == "method" || name == "params" || name == "sessionId"
}

// checkScan compares the scanner with encoding/json: it has to return the same bytes, or
// the same error.
func checkScan(t interface{ Fatalf(string, ...any) }, msg []byte) {
	kept := bytes.Clone(msg)
	c, err := scan(msg)
	want, wantErr := expected(msg)
	if err != wantErr {
		t.Fatalf("%.300q: %v, want %v", msg, err, wantErr)
	}
	if !bytes.Equal(msg, kept) {
		t.Fatalf("%.300q was changed", kept)
	}
	if err == errBadUTF8 || err == errNotJSON {
		return
	}
	if c.hasID != want.hasID || c.id != want.id || c.hasSession != want.hasSession || c.emptySession != want.emptySession || !bytes.Equal(c.sessionID, want.sessionID) ||
		!bytes.Equal(c.method, want.method) || !bytes.Equal(c.params, want.params) || c.lastBrace != want.lastBrace {
		t.Fatalf("%.300q: %+v, want %+v", msg, c, want)
	}
	if err == nil && bytes.IndexByte(msg, 0) >= 0 {
		t.Fatalf("%.300q: a zero byte passed", msg)
	}
}

func FuzzScan(f *testing.F) {
	nested := `{"id":1,"method":"m","params":` + strings.Repeat(`{"a":[`, 149) + `1` + strings.Repeat(`]}`, 149) + `}`
	for _, s := range []string{
		`{"id":1,"method":"a.b","params":{"k":"v","n":[1,-2.5e+7,true,false,null]},"sessionId":"AB"}`,
		`{"\u0069d":1,"method":"\ud83d\ude00"}`, `{"id":1,"method":"m","params":{"a":"\u0000"}}`, `{}`, `{"id":01}`, ` {"id":1 , "x":{}}`,
		`{"id":1,"method":"m","\u0073ession\u0049d":"S"}`, `{"ID":1,"Method":"m","sessionid":"S"}`, `{"id":1,"method":"\ud800"}`,
		`{"id":1,"method":"m","params":{"sessionId":"n","a":{"sessionId":"\",\"sessionId\":\"x"}},"sessionId":"a\"b"}`,
		`{"id":1,"method":"m","sessionId":"A","sessionId":"B"}`, `{"id":1,"method":"m","sessionId":""}`, `{"sessionId":"","sessionId":"B","id":1}`, `{"id":"1","id":2,"method":"m"}`, `{"method":1,"method":"m","id":1}`,
		`{"id":2147483648,"method":"m"}`, `{"id":-2147483648,"method":"m"}`, `{"id":1e0,"method":"m"}`, `{"id":-0,"method":"m"}`, `{"id":+1,"method":"m"}`,
		"\t\r\n{\"id\":1\n,\t\"method\" : \"m\"\r}\n ", "\ufeff{\"id\":1,\"method\":\"m\"}", "{\"id\":1,\"method\":\"m\"}\x00{}", "{\"id\":1,\"method\":\"\xed\xa0\x80\"}",
		"{\"id\":1,\"method\":\"a\x1fb\"}", "{\"id\":1,\"method\":\"a\x7fb\u2028\"}", `{"id":1,"method":"m","params":"\x"}`, `{"id":1,"method":"m","params":{"a":"12345678\"12345678\\12345678"}}`,
		`{"id":1,"method":"m","params":[]}`, `{"id":1,"method":"m","params":null}`, `{"id":1,"method":"m","params":nul}`, `[{"id":1}]`, `{"id":1,"method":"m"},`, `{,"id":1}`, `{"id":1,}`, `{"id"}`, `{"id":}`, `"`, `{"`, ``,
		nested, strings.Replace(nested, `:1`, `:[[[1]]]`, 1),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) { checkScan(t, msg) })
}

func TestScanIsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkScan(t, (&jsonText{t: t}).message()) })
}

// TestScanAtItsBounds scans the deepest nesting and a large message.
func TestScanAtItsBounds(t *testing.T) {
	nest := func(n int) []byte {
		return []byte(`{"id":1,"method":"m","params":` + strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) + `}`)
	}
	for _, n := range []int{maxDepth - 1, maxDepth, maxDepth + 1} {
		checkScan(t, nest(n))
	}
	if _, err := scan(nest(maxDepth)); err != nil {
		t.Errorf("nested %d deep: %v", maxDepth, err)
	}
	// This is too deep for encoding/json as well, so the test is only that it is refused
	// without a stack overflow.
	if _, err := scan(nest(1 << 20)); err != errNotJSON {
		t.Errorf("a million deep: %v", err)
	}
	const head, tail = `{"sessionId":"S","params":{"a":"`, `"},"method":"m","id":7}`
	message := func(size int) []byte {
		return slices.Concat([]byte(head), bytes.Repeat([]byte{'x'}, size-len(head)-len(tail)), []byte(tail))
	}
	big := message(8 << 20)
	c, err := scan(big)
	if err != nil || c.id != 7 || string(c.sessionID) != "S" || string(c.method) != "m" || len(c.params) != len(big)-len(head)-len(tail)+len(`{"a":""}`) || c.lastBrace != len(big)-1 {
		t.Errorf("%d bytes: id %d method %q session %q, %d bytes of params, end %d, %v", len(big), c.id, c.method, c.sessionID, len(c.params), c.lastBrace, err)
	}
	wrong := func(msg []byte, at int, b byte, want *Error) {
		t.Helper()
		defer func(was byte) { msg[at] = was }(msg[at])
		msg[at] = b
		if _, err := scan(msg); err != want {
			t.Errorf("byte %#x at %d of %d: %v, want %v", b, at, len(msg), err, want)
		}
	}
	wrong(big, len(big)-len(tail)-1, 0x1f, errNotJSON)
	long := message(64 << 10)
	for _, at := range []int{len(head), len(long) / 2, len(long) - len(tail) - 1} {
		for b, want := range map[byte]*Error{0: errNotJSON, 0x1f: errNotJSON, '"': errNotJSON, 0xff: errBadUTF8} {
			wrong(long, at, b, want)
		}
	}
}
