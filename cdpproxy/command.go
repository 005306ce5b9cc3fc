package cdpproxy

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// command is the envelope of a message from a client. The slices point into the
// message.
type command struct {
	id         int64
	hasID      bool
	method     []byte
	params     []byte // a JSON value, or empty
	sessionID  []byte // as written, between its quotes
	hasSession bool
	lastBrace  int // where the message's last brace stands
}

// tracked tells whether the command changes what is known of its peer.
func (c command) tracked() bool {
	return bytes.HasPrefix(c.method, fetchDomain) || string(c.method) == "Runtime.runIfWaitingForDebugger"
}

var fetchDomain = []byte("Fetch.")

// clone is what an answer of ours needs of the command, in memory of its own.
func (c command) clone() command {
	c.method, c.sessionID, c.params = bytes.Clone(c.method), bytes.Clone(c.sessionID), nil
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
	errNotJSON       = &Error{codeParse, "JSON: the message is not one valid JSON object"}
	errBadUTF8       = &Error{codeParse, "JSON: the message is not UTF-8"}
	errNoID          = &Error{codeInvalidRequest, "Message must have integer 'id' property"}
	errNoMethod      = &Error{codeInvalidRequest, "Message must have string 'method' property"}
	errBadSession    = &Error{codeInvalidRequest, "Message may have string 'sessionId' property"}
	errBadParams     = &Error{codeInvalidRequest, "Message may have object 'params' property"}
	errUnknownMember = &Error{codeInvalidRequest, "Message has property other than 'id', 'method', 'params', 'sessionId'"}
	errDuplicate     = &Error{codeInvalidRequest, "Message has a property twice"}
	errSessionGone   = &Error{codeNoSession, "Session with given id not found."}
)

// scan reads the envelope of one message and checks that the whole of it is
// strict JSON: what follows the first byte that Chrome would understand
// differently (a NUL ends a message on the pipe) must never reach it. The id is
// set, where there is one, also when an error is returned.
func scan(msg []byte) (c command, err *Error) {
	if !utf8.Valid(msg) {
		return c, errBadUTF8
	}
	i := skipSpace(msg, 0)
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
	i = skipSpace(msg, i+1)
	for first := true; ; first = false {
		if i >= len(msg) {
			return c, errNotJSON
		}
		if msg[i] == '}' && first {
			break
		}
		end := skipString(msg, i)
		if end < 0 {
			return c, errNotJSON
		}
		key := unquote(msg[i:end])
		i = skipSpace(msg, end)
		if i >= len(msg) || msg[i] != ':' {
			return c, errNotJSON
		}
		i = skipSpace(msg, i+1)
		end = skipValue(msg, i)
		if end < 0 {
			return c, errNotJSON
		}
		v := msg[i:end]
		switch string(key) {
		case "id":
			n, e := strconv.ParseInt(string(v), 10, 32)
			switch {
			case c.hasID:
				note(errDuplicate)
			case e != nil:
				note(errNoID)
			default:
				c.id, c.hasID = n, true
			}
		case "method":
			switch {
			case seenMethod:
				note(errDuplicate)
			case v[0] != '"':
				note(errNoMethod)
			default:
				c.method = unquote(v)
			}
			seenMethod = true
		case "params":
			switch {
			case seenParams:
				note(errDuplicate)
			case v[0] != '{' && v[0] != 'n':
				note(errBadParams)
			default:
				c.params = v
			}
			seenParams = true
		case "sessionId":
			switch {
			case c.hasSession:
				note(errDuplicate)
			case v[0] != '"':
				note(errBadSession)
			default:
				c.sessionID = v[1 : len(v)-1]
			}
			c.hasSession = true
		default:
			note(errUnknownMember)
		}
		i = skipSpace(msg, end)
		if i >= len(msg) {
			return c, errNotJSON
		}
		if msg[i] == '}' {
			break
		}
		if msg[i] != ',' {
			return c, errNotJSON
		}
		i = skipSpace(msg, i+1)
	}
	c.lastBrace = i
	if skipSpace(msg, i+1) != len(msg) {
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
