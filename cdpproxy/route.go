package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"leasehold/internal/boottime"
)

// Traffic is something that a page sent, or printed, as the browser told a peer of
// it.
type Traffic struct {
	// Method is the CDP event: Network.requestWillBeSent (of an unsafe
	// method) or Network.webSocketFrameSent; or, where a client asked the
	// browser for them, Runtime.consoleAPICalled or Runtime.exceptionThrown.
	Method string
	// Params are nil of what was printed, where they are longer than
	// MaxPrinted.
	Params json.RawMessage
	// Acted is Mux.Acted, when this was sent.
	Acted boottime.Instant
}

// MaxPrinted is the size of the longest parameters of something printed that is
// reported, in bytes.
const MaxPrinted = 16 << 10

var (
	attachedEvent  = []byte(`{"method":"Target.attachedToTarget",`)
	detachedEvent  = []byte(`{"method":"Target.detachedFromTarget",`)
	pausedEvent    = []byte(`{"method":"Fetch.requestPaused",`)
	authEvent      = []byte(`{"method":"Fetch.authRequired",`)
	requestEvent   = []byte(`{"method":"Network.requestWillBeSent",`)
	frameSentEvent = []byte(`{"method":"Network.webSocketFrameSent",`)
	methodMember   = []byte(`"method":"`)
	consoleEvent   = []byte(`{"method":"Runtime.consoleAPICalled",`)
	exceptionEvent = []byte(`{"method":"Runtime.exceptionThrown",`)

	targetCreatedEvent = []byte(`{"method":"Target.targetCreated",`)
	targetChangedEvent = []byte(`{"method":"Target.targetInfoChanged",`)
	attachedTrue       = []byte(`"attached":true`)
	attachedFalse      = []byte(`"attached":false`)
)

// route hands one message from Chrome to the peer that it belongs to. It is true
// where the message was not copied, but is kept.
func (m *Mux) route(msg []byte) bool {
	if len(msg) < 2 || msg[len(msg)-1] != '}' {
		return false
	}
	a := parseBrowserMessage(msg)
	m.replySeen = m.replySeen || a.isReply
	if len(a.sessionID) == 0 {
		if a.isReply {
			m.calls.complete(a.id, msg)
		}
		return false
	}
	m.mu.Lock()
	p := m.owners[string(a.sessionID)]
	m.mu.Unlock()
	if p == nil {
		return false
	}
	if a.isReply {
		m.noteOpened(msg)
	} else {
		m.trackEvent(p, a, msg)
	}
	return p.deliver(a, msg)
}

// watch keeps the tables that follow from what Chrome says: children, paused
// requests, and what pages send.
func (m *Mux) trackEvent(p *Peer, a browserMessage, msg []byte) {
	switch {
	case bytes.HasPrefix(msg, attachedEvent), bytes.HasPrefix(msg, detachedEvent):
		var e struct {
			Params struct {
				SessionID  string `json:"sessionId"`
				Waiting    bool   `json:"waitingForDebugger"`
				TargetInfo struct {
					TargetID string `json:"targetId"`
				} `json:"targetInfo"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) != nil || e.Params.SessionID == "" {
			return
		}
		if bytes.HasPrefix(msg, detachedEvent) {
			m.mu.Lock()
			delete(m.owners, e.Params.SessionID)
			delete(m.clientTargets, e.Params.SessionID)
			m.mu.Unlock()
			m.ledger.append(lineDetached, e.Params.SessionID)
			p.childDetached(e.Params.SessionID)
			return
		}
		m.mu.Lock()
		m.owners[e.Params.SessionID] = p
		if !p.hasObserver() && !p.inherited {
			m.clientTargets[e.Params.SessionID] = e.Params.TargetInfo.TargetID
		}
		m.mu.Unlock()
		m.ledger.append(lineAttached, p.id, e.Params.SessionID)
		p.log.setTarget(e.Params.SessionID, e.Params.TargetInfo.TargetID)
		p.childAttached(e.Params.SessionID, e.Params.Waiting)
	case bytes.HasPrefix(msg, pausedEvent), bytes.HasPrefix(msg, authEvent):
		var e struct {
			Params struct {
				RequestID string `json:"requestId"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) == nil {
			p.requestPaused(pausedRequest{string(a.sessionID), e.Params.RequestID}, bytes.HasPrefix(msg, authEvent))
		}
	case bytes.HasPrefix(msg, requestEvent):
		if unsafeRequest(msg) {
			m.reportTraffic("Network.requestWillBeSent", msg)
		}
	case bytes.HasPrefix(msg, frameSentEvent):
		m.reportTraffic("Network.webSocketFrameSent", msg)
	case bytes.HasPrefix(msg, consoleEvent), bytes.HasPrefix(msg, exceptionEvent):
		// They come by the thousand: nothing is parsed.
		method, params := splitEvent(msg, a)
		if len(params) > MaxPrinted {
			params = nil
		}
		m.traffic(Traffic{Method: string(method), Params: bytes.Clone(params)})
	}
}

// hideEyes takes the launcher's own attachment out of what a client is told of a
// target: with the eyes on every page none would look free, and a client that
// waits for one would wait for ever.
func (m *Mux) hideObserver(msg []byte) []byte {
	if !bytes.HasPrefix(msg, targetCreatedEvent) && !bytes.HasPrefix(msg, targetChangedEvent) {
		return msg
	}
	// Quotes inside a title or URL are escaped, so this is the member.
	at := bytes.LastIndex(msg, attachedTrue)
	var e struct {
		Params struct {
			TargetInfo struct {
				TargetID string `json:"targetId"`
				Type     string `json:"type"`
			} `json:"targetInfo"`
		} `json:"params"`
	}
	// To the browser itself the client is attached: by its own session.
	if at < 0 || json.Unmarshal(msg, &e) != nil || e.Params.TargetInfo.Type == "browser" {
		return msg
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, target := range m.clientTargets {
		if target == e.Params.TargetInfo.TargetID {
			return msg
		}
	}
	return slices.Concat(msg[:at], attachedFalse, msg[at+len(attachedTrue):])
}

// unsafeRequest tells whether a requestWillBeSent is of a method that may change
// something. The request's own method is the second member of that name, and the
// quotes of one in a URL would be escaped.
func unsafeRequest(msg []byte) bool {
	rest := msg[len(requestEvent):]
	i := bytes.Index(rest, methodMember)
	if i < 0 {
		return true
	}
	rest = rest[i+len(methodMember):]
	for _, safe := range []string{`GET"`, `HEAD"`, `OPTIONS"`} {
		if bytes.HasPrefix(rest, []byte(safe)) {
			return false
		}
	}
	return true
}

func (m *Mux) reportTraffic(method string, msg []byte) {
	var e struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		m.traffic(Traffic{Method: method, Params: e.Params, Acted: m.Acted()})
	}
}
