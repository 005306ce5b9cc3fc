// Package ledger keeps what Chrome reports of the requests of pages: each request once, from its
// first event to its last. It is pure: it has no lock and no goroutine, and is given the time.
package ledger

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"leasehold/internal/boottime"
	"leasehold/internal/reads"
)

// The events of a request, in the order in which they usually come.
const (
	Sent     = "Network.requestWillBeSent" // of each hop
	Answered = "Network.responseReceived"  // of the last hop; the answer to another one is in the event of the next
	Finished = "Network.loadingFinished"
	Failed   = "Network.loadingFailed"
	// Headers has the headers of the answer to a hop as they arrived, including those that set
	// cookies. Chrome reports it before or after the other events.
	Headers = "Network.responseReceivedExtraInfo"
	// Carried has what Chrome itself added to a hop, and says that its network service sends the
	// hop. Chrome reports it before or after Sent.
	Carried = "Network.requestWillBeSentExtraInfo"
	// Socket begins a websocket, which has no other of these events.
	Socket = "Network.webSocketCreated"
)

// Events are the CDP events that a Ledger takes, of each target.
var Events = []string{Sent, Answered, Finished, Failed, Headers, Carried, Socket}

// GivenUp stands in a fact for an event that Chrome did not send: the request is not followed any
// more, because too many are.
const GivenUp = "given up"

// Event is a CDP event.
type Event struct {
	Session string
	Method  string
	Params  json.RawMessage // the ledger keeps them
	At      time.Time
	Boot    boottime.Instant // the same on the kernel's clock
	Token   uint64           // of the run to which the event belongs
}

// Request is what is known of one request. A chain of redirects is one request with several hops.
type Request struct {
	Session string // the CDP session that reports it; one that several report is several requests
	ID      string // Chrome's
	Hops    []Hop  // empty until Chrome reports the first one
	Ended   bool   // it has finished or failed

	URL      string // of a websocket
	Loader   string // the document that makes it, or that it loads
	Document bool   // it loads one
	Left     int    // how many of its hops Chrome's network service sent
	// Cookies and Credentials say that it carried cookies, and a header by which a site knows an
	// account.
	Cookies, Credentials bool
	// Kept says that a worker has paused it and kept it from being sent.
	Kept bool

	// What those who judge requests keep.
	//
	// Name, Method and LastURL are those of the hop that was reported last. Reported says which were
	// reported, or are sent by nobody, and which messages on a websocket were since the last checkpoint.
	Name, Method, LastURL string
	Reported              []string
	// MadeAt is when the hop that was reported last was made, by Chrome's clock, and Counted says that it is
	// taken to leave the browser. Told is set if it then was taken for one that the journal has as reported by
	// no page: when the last of these was sent. Withheld is how many of that hop, or of the messages, are kept
	// back because the browser stands still.
	MadeAt   float64
	Counted  bool
	Told     time.Duration
	Withheld int
	// lastMessage is when the last message on a websocket was sent, by Chrome's clock.
	lastMessage float64
	// Unsent says that it has ended, and nothing says yet that the network service sent its last hop.
	// Refused is why the browser says that it did not; empty: it does not.
	Unsent  bool
	Refused string
	// Pending says that an unsafe hop has not been answered.
	Pending bool
	// Loading says that it loads the document of a page. Asked is the URL that was asked for first;
	// Moved says that a redirect led elsewhere temporarily.
	Loading, Moved bool
	Asked          string
	// Get is set for a GET that somebody may have caused.
	Get *Get
	// Page is the request for the document of the page that made it, if only what Chrome added to
	// this one can have told the site about the account, and it is not known yet whether it did.
	Page *Request

	kind    kind
	headers int               // number of answers of which the headers came
	knows   []bool            // of each hop that was sent, in order: it carried cookies or credentials
	early   []json.RawMessage // those of the next hops, which are not known yet
}

