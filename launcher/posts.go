package launcher

import (
	"bytes"
	"encoding/json"
	"sync"

	"leasehold/cdpproxy"
)

// posts know which of the POSTs that pages sent were answered with success, and the
// URLs of websockets. The pipe's reader tells them: of other requests hardly anything
// is read.
type posts struct {
	mu      sync.Mutex
	status  map[string]int    // by request id; zero is no answer yet
	sockets map[string]string // URL by request id
}

func newPosts() *posts { return &posts{status: map[string]int{}, sockets: map[string]string{}} }

// forget forgets what was sent.
func (p *posts) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.status)
	clear(p.sockets)
}

var aPost = []byte(`"method":"POST"`)

func (p *posts) hear(event cdpproxy.Event) {
	switch event.Method {
	case "Network.requestWillBeSent":
		// A GET that has it in its text is one too many, which does no harm.
		if bytes.Contains(event.Params[:min(len(event.Params), maxHead)], aPost) {
			p.mu.Lock()
			remember(p.status, firstMember(event.Params), 0)
			p.mu.Unlock()
		}
	case "Network.responseReceived":
		id := firstMember(event.Params)
		p.mu.Lock()
		_, known := p.status[id]
		p.mu.Unlock()
		if !known {
			return
		}
		var r struct {
			Response struct {
				Status int `json:"status"`
			} `json:"response"`
		}
		if json.Unmarshal(event.Params, &r) == nil {
			p.mu.Lock()
			remember(p.status, id, r.Response.Status)
			p.mu.Unlock()
		}
	case "Network.webSocketCreated":
		var r struct {
			RequestID string `json:"requestId"`
			URL       string `json:"url"`
		}
		if json.Unmarshal(event.Params, &r) == nil {
			p.mu.Lock()
			remember(p.sockets, r.RequestID, r.URL)
			p.mu.Unlock()
		}
	}
}

// maxHead is up to where the method of a request stands, if its URL is no longer
// than most.
const maxHead = 4 << 10

// firstMember returns the value of the first member, which is the request's id in
// all of these events; empty where it is not.
func firstMember(params []byte) string {
	rest, ok := bytes.CutPrefix(params, []byte(`{"requestId":"`))
	id, _, ended := bytes.Cut(rest, []byte(`"`))
	if !ok || !ended {
		return ""
	}
	return string(id)
}

// answer tells whether a request was answered with success; known is false while
// there is no answer.
func (p *posts) answer(id string) (success, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status[id]
	return status >= 200 && status < 300, status != 0
}

// socket returns a websocket's URL, if it is known.
func (p *posts) socket(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sockets[id]
}
