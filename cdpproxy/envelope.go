package cdpproxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// command is the envelope of a message from a client. The slices point into the
// message.
type command struct {
	id        int64
	hasID     bool
	method    []byte
	params    []byte // a JSON value, or empty
	session   []byte // as written, between its quotes
	inSession bool
	end       int // where the message's last brace stands
}

// tracked tells whether the command changes what is known of its peer.
func (c command) tracked() bool {
	return bytes.HasPrefix(c.method, fetchDomain) || string(c.method) == "Runtime.runIfWaitingForDebugger"
}

var fetchDomain = []byte("Fetch.")

// clone is what an answer of ours needs of the command, in memory of its own.
func (c command) clone() command {
	c.method, c.session, c.params = bytes.Clone(c.method), bytes.Clone(c.session), nil
	return c
}

// Error is a CDP error answer.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message + " (" + strconv.Itoa(e.Code) + ")" }

// The codes that Chrome uses.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeServer         = -32000
	codeNoSession      = -32001
)

var (
	errNotJSON     = &Error{codeParse, "JSON: the message is not one valid JSON object"}
	errBadUTF8     = &Error{codeParse, "JSON: the message is not UTF-8"}
	errNoID        = &Error{codeInvalidRequest, "Message must have integer 'id' property"}
	errNoMethod    = &Error{codeInvalidRequest, "Message must have string 'method' property"}
	errBadSession  = &Error{codeInvalidRequest, "Message may have string 'sessionId' property"}
	errBadParams   = &Error{codeInvalidRequest, "Message may have object 'params' property"}
	errOther       = &Error{codeInvalidRequest, "Message has property other than 'id', 'method', 'params', 'sessionId'"}
	errTwice       = &Error{codeInvalidRequest, "Message has a property twice"}
	errSessionGone = &Error{codeNoSession, "Session with given id not found."}
)

// maxDepth is how deep arrays and objects may nest: what Chrome's own parser
// takes.
const maxDepth = 300

// scan reads the envelope of one message and checks that the whole of it is
// strict JSON: what follows the first byte that Chrome would understand
// differently (a NUL ends a message on the pipe) must never reach it. The id is
// set, where there is one, also when an error is returned.
func scan(msg []byte) (c command, err *Error) {
	if !utf8.Valid(msg) {
		return c, errBadUTF8
	}
	i := space(msg, 0)
	if i == len(msg) || msg[i] != '{' {
		return c, errNotJSON
	}
	var problem *Error
	note := func(e *Error) {
		if problem == nil {
			problem = e
		}
	}
	var seenParams, seenMethod bool
	i = space(msg, i+1)
	for first := true; ; first = false {
		if i >= len(msg) {
			return c, errNotJSON
		}
		if msg[i] == '}' && first {
			break
		}
		end := str(msg, i)
		if end < 0 {
			return c, errNotJSON
		}
		key := unquote(msg[i:end])
		i = space(msg, end)
		if i >= len(msg) || msg[i] != ':' {
			return c, errNotJSON
		}
		i = space(msg, i+1)
		end = value(msg, i)
		if end < 0 {
			return c, errNotJSON
		}
		v := msg[i:end]
		switch string(key) {
		case "id":
			n, e := strconv.ParseInt(string(v), 10, 32)
			switch {
			case c.hasID:
				note(errTwice)
			case e != nil:
				note(errNoID)
			default:
				c.id, c.hasID = n, true
			}
		case "method":
			switch {
			case seenMethod:
				note(errTwice)
			case v[0] != '"':
				note(errNoMethod)
			default:
				c.method = unquote(v)
			}
			seenMethod = true
		case "params":
			switch {
			case seenParams:
				note(errTwice)
			case v[0] != '{' && v[0] != 'n':
				note(errBadParams)
			default:
				c.params = v
			}
			seenParams = true
		case "sessionId":
			switch {
			case c.inSession:
				note(errTwice)
			case v[0] != '"':
				note(errBadSession)
			default:
				c.session = v[1 : len(v)-1]
			}
			c.inSession = true
		default:
			note(errOther)
		}
		i = space(msg, end)
		if i >= len(msg) {
			return c, errNotJSON
		}
		if msg[i] == '}' {
			break
		}
		if msg[i] != ',' {
			return c, errNotJSON
		}
		i = space(msg, i+1)
	}
	c.end = i
	if space(msg, i+1) != len(msg) {
		return c, errNotJSON
	}
	if !c.hasID {
		return c, errNoID
	}
	if problem == nil && len(c.method) == 0 {
		problem = errNoMethod
	}
	return c, problem
}

