package evidence

import (
	"encoding/json"
	"time"
)

// NetworkPart is the name of the part that Network makes, of kind KindNetwork.
const NetworkPart = "network.json"

const keptRequests = 300

// NetworkEvents are the CDP events that Network.See wants, of each target.
var NetworkEvents = []string{
	"Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished", "Network.loadingFailed",
}

// Network records the last requests that pages made: no header, no cookie, no
// body, and of URLs no value. The zero value is ready; its methods may be called
// at the same time.
type Network struct {
	ring ring[request]
}

type request struct {
	key string // CDP session and request id
	RequestEntry
}

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

// See takes over what one of NetworkEvents says. session is the CDP session that
// it came on; the same request seen on two sessions is recorded twice. Other
// events, and parameters that are not theirs, are passed over.
func (n *Network) See(at time.Time, token uint64, session, method string, params json.RawMessage) {
	var p struct {
		RequestID string `json:"requestId"`
		Type      string `json:"type"`
		Request   struct {
			URL    string `json:"url"`
			Method string `json:"method"`
		} `json:"request"`
		RedirectResponse *networkResponse `json:"redirectResponse"`
		Response         networkResponse  `json:"response"`
		Bytes            float64          `json:"encodedDataLength"`
		ErrorText        string           `json:"errorText"`
		Canceled         bool             `json:"canceled"`
	}
	if json.Unmarshal(params, &p) != nil || p.RequestID == "" {
		return
	}
	key := session + " " + p.RequestID
	switch method {
	case "Network.requestWillBeSent":
		if p.RedirectResponse != nil {
			n.change(key, func(e *request) {
				e.Status, e.Bytes, e.key = p.RedirectResponse.Status, int64(p.RedirectResponse.Bytes), ""
			})
		}
		n.ring.add(keptRequests, func(e *request) {
			*e = request{key, RequestEntry{
				At: at.UTC(), LeaseToken: token, Method: word(p.Request.Method), URL: bareURL(p.Request.URL), Type: word(p.Type),
			}}
		})
	case "Network.responseReceived":
		n.change(key, func(e *request) { e.Status, e.Bytes = p.Response.Status, int64(p.Response.Bytes) })
	case "Network.loadingFinished":
		n.change(key, func(e *request) { e.Bytes = int64(p.Bytes) })
	case "Network.loadingFailed":
		n.change(key, func(e *request) {
			if e.Failed = browserText(p.ErrorText); p.Canceled {
				e.Failed = "canceled"
			}
		})
	}
}

type networkResponse struct {
	Status int     `json:"status"`
	Bytes  float64 `json:"encodedDataLength"`
}

// change finds a request that is still kept, the newest first.
func (n *Network) change(key string, fn func(*request)) {
	n.ring.mu.Lock()
	defer n.ring.mu.Unlock()
	var found *request
	n.ring.each(func(e *request) {
		if e.key == key {
			found = e
		}
	})
	if found != nil {
		fn(found)
	}
}

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (n *Network) Part() []byte {
	n.ring.mu.Lock()
	defer n.ring.mu.Unlock()
	var entries []RequestEntry
	n.ring.each(func(e *request) { entries = append(entries, e.RequestEntry) })
	return encodeRecorded(n.ring.total, entries)
}
