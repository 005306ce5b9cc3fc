package monitor

import (
	"sync"

	"leasehold/cdpproxy"
)

// sockets remembers the URLs of websockets: the events of their messages do not have them.
type sockets struct {
	mu   sync.Mutex
	urls map[string]string // by request id
}

func newSockets() *sockets { return &sockets{urls: map[string]string{}} }

// forget forgets all websockets.
func (s *sockets) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.urls)
}

// observe takes in the event of a new websocket.
func (s *sockets) observe(event cdpproxy.Event) {
	var r struct {
		RequestID string `json:"requestId"`
		URL       string `json:"url"`
	}
	if event.Method == eventWebSocketCreated && decode(event, &r) {
		s.mu.Lock()
		defer s.mu.Unlock()
		remember(s.urls, r.RequestID, r.URL)
	}
}

// url is the URL of a websocket, empty if it is not known.
func (s *sockets) url(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[id]
}
