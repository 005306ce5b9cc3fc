package monitor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"leasehold/cdpproxy"
)

// eventHeaders has the headers of an answer as they arrived, including those that set cookies.
const eventHeaders = "Network.responseReceivedExtraInfo"

// maxExchanges is how many requests are remembered until the headers of their answers come.
const maxExchanges = 512

// exchanges pairs requests with the headers of their answers. Chrome reports the two in any
// order, and gives all hops of a chain of redirects the same id.
type exchanges struct {
	known map[exchangeKey]*exchange
	order []exchangeKey
}

type exchangeKey struct{ session, id string }

type exchange struct {
	hops    []hop
	answers int
	early   map[int]cookieAnswer // by the number of a hop whose request was not reported yet
}

// hop is one request of a chain of redirects.
type hop struct {
	session string
	params  json.RawMessage // of Network.requestWillBeSent
	// typed says that it is an unsafe request of a page into which the worker had typed.
	typed bool
}

// cookieAnswer is the part of an answer's headers that matters for cookies.
type cookieAnswer struct {
	status  int
	lines   []string // the Set-Cookie values that Chrome accepted
	cleared bool     // Clear-Site-Data says that all cookies are to be removed
}

// empty tells whether an answer changes no cookie.
func (a cookieAnswer) empty() bool { return len(a.lines) == 0 && !a.cleared }

func (x *exchanges) of(key exchangeKey) *exchange {
	e := x.known[key]
	if e != nil {
		return e
	}
	if x.known == nil {
		x.known = map[exchangeKey]*exchange{}
	}
	if len(x.order) >= maxExchanges {
		delete(x.known, x.order[0])
		x.order = slices.Delete(x.order, 0, 1)
	}
	e = &exchange{}
	x.known[key] = e
	x.order = append(x.order, key)
	return e
}

// request takes in a request, and returns the answer to it if the answer came first.
func (x *exchanges) request(key exchangeKey, h hop) (cookieAnswer, bool) {
	e := x.of(key)
	e.hops = append(e.hops, h)
	a, early := e.early[len(e.hops)-1]
	delete(e.early, len(e.hops)-1)
	return a, early
}

// answer takes in the headers of an answer, and returns the request if it is known.
func (x *exchanges) answer(key exchangeKey, a cookieAnswer) (hop, bool) {
	e := x.of(key)
	n := e.answers
	e.answers++
	if a.empty() {
		return hop{}, false
	}
	if n < len(e.hops) {
		return e.hops[n], true
	}
	if e.early == nil {
		e.early = map[int]cookieAnswer{}
	}
	e.early[n] = a
	return hop{}, false
}

// parseCookieAnswer reads the parameters of eventHeaders. It is cheap for an answer that
// changes no cookie.
func parseCookieAnswer(event cdpproxy.Event) cookieAnswer {
	if !bytes.Contains(event.Params, []byte("ookie")) && !bytes.Contains(event.Params, []byte("OOKIE")) &&
		!bytes.Contains(bytes.ToLower(event.Params), []byte("clear-site-data")) {
		return cookieAnswer{}
	}
	var p struct {
		Headers map[string]string `json:"headers"`
		Status  int               `json:"statusCode"`
		Blocked []struct {
			Line string `json:"cookieLine"`
		} `json:"blockedCookies"`
	}
	if !decode(event, &p) {
		return cookieAnswer{}
	}
	a := cookieAnswer{status: p.Status}
	for name, value := range p.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Set-Cookie":
			for line := range bytes.Lines([]byte(value)) { // Chrome puts one header on each line
				text := string(bytes.TrimSpace(line))
				refused := slices.ContainsFunc(p.Blocked, func(b struct {
					Line string `json:"cookieLine"`
				}) bool {
					return b.Line == text
				})
				if text != "" && !refused {
					a.lines = append(a.lines, text)
				}
			}
		case "Clear-Site-Data":
			a.cleared = a.cleared || bytes.Contains([]byte(value), []byte(`"cookies"`)) || bytes.Contains([]byte(value), []byte(`"*"`))
		}
	}
	return a
}

// sentRequest has the members of Network.requestWillBeSent that are needed.
type sentRequest struct {
	Type    string `json:"type"`
	Request struct {
		URL    string `json:"url"`
		Method string `json:"method"`
	} `json:"request"`
}

// the ends of the parameters of Network.requestWillBeSent.
const eventTail = 256

var documentType = []byte(`"type":"Document"`)

// isDocument tells whether a request is for the document of a page or frame.
func isDocument(params []byte) bool {
	return bytes.Contains(params[max(0, len(params)-eventTail):], documentType)
}

// maxHead is how many bytes of an event are searched for the request's method. The method comes
// after the URL, and few URLs are longer.
const maxHead = 4 << 10

// requestID returns the request's id, which is the first member of these events. It is
// empty if another member comes first.
func requestID(params json.RawMessage) string {
	rest, ok := bytes.CutPrefix(params, []byte(`{"requestId":"`))
	id, _, ended := bytes.Cut(rest, []byte(`"`))
	if !ok || !ended {
		return ""
	}
	return string(id)
}
