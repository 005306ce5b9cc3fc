package cdpproxy

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// command is the envelope of a message from a client. Its slices are parts of the
// message.
type command struct {
	id         int64
	hasID      bool
	method     []byte
	params     []byte // a JSON value, or empty
	sessionID  []byte // as the client wrote it, without the quotes
	hasSession bool
	// emptySession says that the session is "", which is the connection's own.
	emptySession bool
	lastBrace    int // index of the message's last brace
}

// tracked tells whether trackCommand has to see the command.
func (c command) tracked() bool {
	return bytes.HasPrefix(c.method, fetchDomain) || string(c.method) == letRunCommand
}

var fetchDomain = []byte("Fetch.")

// clone returns a copy of what the launcher's own reply needs from the command.
func (c command) clone() command {
	c.method, c.sessionID, c.params = bytes.Clone(c.method), bytes.Clone(c.sessionID), nil
	return c
}

// Error is the error of a CDP reply.
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
	codeInvalidParams  = -32602
)

var (
	errReleased      = &Error{codeServer, "leasehold: the session is released, and takes no more commands"}
	errNotJSON       = &Error{codeParse, "JSON: the message is not one valid JSON object"}
	errBadUTF8       = &Error{codeParse, "JSON: the message is not UTF-8"}
	errNoID          = &Error{codeInvalidRequest, "Message must have integer 'id' property"}
	errNoMethod      = &Error{codeInvalidRequest, "Message must have string 'method' property"}
	errBadSession    = &Error{codeInvalidRequest, "Message may have string 'sessionId' property"}
	errBadParams     = &Error{codeInvalidRequest, "Message may have object 'params' property"}
	errUnknownMember = &Error{codeInvalidRequest, "Message has property other than 'id', 'method', 'sessionId', 'params'"}
	errDuplicate     = &Error{codeInvalidRequest, "Message has a property twice"}
	errSessionGone   = &Error{codeNoSession, "Session with given id not found."}
)

// scan reads the envelope of one message, and checks that all of it is strict JSON. Chrome must
// never get a message that it would read differently than scan does: a zero byte, for example,
// would end the message on the pipe, and what follows it would be another message. If there is
// an id, it is set even if an error is returned.
func scan(msg []byte) (c command, err *Error) {
	if !utf8.Valid(msg) {
		return c, errBadUTF8
	}
	i := skipSpace(msg, 0)
	if i == len(msg) || msg[i] != '{' {
		return c, errNotJSON
	}
	var problem *Error
	fail := func(e *Error) { // the first one counts
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
				fail(errDuplicate)
			case e != nil:
				fail(errNoID)
			default:
				c.id, c.hasID = n, true
			}
		case "method":
			switch {
			case seenMethod:
				fail(errDuplicate)
			case v[0] != '"':
				fail(errNoMethod)
			default:
				c.method = unquote(v)
			}
			seenMethod = true
		case "params":
			switch {
			case seenParams:
				fail(errDuplicate)
			case v[0] != '{' && v[0] != '[' && v[0] != 'n': // Chrome takes [] for no parameters
				fail(errBadParams)
			default:
				c.params = v
			}
			seenParams = true
		case "sessionId":
			switch {
			case c.hasSession:
				fail(errDuplicate)
			case v[0] != '"':
				fail(errBadSession)
			default:
				c.sessionID = v[1 : len(v)-1]
				c.emptySession = len(c.sessionID) == 0
			}
			c.hasSession = true
		default:
			fail(errUnknownMember)
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
	c.hasSession = c.hasSession && !c.emptySession
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
