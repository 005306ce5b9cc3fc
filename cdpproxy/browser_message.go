package cdpproxy

import (
	"bytes"
	"strconv"
)

var (
	sessionKey = []byte(`,"sessionId":"`)
	idKey      = []byte(`{"id":`)
	errorKey   = []byte(`,"error":`)
)

// browserMessage is the envelope of a reply or an event of the browser. Chrome writes the id or
// the method first and the session last, without white space.
type browserMessage struct {
	id        int64
	isReply   bool
	isError   bool   // the reply is an error
	sessionID []byte // part of the message; empty: the root session
	bodyEnd   int    // length of the message without its session and its last brace
}

// parseBrowserMessage reads the envelope of one message from Chrome without parsing the rest.
// It looks for the session from the end: there `,"sessionId":"X"}` can only be the message's
// own last member, because quotes inside a string are escaped, and a nested member would be
// followed by more than one bracket.
func parseBrowserMessage(msg []byte) browserMessage {
	var parsed browserMessage
	parsed.bodyEnd = len(msg) - 1
	if bytes.HasPrefix(msg, idKey) {
		i := len(idKey)
		for ; i < len(msg) && (msg[i] == '-' || msg[i] >= '0' && msg[i] <= '9'); i++ {
		}
		if n, err := strconv.ParseInt(string(msg[len(idKey):i]), 10, 64); err == nil {
			parsed.id, parsed.isReply = n, true
			parsed.isError = bytes.HasPrefix(msg[i:], errorKey)
		}
	}
	if !bytes.HasSuffix(msg, []byte(`"}`)) {
		return parsed
	}
	quote := bytes.LastIndexByte(msg[:len(msg)-2], '"')
	if quote < 0 || !bytes.HasSuffix(msg[:quote+1], sessionKey) {
		return parsed
	}
	parsed.sessionID = msg[quote+1 : len(msg)-2]
	parsed.bodyEnd = quote + 1 - len(sessionKey)
	return parsed
}

var (
	methodFirst = []byte(`{"method":"`)
	paramsNext  = []byte(`,"params":`)
)

// splitEvent returns the method of an event, which Chrome writes first, and its
// parameters, which come next and last, without parsing it. Both are empty if msg has
// another form.
func splitEvent(msg []byte, parsed browserMessage) (method, params []byte) {
	rest, ok := bytes.CutPrefix(msg[:parsed.bodyEnd], methodFirst)
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return nil, nil
	}
	method = rest[:end]
	params, _ = bytes.CutPrefix(rest[end+1:], paramsNext)
	return method, params
}
