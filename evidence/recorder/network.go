package recorder

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"
)

// NetworkPart is the name of the part that Network makes, of kind
// evidence.KindNetwork.
const NetworkPart = "network.json"

// keptRequests is how many requests are kept, and keptRequestEvents how many events:
// most requests have three.
const (
	keptRequests      = 300
	keptRequestEvents = 3 * keptRequests
)

// The events of a request, in the order in which they come.
const (
	requestWillBeSent = "Network.requestWillBeSent"
	responseReceived  = "Network.responseReceived"
	loadingFinished   = "Network.loadingFinished"
	loadingFailed     = "Network.loadingFailed"
)

// NetworkEvents are the CDP events that Network.See wants, of each target.
var NetworkEvents = []string{requestWillBeSent, responseReceived, loadingFinished, loadingFailed}

// Network records the last requests that pages made. It keeps no header, cookie or
// body, and no value in a URL. The zero value is ready; its methods are safe for
// concurrent use. See is cheap enough for the reader of a browser's pipe: parameters are
// decoded by Part.
type Network struct {
	ring  ring[requestEvent]
	began atomic.Int64 // requests, kept or not
}

// requestEvent is an event as it came.
type requestEvent struct {
	at              time.Time
	token           uint64
	session, method string
	params          json.RawMessage
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
	// Bytes came over the network.
	Bytes int64 `json:"bytes"`
	// Failed is Chrome's name of the error; empty where there was none.
	Failed string `json:"failed,omitempty"`
}

// requestParams is what is read of an event's parameters.
type requestParams struct {
	RequestID string `json:"requestId"`
	Type      string `json:"type"`
	Request   struct {
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

// See records one of NetworkEvents, and keeps params. session is the CDP session that
// it came on; a request that is seen on two sessions is recorded twice. Other events,
// and parameters that do not fit their event, are ignored.
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
	if method == requestWillBeSent {
		n.began.Add(1)
	}
	n.ring.add(keptRequestEvents, requestEvent{at, token, session, method, params})
}

// shortenParams returns only those parameters that Part reads.
func shortenParams(params json.RawMessage) (json.RawMessage, error) {
	var p requestParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	p.Request.URL = cleanURL(p.Request.URL)
	return json.Marshal(p)
}

// Forget drops what was recorded and starts the count again.
func (n *Network) Forget() {
	n.ring.reset()
	n.began.Store(0)
}

// Part returns what was recorded: {"total","dropped","entries"}, the oldest first.
func (n *Network) Part() []byte {
	events, _ := n.ring.last()
	requests := requestLog{open: map[string]*RequestEntry{}}
	for _, e := range events {
		requests.add(e)
	}
	var entries []RequestEntry
	for _, e := range requests.all[max(0, len(requests.all)-keptRequests):] {
		entries = append(entries, *e)
	}
	return encodePart(max(int(n.began.Load()), len(entries)), entries)
}

// requestLog puts requests together from their events.
type requestLog struct {
	all  []*RequestEntry
	open map[string]*RequestEntry // the last request of each CDP session and request id
}

func (l *requestLog) add(v requestEvent) {
	var p requestParams
	if json.Unmarshal(v.params, &p) != nil || p.RequestID == "" {
		return
	}
	key := v.session + " " + p.RequestID
	e := l.open[key]
	if v.method == requestWillBeSent {
		if e != nil && p.RedirectResponse != nil {
			e.Status, e.Bytes = p.RedirectResponse.Status, int64(p.RedirectResponse.Bytes)
		}
		e = &RequestEntry{
			At: v.at.UTC(), LeaseToken: v.token, Method: cleanWord(p.Request.Method), URL: cleanURL(p.Request.URL), Type: cleanWord(p.Type),
		}
		l.all, l.open[key] = append(l.all, e), e
		return
	}
	if e == nil {
		return // the request began before the events that are kept
	}
	switch v.method {
	case responseReceived:
		e.Status, e.Bytes = p.Response.Status, int64(p.Response.Bytes)
	case loadingFinished:
		e.Bytes = int64(p.Bytes)
	case loadingFailed:
		if e.Failed = cleanText(p.ErrorText); p.Canceled {
			e.Failed = "canceled"
		}
	}
}