// Get is what is known of a GET for a document, or one that a script made.
type Get struct {
	// From is the URL of the page that sent the request, Asked the URL that was requested, and
	// Final the one that answered in the end. They differ after redirects, whose statuses are
	// Redirects.
	From, Asked, Final string
	Redirects          []int
	// Status is the status of the last answer; 0 if there was none.
	Status int
	// Empty says that the answer has no content.
	Empty bool
	// Acted says that the request followed an act of the worker's on its page.
	Acted bool
	// Agreed says that somebody answered a confirm dialog of the page with yes just before.
	Agreed bool
	// Picture says that a press led to a picture that the page's markup had not asked for.
	Picture bool
	// Reloaded says that the page loaded itself anew when the answer came.
	Reloaded bool
	// Writes is the line in the file of its site that says that it changes something; empty: none
	// does.
	Writes string

	Frame    string
	MadeAt   float64   // when it was made, by Chrome's clock
	Pressed  bool      // it asks for a picture, and followed from a press
	Open     bool      // it has neither been answered nor ended
	Unsent   bool      // it has ended, and nothing says yet that it was sent
	Answered time.Time // zero if it was not
}

// Fact is what an event says of a request.
type Fact struct {
	Event
	Request *Request
	Hop     int // the place in Hops of the one that the event is about; -1 if it is not known yet
}

// Hop is one request of a chain of redirects. The events' parameters are kept as they came; of
// long ones only what is read.
type Hop struct {
	Number     int // among the hops of all pages, in the order in which they began
	At         time.Time
	Boot       boottime.Instant
	Token      uint64
	Unsafe     bool // it may have changed something
	Typed      bool // it is unsafe, and of a page into which the worker had typed
	Failed     bool
	Sent       json.RawMessage
	Redirected json.RawMessage // the event of the next hop, which has the answer to this one
	Answered   json.RawMessage
	Ended      json.RawMessage
}

// kind is what decides how long a request is kept.
type kind int

const (
	reading   kind = iota // none of its hops may have changed something
	unsafe                // one may
	ofChrome              // it is one of Chrome's own pages: they load hundreds of files from Chrome itself
	socket                // it is a websocket; it counts as one that has ended
	unclaimed             // none of its hops is known yet; it counts as one that has ended
	kinds
)

// maxEnded is how many requests that have ended are kept, the newest of each kind. So what a page
// loads does not crowd out what it sent.
var maxEnded = [kinds]int{reading: 300, unsafe: 1000, ofChrome: 50, socket: 1000, unclaimed: 500}

// maxOpen is how many requests are kept that have not ended. It is a variable for the tests alone.
var maxOpen = 4096

const (
	// maxEarly is how many answers of hops that are not known yet may wait for them.
	maxEarly = 4
	// maxHops is how many hops a request may have. Chrome follows twenty redirects.
	maxHops = 32
	// maxReported is how many reports of a request are remembered.
	maxReported = 256
	// maxParams is the size, in bytes, up to which an event's parameters are kept as they came.
	// Those of a request may contain what it sends.
	maxParams = 8 << 10
	// maxURL is how many bytes of a URL are kept if the parameters are longer than that.
	maxURL = 32 << 10
)

// Ledger has the requests of a browser. The zero value is empty.
type Ledger struct {
	hops  int               // of all pages, kept or not
	kept  [kinds][]*Request // in the order in which they began
	ended [kinds]int
	open  int
	known map[string][]*Request // the last one of each id and session, by id
	facts []Fact                // those that Take returned last, and what became known since
	taken int                   // number of those that it returned
}

// Take takes in one of Events, and returns what it says, which is valid until the next call.
// It ignores other events, and parameters that are not Chrome's.
func (l *Ledger) Take(e Event) []Fact {
	l.facts = slices.Delete(l.facts, 0, l.taken)
	if slices.Contains(Events, e.Method) {
		if id := text(e.Params, `"requestId":"`); id != "" {
			l.take(id, e)
		}
	}
	l.taken = len(l.facts)
	return l.facts
}

