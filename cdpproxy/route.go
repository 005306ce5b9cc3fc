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
	attached     = []byte(`{"method":"Target.attachedToTarget",`)
	detached     = []byte(`{"method":"Target.detachedFromTarget",`)
	paused       = []byte(`{"method":"Fetch.requestPaused",`)
	authRequired = []byte(`{"method":"Fetch.authRequired",`)
	requestSent  = []byte(`{"method":"Network.requestWillBeSent",`)
	frameSent    = []byte(`{"method":"Network.webSocketFrameSent",`)
	methodMember = []byte(`"method":"`)
	consoleEvent = []byte(`{"method":"Runtime.consoleAPICalled",`)
	exception    = []byte(`{"method":"Runtime.exceptionThrown",`)

	targetCreated = []byte(`{"method":"Target.targetCreated",`)
	targetChanged = []byte(`{"method":"Target.targetInfoChanged",`)
	isAttached    = []byte(`"attached":true`)
	notAttached   = []byte(`"attached":false`)
)

// route hands one message from Chrome to the peer that it belongs to. It is true
// where the message was not copied, but is kept.
func (m *Mux) route(msg []byte) bool {
	if len(msg) < 2 || msg[len(msg)-1] != '}' {
		return false
	}
	a := parseBrowserMessage(msg)
	m.replied = m.replied || a.isReply
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
		m.watch(p, a, msg)
	}
	return p.deliver(a, msg)
}

// watch keeps the tables that follow from what Chrome says: children, paused
// requests, and what pages send.
func (m *Mux) watch(p *Peer, a browserMessage, msg []byte) {
	switch {
	case bytes.HasPrefix(msg, attached), bytes.HasPrefix(msg, detached):
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
		if bytes.HasPrefix(msg, detached) {
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
	case bytes.HasPrefix(msg, paused), bytes.HasPrefix(msg, authRequired):
		var e struct {
			Params struct {
				RequestID string `json:"requestId"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) == nil {
			p.requestPaused(pausedRequest{string(a.sessionID), e.Params.RequestID}, bytes.HasPrefix(msg, authRequired))
		}
	case bytes.HasPrefix(msg, requestSent):
		if unsafeRequest(msg) {
			m.report("Network.requestWillBeSent", msg)
		}
	case bytes.HasPrefix(msg, frameSent):
		m.report("Network.webSocketFrameSent", msg)
	case bytes.HasPrefix(msg, consoleEvent), bytes.HasPrefix(msg, exception):
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
func (m *Mux) hideEyes(msg []byte) []byte {
	if !bytes.HasPrefix(msg, targetCreated) && !bytes.HasPrefix(msg, targetChanged) {
		return msg
	}
	// Quotes inside a title or URL are escaped, so this is the member.
	at := bytes.LastIndex(msg, isAttached)
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
	return slices.Concat(msg[:at], notAttached, msg[at+len(isAttached):])
}

// unsafeRequest tells whether a requestWillBeSent is of a method that may change
// something. The request's own method is the second member of that name, and the
// quotes of one in a URL would be escaped.
func unsafeRequest(msg []byte) bool {
	rest := msg[len(requestSent):]
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

func (m *Mux) report(method string, msg []byte) {
	var e struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		m.traffic(Traffic{Method: method, Params: e.Params, Acted: m.Acted()})
	}
}