// space returns the index of the first byte from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// str returns the index behind the string that starts at i, or -1.
func str(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		i = plain(b, i)
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

// plain returns the index of the first byte from i on that a string may not simply
// hold. It looks at eight bytes in one step.
func plain(b []byte, i int) int {
	const (
		ones = 0x0101010101010101
		tops = 0x8080808080808080
	)
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, escape := w^(ones*'"'), w^(ones*'\\')
		// A byte is zero, or less than a space, where borrowing sets its top bit.
		// What borrows go on to set above it is wrong, but the lowest is right.
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

// number returns the index behind the number that starts at i, or -1.
func number(b []byte, i int) int {
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

// value returns the index behind the JSON value that starts at i, or -1.
func value(b []byte, i int) int {
	var open [maxDepth]byte // the closing brackets that are awaited
	depth := 0
	for {
		// A value starts at i.
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			i = str(b, i)
		case c == '{' || c == '[':
			if depth == maxDepth {
				return -1
			}
			open[depth] = c + 2 // '{' and '}' stand two apart, as do '[' and ']'
			depth++
			i = space(b, i+1)
			if i < len(b) && b[i] == open[depth-1] {
				depth--
				i++
				break
			}
			if c == '{' {
				if i = member(b, i); i < 0 {
					return -1
				}
			}
			continue
		case bytes.HasPrefix(b[i:], []byte("true")), bytes.HasPrefix(b[i:], []byte("null")):
			i += 4
		case bytes.HasPrefix(b[i:], []byte("false")):
			i += 5
		default:
			i = number(b, i)
		}
		// A value ends before i: close what closes, or go to the next.
		for {
			if i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			i = space(b, i)
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
			i = space(b, i+1)
			if open[depth-1] == '}' {
				if i = member(b, i); i < 0 {
					return -1
				}
			}
			break
		}
	}
}

// member returns the index of the value whose key starts at i, or -1.
func member(b []byte, i int) int {
	if i = str(b, i); i < 0 {
		return -1
	}
	if i = space(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return space(b, i+1)
}

// unquote returns what the JSON string means; without escapes that is part of
// it.
func unquote(quoted []byte) []byte {
	inside := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	return unescape(inside)
}

// answer is what Chrome's messages tell at a glance. Chrome writes the id or the
// method first and the session last, without white space.
type answer struct {
	id      int64
	isReply bool
	isError bool   // of a reply
	session []byte // empty: the root
	strip   int    // where the message ends without its session, before the brace
}

var (
	sessionKey = []byte(`,"sessionId":"`)
	idKey      = []byte(`{"id":`)
	errorKey   = []byte(`,"error":`)
)

// glance reads the envelope of one message from Chrome without parsing it. The
// session is found from the end: `,"sessionId":"X"}` there can only be the
// message's own last member, since the quotes of anything inside a string are
// escaped and anything nested ends in more than one bracket.
func glance(msg []byte) answer {
	var a answer
	a.strip = len(msg) - 1
	if bytes.HasPrefix(msg, idKey) {
		i := len(idKey)
		for ; i < len(msg) && (msg[i] == '-' || msg[i] >= '0' && msg[i] <= '9'); i++ {
		}
		if n, err := strconv.ParseInt(string(msg[len(idKey):i]), 10, 64); err == nil {
			a.id, a.isReply = n, true
			a.isError = bytes.HasPrefix(msg[i:], errorKey)
		}
	}
	if !bytes.HasSuffix(msg, []byte(`"}`)) {
		return a
	}
	quote := bytes.LastIndexByte(msg[:len(msg)-2], '"')
	if quote < 0 || !bytes.HasSuffix(msg[:quote+1], sessionKey) {
		return a
	}
	a.session = msg[quote+1 : len(msg)-2]
	a.strip = quote + 1 - len(sessionKey)
	return a
}

// unescape decodes the inside of a JSON string that has escapes: rare, since no
// client escapes what needs none.
func unescape(inside []byte) []byte {
	quoted := make([]byte, 0, len(inside)+2)
	quoted = append(append(append(quoted, '"'), inside...), '"')
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return inside
	}
	return []byte(s)
}
