package cdpproxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// plainJSON is json.Marshal without what is for HTML: of a "<" that makes six bytes, and so a message that is too long
// for Chrome.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// maxDepth is how deep arrays and objects may nest: as deep as Chrome's own parser
// takes them.
const maxDepth = 300

// Each of the skip functions returns the index of the first byte from i on that does not belong
// to what it skips. If there is no such thing, or it is not strict JSON, it returns -1.

// skipSpace skips white space, of which there may be none.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		i = skipPlain(b, i)
		if i == len(b) {
			break
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			i++
			if i >= len(b) {
				return -1
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(b) {
					return -1
				}
				for _, h := range b[i+1 : i+5] {
					if !isHex(h) {
						return -1
					}
				}
				i += 4
			default:
				return -1
			}
		}
	}
	return -1
}

// skipPlain skips bytes that need no escape inside a string, eight at a time. There may be
// none.
func skipPlain(b []byte, i int) int {
	const (
		ones = 0x0101010101010101
		tops = 0x8080808080808080
	)
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, escape := w^(ones*'"'), w^(ones*'\\')
		// A subtraction borrows at a byte that is zero, or less than a space, and so sets its
		// top bit. The borrow may wrongly set top bits above it, but the lowest one that is set
		// is right.
		if hit := ((quote-ones)&^quote | (escape-ones)&^escape | (w-ones*' ')&^w) & tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipNumber(b []byte, i int) int {
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

func skipValue(b []byte, i int) int {
	var open [maxDepth]byte // the closing brackets that have to come
	depth := 0
	for {
		// A value starts at i.
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			i = skipString(b, i)
		case c == '{' || c == '[':
			if depth == maxDepth {
				return -1
			}
			open[depth] = c + 2 // '{' and '}' stand two apart, as do '[' and ']'
			depth++
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == open[depth-1] {
				depth--
				i++
				break
			}
			if c == '{' {
				if i = skipKey(b, i); i < 0 {
					return -1
				}
			}
			continue
		case bytes.HasPrefix(b[i:], []byte("true")), bytes.HasPrefix(b[i:], []byte("null")):
			i += 4
		case bytes.HasPrefix(b[i:], []byte("false")):
			i += 5
		default:
			i = skipNumber(b, i)
		}
		// A value ends before i. Close the brackets that close here, and go on to the next
		// value if there is one.
		for {
			if i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return -1
			}
			if b[i] == open[depth-1] {
				depth--
				i++
				continue
			}
			if b[i] != ',' {
				return -1
			}
			i = skipSpace(b, i+1)
			if open[depth-1] == '}' {
				if i = skipKey(b, i); i < 0 {
					return -1
				}
			}
			break
		}
	}
}

// skipKey skips the key of an object's member, with the colon and the white space
// around it.
func skipKey(b []byte, i int) int {
	if i = skipString(b, i); i < 0 {
		return -1
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return skipSpace(b, i+1)
}

// unquote decodes a JSON string. The result is part of the string if that has no
// escapes.
func unquote(quoted []byte) []byte {
	inside := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	return unescape(inside)
}

// unescape decodes the inside of a JSON string that has escapes. That is rare here,
// since no usual client escapes what needs none.
func unescape(inside []byte) []byte {
	quoted := make([]byte, 0, len(inside)+2)
	quoted = append(append(append(quoted, '"'), inside...), '"')
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return inside
	}
	return []byte(s)
}
