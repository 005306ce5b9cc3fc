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

const keptRequests = 300

// NetworkEvents are the CDP events that Network.See wants, of each target.
var NetworkEvents = []string{
	"Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished", "Network.loadingFailed",
}

// Network records the last requests that pages made: no header, no cookie, no
// body, and of URLs no value. The zero value is ready; its methods may be called
// at the same time. See is cheap enough for the reader of a browser's pipe: it
// leaves the reading to Part.
type Network struct {
	ring  ring[networkEvent]
	began atomic.Int64 // requests
}

// keptEvents are those of keptRequests, as most requests go.
const keptEvents = 3 * keptRequests

// networkEvent is one as it came.
type networkEvent struct {
	at              time.Time
	token           uint64
	session, method string
	params          json.RawMessage
}

// maxNetworkEvent is the size of the longest parameters that are kept as they
// came, in bytes: those of a request may hold what it sends.
const maxNetworkEvent = 8 << 10

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

// networkParams are what is read of an event's parameters.
type networkParams struct {
	RequestID string `json:"requestId"`
	Type      string `json:"type"`
	Request   struct {
		URL    string `json:"url"`
		Method string `json:"method"`
	} `json:"request"`
	RedirectResponse *networkResponse `json:"redirectResponse,omitempty"`
	Response         networkResponse  `json:"response"`
	Bytes            float64          `json:"encodedDataLength"`
	ErrorText        string           `json:"errorText"`
	Canceled         bool             `json:"canceled"`
}

type networkResponse struct {
	Status int     `json:"status"`
	Bytes  float64 `json:"encodedDataLength"`
}

// See takes over what one of NetworkEvents says, and keeps params. session is the
// CDP session that it came on; the same request seen on two sessions is recorded
// twice. Other events, and parameters that are not theirs, are passed over.
func (n *Network) See(at time.Time, token uint64, session, method string, params json.RawMessage) {
	if !slices.Contains(NetworkEvents, method) {
		return
	}
	if len(params) > maxNetworkEvent {
		var p networkParams
		err := json.Unmarshal(params, &p)
		p.Request.URL = bareURL(p.Request.URL)
		if params, _ = json.Marshal(p); err != nil { // texts and numbers always marshal
			return
		}
	}
	if method == NetworkEvents[0] {
		n.began.Add(1)
	}
	n.ring.add(keptEvents, func(kept *networkEvent) { *kept = networkEvent{at, token, session, method, params} })
}

// Forget begins anew, with nothing recorded.
func (n *Network) Forget() {
	n.ring.forget()
	n.began.Store(0)
}

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (n *Network) Part() []byte {
	n.ring.mu.Lock()
	defer n.ring.mu.Unlock()
	var all []*RequestEntry
	open := map[string]*RequestEntry{} // by CDP session and request id
	n.ring.each(func(v *networkEvent) {
		var p networkParams
		if json.Unmarshal(v.params, &p) != nil || p.RequestID == "" {
			return
		}
		key := v.session + " " + p.RequestID
		e := open[key]
		if v.method == "Network.requestWillBeSent" {
			if e != nil && p.RedirectResponse != nil {
				e.Status, e.Bytes = p.RedirectResponse.Status, int64(p.RedirectResponse.Bytes)
			}
			e = &RequestEntry{
				At: v.at.UTC(), LeaseToken: v.token, Method: word(p.Request.Method), URL: bareURL(p.Request.URL), Type: word(p.Type),
			}
			all, open[key] = append(all, e), e
			return
		}
		if e == nil {
			return // it began before what is kept
		}
		switch v.method {
		case "Network.responseReceived":
			e.Status, e.Bytes = p.Response.Status, int64(p.Response.Bytes)
		case "Network.loadingFinished":
			e.Bytes = int64(p.Bytes)
		case "Network.loadingFailed":
			if e.Failed = browserText(p.ErrorText); p.Canceled {
				e.Failed = "canceled"
			}
		}
	})
	var entries []RequestEntry
	for _, e := range all[max(0, len(all)-keptRequests):] {
		entries = append(entries, *e)
	}
	return encodeRecorded(max(int(n.began.Load()), len(entries)), entries)
}
