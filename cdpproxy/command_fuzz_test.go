package cdpproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// expected is what scan has to say of a message, found by way of encoding/json.
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
	note := func(e *Error) {
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
		// An id that was none may come again; nothing else.
		if seen[name] && (name != "id" || c.hasID) && isMember(name) {
			note(errDuplicate)
			continue
		}
		seen[name] = true
		switch name {
		case "id":
			if n, err := strconv.ParseInt(string(v), 10, 32); err == nil {
				c.id, c.hasID = n, true
			} else {
				note(errNoID)
			}
		case "method":
			var s string
			if json.Unmarshal(v, &s) != nil || v[0] != '"' {
				note(errNoMethod)
			} else {
				c.method = []byte(s)
			}
		case "params":
			if v[0] != '{' && v[0] != 'n' {
				note(errBadParams)
			} else {
				c.params = v
			}
		case "sessionId":
			if c.hasSession = true; v[0] != '"' {
				note(errBadSession)
			} else {
				c.sessionID = v[1 : len(v)-1]
			}
		default:
			note(errUnknownMember)
		}
	}
	c.lastBrace = bytes.LastIndexByte(msg, '}')
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

// depth is how deep arrays and objects nest.
func depth(v []byte) int {
	deepest, now := 0, 0
	for d := json.NewDecoder(bytes.NewReader(v)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			deepest = max(deepest, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

// checkScan holds the scanner against encoding/json: the same answer, byte for
// byte, or the same clean refusal.
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
	if c.hasID != want.hasID || c.id != want.id || c.hasSession != want.hasSession || !bytes.Equal(c.sessionID, want.sessionID) ||
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
		`{"id":1,"method":"m","sessionId":"A","sessionId":"B"}`, `{"id":"1","id":2,"method":"m"}`, `{"method":1,"method":"m","id":1}`,
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

// jsonText makes JSON as no one writes it, but may: white space, escapes, any
// order, and now and then a byte that is wrong.
type jsonText struct {
	t *rapid.T
	b strings.Builder
}

func (j *jsonText) space() {
	j.b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t ", "\r\n"}).Draw(j.t, "space"))
}

func (j *jsonText) str(s string) {
	j.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r > 0xffff || rapid.IntRange(0, 9).Draw(j.t, "escape") > 0 && r >= ' ' && r != '"' && r != '\\':
			j.b.WriteRune(r)
		case r == '"' || r == '\\' || r == '/':
			j.b.WriteString(`\` + string(r))
		default:
			j.b.WriteString(`\u` + strconv.FormatInt(0x10000|int64(r), 16)[1:])
		}
	}
	j.b.WriteByte('"')
}

var someText = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`,"sessionId":"A"}`, `","sessionId":"`, "Runtime.evaluate", "id", "sessionId", `{"id":`, `}`, `\`, `"`}))

func (j *jsonText) value(deep int) {
	kind := rapid.IntRange(0, 6).Draw(j.t, "kind")
	if deep <= 0 {
		kind %= 4
	}
	switch kind {
	case 0, 1:
		j.str(someText.Draw(j.t, "text"))
	case 2:
		j.b.WriteString(rapid.SampledFrom([]string{"0", "-1", "1.5", "1e9", "2147483647", "2147483648", "-0.0E-1", "01", "1.", "-", "+1", ".5"}).Draw(j.t, "number"))
	case 3:
		j.b.WriteString(rapid.SampledFrom([]string{"true", "false", "null", "{}", "[]", "nul", "True"}).Draw(j.t, "word"))
	case 4:
		j.list('[', ']', deep, func() { j.value(deep - 1) })
	default:
		j.list('{', '}', deep, func() { j.member(someText.Draw(j.t, "key"), deep-1) })
	}
}

func (j *jsonText) list(open, end byte, _ int, each func()) {
	j.b.WriteByte(open)
	j.space()
	for i := range rapid.IntRange(0, 3).Draw(j.t, "length") {
		if i > 0 {
			j.b.WriteByte(',')
			j.space()
		}
		each()
		j.space()
	}
	j.b.WriteByte(end)
}

func (j *jsonText) member(key string, deep int) {
	j.str(key)
	j.space()
	j.b.WriteByte(':')
	j.space()
	j.value(deep)
}

// message writes something like a command.
func (j *jsonText) message() []byte {
	names := rapid.Permutation([]string{"id", "method", "params", "sessionId"}).Draw(j.t, "order")
	names = names[:rapid.SampledFrom([]int{4, 4, 4, 3, 2, 0}).Draw(j.t, "members")]
	if rapid.IntRange(0, 4).Draw(j.t, "extra") == 0 {
		names = append(names, rapid.SampledFrom([]string{"id", "method", "params", "sessionId", "ID", "token", ""}).Draw(j.t, "name"))
	}
	j.space()
	j.b.WriteByte('{')
	j.space()
	for i, name := range names {
		if i > 0 {
			j.b.WriteByte(',')
			j.space()
		}
		if rapid.IntRange(0, 9).Draw(j.t, "odd") == 0 {
			j.member(name, 2)
			j.space()
			continue
		}
		j.str(name)
		j.space()
		j.b.WriteByte(':')
		j.space()
		switch name {
		case "id":
			j.b.WriteString(strconv.FormatInt(int64(rapid.Int32().Draw(j.t, "id")), 10))
		case "params":
			j.list('{', '}', 3, func() { j.member(someText.Draw(j.t, "key"), 3) })
		default:
			j.str(someText.Draw(j.t, "text"))
		}
		j.space()
	}
	j.b.WriteByte('}')
	j.space()
	msg := []byte(j.b.String())
	if rapid.IntRange(0, 3).Draw(j.t, "spoil") == 0 {
		at := rapid.IntRange(0, len(msg)-1).Draw(j.t, "at")
		msg[at] = rapid.SampledFrom([]byte{0, 0x1f, ' ', '"', '\\', ',', ':', '{', '}', '0', 0x7f, 0x80, 0xc0, 0xed, 0xff}).Draw(j.t, "byte")
	}
	return msg
}

func TestScanIsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkScan(t, (&jsonText{t: t}).message()) })
}

// TestScanAtItsBounds: the deepest nesting, and a message as large as any.
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
	// Too deep for encoding/json as well; only refused, and no stack overflow.
	if _, err := scan(nest(1 << 20)); err != errNotJSON {
		t.Errorf("a million deep: %v", err)
	}
	head, tail := `{"sessionId":"S","params":{"a":"`, `"},"method":"m","id":7}`
	big := make([]byte, 0, MaxCommand)
	big = append(big, head...)
	for len(big) < MaxCommand-len(tail) {
		big = append(big, 'x')
	}
	big = append(big, tail...)
	c, err := scan(big)
	if err != nil || c.id != 7 || string(c.sessionID) != "S" || string(c.method) != "m" || len(c.params) != len(big)-len(head)-len(tail)+len(`{"a":""}`) || c.lastBrace != len(big)-1 {
		t.Errorf("%d bytes: id %d method %q session %q, %d bytes of params, end %d, %v", len(big), c.id, c.method, c.sessionID, len(c.params), c.lastBrace, err)
	}
	for _, at := range []int{len(head), len(big) / 2, len(big) - len(tail) - 1} {
		for b, want := range map[byte]*Error{0: errNotJSON, 0x1f: errNotJSON, '"': errNotJSON, 0xff: errBadUTF8} {
			big[at] = b
			if _, err := scan(big); err != want {
				t.Errorf("byte %#x at %d: %v, want %v", b, at, err, want)
			}
			big[at] = 'x'
		}
	}
}

// checkGlance: for a message as Chrome writes it, the shortcut finds what a full
// parse does; for any other, it may find no session, but never a wrong one.
func checkGlance(t interface{ Fatalf(string, ...any) }, msg []byte) {
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

func FuzzGlance(f *testing.F) {
	for _, s := range []string{
		`{"id":5,"result":{},"sessionId":"AB"}`, `{"method":"M","params":{"sessionId":"x"},"sessionId":"AB"}`, `{"id":1,"error":{"code":-32000,"message":"no"}}`,
		`{"id":1,"result":{"sessionId":"AB"}}`, `{"method":"M","params":{"a":",\"sessionId\":\"AB\""}}`, `{"method":"M","params":",\"sessionId\":\"AB"}`,
		`{"method":"M","sessionId":"a\"b"}`, `{"id":-3,"sessionId":"\\"}`, `{"x":"\\","sessionId":"S"}`, `{"id":99999999999999999999,"sessionId":"S"}`, `{}`, `}`, `"}`, `,"sessionId":"A"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) { checkGlance(t, msg) })
}

func TestGlanceIsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkGlance(t, (&jsonText{t: t}).message()) })
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
