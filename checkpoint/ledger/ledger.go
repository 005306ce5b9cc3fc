// Package ledger keeps what Chrome reports of the requests of pages: each request once, from its
// first event to its last. It is pure: it has no lock and no goroutine, and is given the time.
package ledger

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"leasehold/internal/reads"
)

// The events of a request, in the order in which they usually come.
const (
	Sent     = "Network.requestWillBeSent" // of each hop
	Answered = "Network.responseReceived"  // of the last hop; the answer to another one is in the event of the next
	Finished = "Network.loadingFinished"
	Failed   = "Network.loadingFailed"
)

// Events are the CDP events that a Ledger takes, of each target.
var Events = []string{Sent, Answered, Finished, Failed}

// Event is a CDP event.
type Event struct {
	Session string
	Method  string
	Params  json.RawMessage // the ledger keeps them
	At      time.Time
	Token   uint64 // of the run to which the event belongs
}

// Request is what is known of one request. A chain of redirects is one request with several hops.
type Request struct {
	Session string // the CDP session that reports it; one that several report is several requests
	ID      string // Chrome's
	Hops    []Hop
	Ended   bool // it has finished or failed

	kind kind
}

// Hop is one request of a chain of redirects. The events' parameters are kept as they came; of
// long ones only what is read.
type Hop struct {
	Number     int // among the hops of all pages, in the order in which they began
	At         time.Time
	Token      uint64
	Unsafe     bool // it may have changed something
	Failed     bool
	Sent       json.RawMessage
	Redirected json.RawMessage // the event of the next hop, which has the answer to this one
	Answered   json.RawMessage
	Ended      json.RawMessage
}

// kind is what decides how long a request is kept.
type kind int

const (
	reading  kind = iota // none of its hops may have changed something
	unsafe               // one may
	ofChrome             // it is one of Chrome's own pages: they load hundreds of files from Chrome itself
	kinds
)

// maxEnded is how many requests that have ended are kept, the newest of each kind. So what a page
// loads does not crowd out what it sent.
var maxEnded = [kinds]int{reading: 300, unsafe: 1000, ofChrome: 50}

// maxOpen is how many requests are kept that have not ended. It is a variable for the tests alone.
var maxOpen = 4096

const (
	// maxHops is how many hops a request may have. Chrome follows twenty redirects.
	maxHops = 32
	// maxParams is the size, in bytes, up to which an event's parameters are kept as they came.
	// Those of a request may contain what it sends.
	maxParams = 8 << 10
	// maxURL is how many bytes of a URL are kept if the parameters are longer than that.
	maxURL = 4 << 10
)

// Ledger has the requests of a browser. The zero value is empty.
type Ledger struct {
	hops  int               // of all pages, kept or not
	kept  [kinds][]*Request // in the order in which they began
	ended [kinds]int
	open  int
	known map[key]*Request // the last one of each key
}

type key struct{ session, id string }

// Take takes in one of Events. It ignores others, and parameters that are not Chrome's.
func (l *Ledger) Take(e Event) {
	if !slices.Contains(Events, e.Method) {
		return
	}
	if len(e.Params) > maxParams {
		var err error
		if e.Params, err = shorten(e.Params); err != nil {
			return
		}
	}
	id := text(e.Params, `"requestId":"`)
	if id == "" {
		return
	}
	r := l.known[key{e.Session, id}]
	if e.Method == Sent {
		l.sent(r, id, e)
		return
	}
	if r == nil {
		return
	}
	switch last := &r.Hops[len(r.Hops)-1]; e.Method {
	case Answered:
		last.Answered = e.Params
	case Finished, Failed:
		last.Ended, last.Failed = e.Params, e.Method == Failed
		l.end(r)
	}
}

// sent takes in the event of a hop. r is the last request with its id, or nil.
func (l *Ledger) sent(r *Request, id string, e Event) {
	h := Hop{At: e.At, Token: e.Token, Unsafe: !reads.Event(e.Params), Sent: e.Params}
	if r == nil || r.Ended || len(r.Hops) == maxHops {
		r = &Request{Session: e.Session, ID: id}
		if ofChromesPage(text(e.Params, `"documentURL":"`)) {
			r.kind = ofChrome
		}
		l.add(r)
	} else {
		r.Hops[len(r.Hops)-1].Redirected = e.Params
	}
	if r.kind != ofChrome {
		l.hops++
		h.Number = l.hops
	}
	r.Hops = append(r.Hops, h)
	if h.Unsafe && r.kind == reading {
		l.leave(r)
		r.kind = unsafe
		l.kept[unsafe] = append(l.kept[unsafe], r)
	}
}

