package monitor

import (
	"bytes"
	"encoding/json"
	"sync"

	"leasehold/cdpproxy"
)

// outcomes remembers which POSTs of pages were answered with success, and the URLs of
// websockets. The pipe's reader calls observe for every request, so almost nothing is parsed of
// requests that are not POSTs.
type outcomes struct {
	mu      sync.Mutex
	status  map[string]int    // by request id; zero while there is no answer
	sockets map[string]string // URL by request id
}

func newOutcomes() *outcomes {
	return &outcomes{status: map[string]int{}, sockets: map[string]string{}}
}

// forget forgets all requests.
func (o *outcomes) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.status)
	clear(o.sockets)
}

var methodPOST = []byte(`"method":"POST"`)

// observe takes in the event of a request, of its answer, or of a new websocket.
func (o *outcomes) observe(event cdpproxy.Event) {
	switch event.Method {
	case eventRequest:
		// A GET that contains this text is remembered, too, which does no harm.
		if bytes.Contains(event.Params[:min(len(event.Params), maxHead)], methodPOST) {
			o.mu.Lock()
			remember(o.status, requestID(event.Params), 0)
			o.mu.Unlock()
		}
	case eventResponse:
		id := requestID(event.Params)
		o.mu.Lock()
		_, known := o.status[id]
		o.mu.Unlock()
		if !known {
			return
		}
		var r struct {
			Response struct {
				Status int `json:"status"`
			} `json:"response"`
		}
		if decode(event, &r) {
			o.mu.Lock()
			remember(o.status, id, r.Response.Status)
			o.mu.Unlock()
		}
	case eventWebSocketCreated:
		var r struct {
			RequestID string `json:"requestId"`
			URL       string `json:"url"`
		}
		if decode(event, &r) {
			o.mu.Lock()
			remember(o.sockets, r.RequestID, r.URL)
			o.mu.Unlock()
		}
	}
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

// of tells whether a request was answered with success. known is false until it is
// answered.
func (o *outcomes) of(id string) (success, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	status := o.status[id]
	return status >= 200 && status < 300, status != 0
}

// socketURL is the URL of a websocket, empty if it is not known.
func (o *outcomes) socketURL(id string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sockets[id]
}
