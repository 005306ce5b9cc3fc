package recorder

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/internal/reads"
)

// NetworkPart is the name of the part that Network makes, of kind
// evidence.KindNetwork.
const NetworkPart = "network.json"

// How many requests are kept: the newest keptRequests of those that only read, and the newest
// keptUnsafe of the unsafe ones, which may have changed something. So what a page loads does
// not crowd out what it sent.
const (
	keptRequests = 300
	keptUnsafe   = 1000
)

// The events of a request, in the order in which they come.
const (
	requestWillBeSent = "Network.requestWillBeSent"
	responseReceived  = "Network.responseReceived"
	loadingFinished   = "Network.loadingFinished"
	loadingFailed     = "Network.loadingFailed"
)

// maxEvents is how many events of one request are kept. A request has four at most, even with a
// redirect; Chrome's ids are only reused in a session of days.
const maxEvents = 8

// NetworkEvents are the CDP events that Network.See wants, of each target.
var NetworkEvents = []string{requestWillBeSent, responseReceived, loadingFinished, loadingFailed}

// Network records the last requests that pages made, without those of Chrome's own
// pages. It keeps no header, cookie or body, and no value in a URL. The zero value is
// ready; its methods are safe for concurrent use. See is cheap enough for the reader of
// a browser's pipe: parameters are decoded by Part.
type Network struct {
	mu    sync.Mutex
	total int // requests, kept or not
	// reading and unsafe are the kept requests, oldest first.
	reading, unsafe []*request
	open            map[requestKey]*request // the last one of each key, while it is kept
}

// requestKey is a CDP session, and Chrome's id of a request on it. All requests of a
// chain of redirects have one id.
type requestKey struct{ session, id string }

// request is one request, with its events as they came. In a chain of redirects, the event that
// begins the next request is also the last one of the request before.
type request struct {
	key    requestKey
	number int // in the order in which they began
	events []requestEvent
}

// requestEvent is an event as it came.
type requestEvent struct {
	at     time.Time
	token  uint64
	method string
	params json.RawMessage
}

// maxRequestParams is the size, in bytes, up to which an event's parameters are kept
// as they came. Those of a request may contain what it sends.
const maxRequestParams = 8 << 10

// RequestEntry is one request in the part. A redirect is a request of its own.
type RequestEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	Method     string    `json:"method"`
	URL        string    `json:"url"`
	Type       string    `json:"type,omitempty"` // as Chrome names it: Document, XHR, ...
	// Status is zero as long as there is no answer.
	Status int `json:"status"`
	// Bytes is the number of bytes that came over the network.
	Bytes int64 `json:"bytes"`
	// Failed is Chrome's name of the error; empty if there was none.
	Failed string `json:"failed,omitempty"`
}

// requestParams is what is read of an event's parameters.
type requestParams struct {
	RequestID   string `json:"requestId"`
	DocumentURL string `json:"documentURL"`
	Type        string `json:"type"`
	Request     struct {
		URL    string `json:"url"`
		Method string `json:"method"`
	} `json:"request"`
	RedirectResponse *requestResponse `json:"redirectResponse,omitempty"`
	Response         requestResponse  `json:"response"`
	Bytes            float64          `json:"encodedDataLength"`
	ErrorText        string           `json:"errorText"`
	Canceled         bool             `json:"canceled"`
}

type requestResponse struct {
	Status int     `json:"status"`
	Bytes  float64 `json:"encodedDataLength"`
}

// See records one of NetworkEvents, and keeps params. session is the CDP session on which it
// came; a request that is seen on two sessions is recorded twice. Other events, and parameters
// that do not fit their event, are ignored.
func (n *Network) See(at time.Time, token uint64, session, method string, params json.RawMessage) {
	if !slices.Contains(NetworkEvents, method) {
		return
	}
	if len(params) > maxRequestParams {
		var err error
		if params, err = shortenParams(params); err != nil {
			return
		}
	}
	id := textBehind(params, `"requestId":"`)
	if id == "" {
		return
	}
	key, event := requestKey{session, id}, requestEvent{at, token, method, params}
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.open[key]
	if before != nil && len(before.events) < maxEvents {
		before.events = append(before.events, event)
	}
	if method == requestWillBeSent && !ofChrome(textBehind(params, `"documentURL":"`)) {
		n.begin(key, event, !reads.Event(params))
	}
}

