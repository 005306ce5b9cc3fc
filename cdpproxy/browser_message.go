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

// answer is what Chrome's messages tell at a glance. Chrome writes the id or the
// method first and the session last, without white space.
type browserMessage struct {
	id        int64
	isReply   bool
	isError   bool   // of a reply
	sessionID []byte // empty: the root
	bodyEnd   int    // where the message ends without its session, before the brace
}

// glance reads the envelope of one message from Chrome without parsing it. The
// session is found from the end: `,"sessionId":"X"}` there can only be the
// message's own last member, since the quotes of anything inside a string are
// escaped and anything nested ends in more than one bracket.
func parseBrowserMessage(msg []byte) browserMessage {
	var a browserMessage
	a.bodyEnd = len(msg) - 1
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
	a.sessionID = msg[quote+1 : len(msg)-2]
	a.bodyEnd = quote + 1 - len(sessionKey)
	return a
}

var (
	methodFirst = []byte(`{"method":"`)
	paramsNext  = []byte(`,"params":`)
)

// cutEvent cuts the method, which Chrome writes first, and the parameters, which
// come next and last, out of an event without parsing it: both are empty where it
// is of another form.
func splitEvent(msg []byte, a browserMessage) (method, params []byte) {
	rest, ok := bytes.CutPrefix(msg[:a.bodyEnd], methodFirst)
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return nil, nil
	}
	method = rest[:end]
	params, _ = bytes.CutPrefix(rest[end+1:], paramsNext)
	return method, params
}