// add keeps a new request. If too many have not ended, the oldest of them is given up, first one that only reads.
func (l *Ledger) add(r *Request) {
	if l.known == nil {
		l.known = map[key]*Request{}
	}
	for k := kind(0); l.open >= maxOpen; k++ {
		if i := slices.IndexFunc(l.kept[k], func(r *Request) bool { return !r.Ended }); i >= 0 {
			l.end(l.kept[k][i])
		}
	}
	l.open++
	l.known[key{r.Session, r.ID}] = r
	l.kept[r.kind] = append(l.kept[r.kind], r)
}

// end takes in that a request has ended, and drops the oldest one of its kind that has, if there are too many.
func (l *Ledger) end(r *Request) {
	if r.Ended {
		return
	}
	r.Ended = true
	l.open--
	if l.ended[r.kind]++; l.ended[r.kind] <= maxEnded[r.kind] {
		return
	}
	l.ended[r.kind]--
	oldest := l.kept[r.kind][slices.IndexFunc(l.kept[r.kind], func(r *Request) bool { return r.Ended })]
	l.leave(oldest)
	if k := (key{oldest.Session, oldest.ID}); l.known[k] == oldest {
		delete(l.known, k)
	}
}

// leave takes a request out of those of its kind.
func (l *Ledger) leave(r *Request) {
	i := slices.Index(l.kept[r.kind], r)
	l.kept[r.kind] = slices.Delete(l.kept[r.kind], i, i+1)
}

// Hops returns the newest hops of pages in the order in which they began, and the number of all
// that began: at most reading of those that only read, and at most unsafe of the others.
func (l *Ledger) Hops() (hops []Hop, total int) {
	for _, k := range []kind{reading, unsafe} {
		for _, r := range l.kept[k] {
			hops = append(hops, r.Hops...)
		}
	}
	slices.SortFunc(hops, func(a, b Hop) int { return b.Number - a.Number })
	var n [kinds]int
	hops = slices.DeleteFunc(hops, func(h Hop) bool {
		k := reading
		if h.Unsafe {
			k = unsafe
		}
		n[k]++
		return n[k] > maxEnded[k]
	})
	slices.Reverse(hops)
	return hops, l.hops
}

// text returns the JSON text that follows the first occurrence of start, which ends with the quote
// before the text. It is "" if there is none, or if it contains an escape; ids, methods and schemes
// never do. Chrome writes the requested members before everything that a page can influence, except
// the request's own URL, and inside a text a quote is preceded by a backslash.
func text(params []byte, start string) string {
	_, rest, found := bytes.Cut(params, []byte(start))
	text, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended || bytes.IndexByte(text, '\\') >= 0 {
		return ""
	}
	return string(text)
}

// ofChromesPage tells whether a document is one of Chrome's own pages, such as the new tab page.
func ofChromesPage(url string) bool {
	return strings.HasPrefix(url, "chrome://") || strings.HasPrefix(url, "chrome-untrusted://") || strings.HasPrefix(url, "devtools://")
}

// Params is what is read of the parameters of Events once a request is judged.
type Params struct {
	RequestID   string `json:"requestId"`
	DocumentURL string `json:"documentURL"`
	Type        string `json:"type"`
	Request     struct {
		URL    string `json:"url"`
		Method string `json:"method"`
	} `json:"request"`
	RedirectResponse *Response `json:"redirectResponse,omitempty"`
	Response         Response  `json:"response"`
	Bytes            float64   `json:"encodedDataLength"`
	ErrorText        string    `json:"errorText"`
	Canceled         bool      `json:"canceled"`
}

// Response is an answer.
type Response struct {
	Status int     `json:"status"`
	Bytes  float64 `json:"encodedDataLength"`
}

// shorten returns the parameters without what is not in Params.
func shorten(params json.RawMessage) (json.RawMessage, error) {
	var p Params
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	p.Request.URL, p.DocumentURL = shortURL(p.Request.URL), shortURL(p.DocumentURL)
	return json.Marshal(p)
}

// shortURL returns a long URL without its query, and no more of its path than is kept.
func shortURL(url string) string {
	if len(url) <= maxURL {
		return url
	}
	if url, _, _ = strings.Cut(url, "?"); len(url) <= maxURL {
		return url
	}
	url = url[:maxURL]
	if i := strings.LastIndexByte(url, '/'); i > 0 {
		url = url[:i+1] // not in the middle of an escape
	}
	return url
}