func (l *Ledger) take(id string, e Event) {
	kept := e.Params
	if len(kept) > maxParams && e.Method != Headers && e.Method != Carried {
		var err error
		if kept, err = shorten(kept); err != nil {
			return
		}
	}
	if e.Method == Sent {
		l.sent(id, e, kept)
		return
	}
	r := l.find(e.Session, id)
	switch {
	case e.Method == Finished || e.Method == Failed:
		if r == nil || len(r.Hops) == 0 {
			return
		}
	case r == nil:
		r = l.claimLater(e.Session, id)
	}
	if e.Method == Socket {
		var p struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(e.Params, &p) == nil && r.kind == unclaimed {
			l.remove(r)
			r.kind, r.URL = socket, p.URL
			l.put(r)
		}
		return
	}
	f := Fact{Event: e, Request: r, Hop: len(r.Hops) - 1}
	switch e.Method {
	case Headers:
		if f.Hop = r.headers; f.Hop >= len(r.Hops) {
			if len(r.early) == maxEarly {
				return
			}
			r.early, f.Hop = append(r.early, e.Params), -1
		}
		r.headers++
	case Carried:
		lower := bytes.ToLower(e.Params)
		r.Left++
		cookies, credentials := bytes.Contains(e.Params, sentCookie), bytes.Contains(lower, authorization) || bytes.Contains(lower, cookieHeader)
		r.Cookies, r.Credentials = r.Cookies || cookies, r.Credentials || credentials
		if len(r.knows) < maxHops {
			r.knows = append(r.knows, cookies || credentials)
		}
	case Answered:
		if f.Hop >= 0 {
			r.Hops[f.Hop].Answered = kept
		}
	default:
		r.Hops[f.Hop].Ended, r.Hops[f.Hop].Failed = kept, e.Method == Failed
		l.end(r)
	}
	l.facts = append(l.facts, f)
}

var (
	sentCookie = []byte(`"blockedReasons":[]`)
	// headers by which a site knows an account. A worker can add them to a paused request, in any case,
	// and then Chrome reports no cookie of its own.
	cookieHeader  = []byte(`"cookie":"`)
	authorization = []byte(`authorization":"`)
)

// Lookup returns the request with an id, of whatever session; nil if none is known.
func (l *Ledger) Lookup(id string) *Request { return l.find("", id) }

// Known returns the request with an id, of whatever session. If none is known, the next one that is
// reported under that id is meant.
func (l *Ledger) Known(id string) *Request {
	if r := l.Lookup(id); r != nil {
		return r
	}
	return l.claimLater("", id)
}

// claimLater keeps what is known of a request until its first hop is reported.
func (l *Ledger) claimLater(session, id string) *Request {
	if l.known == nil {
		l.known = map[string][]*Request{}
	}
	r := &Request{Session: session, ID: id, kind: unclaimed, Ended: true}
	l.known[id] = append(l.known[id], r)
	l.put(r)
	return r
}

// find returns the request that a session reports under an id, or else the one that another session
// reports; nil if none does.
func (l *Ledger) find(session, id string) *Request {
	all := l.known[id]
	if i := slices.IndexFunc(all, func(r *Request) bool { return r.Session == session }); i >= 0 {
		return all[i]
	}
	if len(all) > 0 {
		return all[0]
	}
	return nil
}

func (l *Ledger) sent(id string, e Event, kept json.RawMessage) {
	h := Hop{At: e.At, Boot: e.Boot, Token: e.Token, Unsafe: !reads.Event(kept), Sent: kept}
	r := l.find(e.Session, id)
	switch {
	case r != nil && r.Session == e.Session && !r.Ended && len(r.Hops) < maxHops:
		r.Hops[len(r.Hops)-1].Redirected = kept
		if h.Unsafe && r.kind == reading {
			l.remove(r)
			r.kind = unsafe
			l.put(r)
		}
	case r != nil && r.kind == unclaimed:
		l.remove(r)
		r.Session, r.Ended, r.kind = e.Session, false, kindOf(h)
		l.put(r)
	default:
		r = &Request{Session: e.Session, ID: id, kind: kindOf(h)}
		l.put(r)
		if l.known == nil {
			l.known = map[string][]*Request{}
		}
		l.known[id] = append(slices.DeleteFunc(l.known[id], func(o *Request) bool { return o.Session == e.Session }), r)
	}
	if r.kind != ofChrome {
		l.hops++
		h.Number = l.hops
	}
	r.Hops = append(r.Hops, h)
	r.Loader = text(kept, `"loaderId":"`)
	r.Document = r.Loader == id
	f := Fact{Event: e, Request: r, Hop: len(r.Hops) - 1}
	l.facts = append(l.facts, f)
	if len(r.early) > 0 {
		f.Method, f.Params, r.early = Headers, r.early[0], r.early[1:]
		l.facts = append(l.facts, f)
	}
}

