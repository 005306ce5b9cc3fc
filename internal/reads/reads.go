// Package reads tells which of the requests that Chrome reports only read, as far as their method
// says: GET and HEAD, and the preflights that Chrome itself sends before it lets a page ask another
// origin. A page can send OPTIONS as well, with the account's cookies and a body.
package reads

import (
	"bytes"
	"strings"
)

// Method tells whether a request of this method only reads.
func Method(method string) bool { return method == "GET" || method == "HEAD" }

// Paused tells whether a request that Chrome paused only reads. No page can set the header of a
// preflight.
func Paused(method string, headers map[string]string) bool {
	if method == options {
		for name := range headers {
			if strings.EqualFold(name, "Access-Control-Request-Method") {
				return true
			}
		}
	}
	return Method(method)
}

const options = "OPTIONS"

var (
	methodMember = []byte(`"method":"`)
	preflight    = []byte(`"initiator":{"type":"preflight"`)
)

// Event tells whether a request only reads, from the parameters of its Network.requestWillBeSent,
// or the beginning of them with the method. The first "method" in them is the request's own, and
// the initiator is the only object of its name: quotes inside of a text are escaped.
func Event(params []byte) bool {
	_, rest, found := bytes.Cut(params, methodMember)
	method, _, ended := bytes.Cut(rest, []byte(`"`))
	return found && ended && (Method(string(method)) || string(method) == options && bytes.Contains(rest, preflight))
}
