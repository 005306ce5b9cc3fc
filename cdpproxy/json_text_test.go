package cdpproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// jsonText writes JSON in ways that are allowed but unusual: with white space, escapes
// and members in any order. Now and then a byte is wrong.
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

// message writes something like a command, and returns all that was written.
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

// depth returns how deep arrays and objects nest.
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