func kindOf(h Hop) kind {
	switch {
	case ofChromesPage(text(h.Sent, `"documentURL":"`)):
		return ofChrome
	case h.Unsafe:
		return unsafe
	}
	return reading
}

// put keeps a request. If too many have not ended, the oldest of them is given up, first one that
// only reads.
func (l *Ledger) put(r *Request) {
	if r.Ended {
		l.kept[r.kind] = append(l.kept[r.kind], r)
		l.count(r.kind)
		return
	}
	for k := kind(0); l.open >= maxOpen; k++ {
		if i := slices.IndexFunc(l.kept[k], func(r *Request) bool { return !r.Ended }); i >= 0 {
			l.giveUp(l.kept[k][i])
			l.end(l.kept[k][i])
		}
	}
	l.open++
	l.kept[r.kind] = append(l.kept[r.kind], r)
}

// end takes in that a request has ended.
func (l *Ledger) end(r *Request) {
	if !r.Ended {
		r.Ended = true
		l.open--
		l.count(r.kind)
	}
}

// count counts one more request of a kind that has ended, and drops the oldest one if there are
// too many.
func (l *Ledger) count(k kind) {
	if l.ended[k]++; l.ended[k] > maxEnded[k] {
		oldest := l.kept[k][slices.IndexFunc(l.kept[k], func(r *Request) bool { return r.Ended })]
		l.remove(oldest)
		if oldest.Pending {
			l.giveUp(oldest)
		}
		if all := slices.DeleteFunc(l.known[oldest.ID], func(r *Request) bool { return r == oldest }); len(all) > 0 {
			l.known[oldest.ID] = all
		} else {
			delete(l.known, oldest.ID)
		}
	}
}

// giveUp adds the fact that a request is not followed any more.
func (l *Ledger) giveUp(r *Request) {
	l.facts = append(l.facts, Fact{Event: Event{Session: r.Session, Method: GivenUp}, Request: r, Hop: len(r.Hops) - 1})
}

// remove takes a request out of those of its kind.
func (l *Ledger) remove(r *Request) {
	i := slices.Index(l.kept[r.kind], r)
	l.kept[r.kind] = slices.Delete(l.kept[r.kind], i, i+1)
	if r.Ended {
		l.ended[r.kind]--
	} else {
		l.open--
	}
}

// All are the requests that are kept.
func (l *Ledger) All() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for _, list := range l.kept {
			for _, r := range list {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Message takes in that a message was sent on a websocket, at a time of Chrome's clock. It tells whether
// that message was taken in before: each session that follows the page reports it.
func (r *Request) Message(at float64) (again bool) {
	again = at <= r.lastMessage
	r.lastMessage = max(r.lastMessage, at)
	return again
}

// Knows tells whether the hop at a place among those that were sent is known to have carried cookies or
// credentials.
func (r *Request) Knows(hop int) bool { return hop < len(r.knows) && r.knows[hop] }

// Report takes in that a hop is reported, or a kind of message on a websocket, and tells whether it
// was before.
func (r *Request) Report(what string) (before bool) {
	if slices.Contains(r.Reported, what) {
		return true
	}
	if len(r.Reported) == maxReported {
		r.Reported = slices.Delete(r.Reported, 0, 1)
	}
	r.Reported = append(r.Reported, what)
	return false
}

// ForgetMessages has the next message of each kind on each websocket reported again.
func (l *Ledger) ForgetMessages() {
	for r := range l.All() {
		if r.lastMessage > 0 {
			r.Reported = nil
		}
	}
}

// OfPage tells whether a page made the request, and not one of Chrome's own.
func (r *Request) OfPage() bool { return r.kind != ofChrome }

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
	LoaderID    string `json:"loaderId"`
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

func shortURL(url string) string {
	if len(url) <= maxURL {
		return url
	}
	url = url[:maxURL]
	if i := strings.LastIndexByte(url, '/'); i > 0 && !strings.Contains(url, "?") {
		url = url[:i+1] // not in the middle of an escape
	}
	return url
}