// begin keeps a new request. If there are too many of its kind, it replaces the oldest.
func (n *Network) begin(key requestKey, event requestEvent, unsafe bool) {
	n.total++
	kept, most := &n.reading, keptRequests
	if unsafe {
		kept, most = &n.unsafe, keptUnsafe
	}
	if len(*kept) == most {
		oldest := (*kept)[0]
		*kept = slices.Delete(*kept, 0, 1)
		if n.open[oldest.key] == oldest {
			delete(n.open, oldest.key)
		}
	}
	r := &request{key: key, number: n.total, events: []requestEvent{event}}
	*kept = append(*kept, r)
	if n.open == nil {
		n.open = map[requestKey]*request{}
	}
	n.open[key] = r
}

// textBehind returns the JSON text that follows the first occurrence of start, which ends with
// the quote before the text. It is "" if there is none, or if it contains an escape; ids,
// methods and schemes never do. Chrome writes the requested members before everything that a
// page can influence, except the request's own URL, and inside a text a quote is preceded by a
// backslash.
func textBehind(params []byte, start string) string {
	_, rest, found := bytes.Cut(params, []byte(start))
	text, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended || bytes.IndexByte(text, '\\') >= 0 {
		return ""
	}
	return string(text)
}

// ofChrome tells whether a document is one of Chrome's own pages, such as the new tab page.
// They load hundreds of files from Chrome itself.
func ofChrome(url string) bool {
	return strings.HasPrefix(url, "chrome://") || strings.HasPrefix(url, "chrome-untrusted://") || strings.HasPrefix(url, "devtools://")
}

// shortenParams returns only those parameters that Part reads.
func shortenParams(params json.RawMessage) (json.RawMessage, error) {
	var p requestParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	p.Request.URL, p.DocumentURL = cleanURL(p.Request.URL), cleanURL(p.DocumentURL)
	return json.Marshal(p)
}

// Forget drops what was recorded and starts the count again.
func (n *Network) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total, n.reading, n.unsafe, n.open = 0, nil, nil, nil
}

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (n *Network) Part() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := slices.Concat(n.reading, n.unsafe)
	slices.SortFunc(kept, func(a, b *request) int { return a.number - b.number })
	var entries []RequestEntry
	for _, r := range kept {
		if e, ok := r.entry(); ok {
			entries = append(entries, e)
		}
	}
	return encodePart(n.total, entries)
}

// entry makes an entry of a request's events; false if the first one is not what Chrome sends.
func (r *request) entry() (e RequestEntry, ok bool) {
	for i, v := range r.events {
		var p requestParams
		if json.Unmarshal(v.params, &p) != nil {
			if i == 0 {
				return e, false
			}
			continue
		}
		switch {
		case i == 0:
			e = RequestEntry{
				At: v.at.UTC(), LeaseToken: v.token, Method: cleanWord(p.Request.Method), URL: cleanURL(p.Request.URL), Type: cleanWord(p.Type),
			}
		case v.method == requestWillBeSent && p.RedirectResponse != nil:
			e.Status, e.Bytes = p.RedirectResponse.Status, int64(p.RedirectResponse.Bytes)
		case v.method == responseReceived:
			e.Status, e.Bytes = p.Response.Status, int64(p.Response.Bytes)
		case v.method == loadingFinished:
			e.Bytes = int64(p.Bytes)
		case v.method == loadingFailed:
			if e.Failed = cleanText(p.ErrorText); p.Canceled {
				e.Failed = "canceled"
			}
		}
	}
	return e, true
}
