package cdpproxy

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/reads"
)

// Traffic is something that a page sent or printed, as the browser reported it on one
// browser session. If several sessions get the event, each of them is reported.
type Traffic struct {
	// Method is the CDP event: Network.requestWillBeSent (of an unsafe HTTP method) or
	// Network.webSocketFrameSent; or, if a client turned them on,
	// Runtime.consoleAPICalled or Runtime.exceptionThrown.
	Method string
	// Params are the event's parameters. Those of something printed are nil if they are longer
	// than MaxPrinted.
	Params json.RawMessage
	// Cookies is set for a client's command that concerns cookies. Then nothing else is set.
	Cookies *CookieCommand
	// Kept is set for a client's command about a request that it had paused. Then nothing else
	// is set.
	Kept *KeptRequest
	// Rewritten is set for a client's command that changes a request which it had paused.
	// Then nothing else is set.
	Rewritten *RewrittenRequest
}

// MaxPrinted is the size, in bytes, of the longest parameters that are reported of something
// printed.
const MaxPrinted = 16 << 10

var (
	attachedEvent  = []byte(`{"method":"Target.attachedToTarget",`)
	detachedEvent  = []byte(`{"method":"Target.detachedFromTarget",`)
	pausedEvent    = []byte(`{"method":"Fetch.requestPaused",`)
	authEvent      = []byte(`{"method":"Fetch.authRequired",`)
	requestEvent   = []byte(`{"method":"Network.requestWillBeSent",`)
	frameSentEvent = []byte(`{"method":"Network.webSocketFrameSent",`)
	consoleEvent   = []byte(`{"method":"Runtime.consoleAPICalled",`)
	exceptionEvent = []byte(`{"method":"Runtime.exceptionThrown",`)

	targetCreatedEvent = []byte(`{"method":"Target.targetCreated",`)
	targetChangedEvent = []byte(`{"method":"Target.targetInfoChanged",`)
)

// route passes one message of the browser to the client session or the call to which it
// belongs. It returns true if the message is kept without a copy.
func (m *Mux) route(msg []byte) bool {
	if len(msg) < 2 || msg[len(msg)-1] != '}' {
		return false
	}
	parsed := parseBrowserMessage(msg)
	if m.hold(parsed, msg) {
		return false
	}
	m.replySeen = m.replySeen || parsed.isReply
	if len(parsed.sessionID) == 0 {
		switch {
		case !parsed.isReply:
			m.noteBrowserSession(msg)
		case parsed.isError && bytes.Contains(msg[:min(len(msg), maxReplyHead)], sessionGone):
			m.refused(parsed, msg)
		case parsed.id == lookID:
			m.letRunFree()
		default:
			m.calls.complete(parsed.id, msg)
		}
		return false
	}
	if parsed.isReply && m.pictures.count.Load() > 0 {
		m.pictures.settled(inFlight{string(parsed.sessionID), parsed.id})
	}
	m.mu.Lock()
	s := m.owners[string(parsed.sessionID)]
	m.mu.Unlock()
	if m.hides(s, parsed, msg) || s == nil {
		return false
	}
	if parsed.isReply {
		m.noteContext(msg)
	} else {
		m.trackEvent(s, parsed, msg)
	}
	return s.deliver(parsed, msg)
}

// trackEvent updates, by an event for a client session, which CDP sessions are open and which
// requests are paused. It reports what pages send and print.
func (m *Mux) trackEvent(s *ClientSession, parsed browserMessage, msg []byte) {
	switch {
	case bytes.HasPrefix(msg, attachedEvent), bytes.HasPrefix(msg, detachedEvent):
		var e struct {
			Params struct {
				SessionID  string `json:"sessionId"`
				Waiting    bool   `json:"waitingForDebugger"`
				TargetInfo struct {
					TargetID string `json:"targetId"`
					Type     string `json:"type"`
					URL      string `json:"url"`
					Context  string `json:"browserContextId"`
				} `json:"targetInfo"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) != nil || e.Params.SessionID == "" {
			return
		}
		if bytes.HasPrefix(msg, detachedEvent) {
			m.mu.Lock()
			ended := m.forgetSession(e.Params.SessionID)
			m.mu.Unlock()
			for _, sessionID := range ended {
				m.pipeLog.append(lineDetached, sessionID)
				s.childDetached(sessionID)
			}
			m.lookAtWaiting()
			return
		}
		m.mu.Lock()
		m.owners[e.Params.SessionID] = s
		m.lastChild++
		m.children[e.Params.SessionID] = child{string(parsed.sessionID), e.Params.TargetInfo.TargetID, e.Params.TargetInfo.Type, m.lastChild}
		if s.token != 0 && !s.inherited { // the launcher's own sessions have none
			m.clientTargets[e.Params.SessionID] = e.Params.TargetInfo.TargetID
			m.contexts[e.Params.SessionID] = e.Params.TargetInfo.Context
			if methods.Privileged(e.Params.TargetInfo.URL) {
				m.privileged[e.Params.SessionID] = true
			}
		}
		m.mu.Unlock()
		m.pipeLog.append(lineAttached, s.id, e.Params.SessionID)
		s.log.setTarget(e.Params.SessionID, e.Params.TargetInfo.TargetID)
		if e.Params.TargetInfo.Type == serviceWorker {
			m.workerAttached(s, e.Params.SessionID)
		}
		if e.Params.Waiting {
			s.childWaits(e.Params.SessionID, e.Params.TargetInfo.TargetID, e.Params.TargetInfo.Type)
		}
	case bytes.HasPrefix(msg, targetChangedEvent):
		if s.hasObserver() {
			m.noteTargetURL(msg)
		}
	case bytes.HasPrefix(msg, destroyedEvent):
		if s.hasObserver() {
			m.noteEnded(msg)
		}
	case bytes.HasPrefix(msg, pausedEvent), bytes.HasPrefix(msg, authEvent):
		var e struct {
			Params struct {
				RequestID string `json:"requestId"`
				unsentRequest
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) == nil {
			r, auth := pausedRequest{string(parsed.sessionID), e.Params.RequestID}, bytes.HasPrefix(msg, authEvent)
			s.requestPaused(r, auth)
			s.noteUnsent(r, e.Params.unsentRequest, auth)
		}
	case bytes.HasPrefix(msg, requestEvent):
		if !reads.Event(msg[len(requestEvent):]) {
			m.reportTraffic("Network.requestWillBeSent", msg)
		}
	case bytes.HasPrefix(msg, frameSentEvent):
		m.reportTraffic("Network.webSocketFrameSent", msg)
	case bytes.HasPrefix(msg, consoleEvent), bytes.HasPrefix(msg, exceptionEvent):
		// There are thousands of these, so they are not parsed.
		method, params := splitEvent(msg, parsed)
		if len(params) > MaxPrinted {
			params = nil
		}
		m.traffic(Traffic{Method: string(method), Params: bytes.Clone(params)})
	}
}

// child is a CDP session that was opened under another one.
type child struct {
	parent string // the CDP session that it was reported on
	target string
	kind   string // as Chrome names the target's type
	number uint64 // later ones have higher numbers
}

// forgetSession forgets a CDP session that has ended, with all sessions that were opened under
// it: Chrome only reports the end of the first. It returns them, that one first. The caller
// holds m.mu.
func (m *Mux) forgetSession(sessionID string) (ended []string) {
	ended = []string{sessionID}
	for i := 0; i < len(ended); i++ {
		for under, c := range m.children {
			if c.parent == ended[i] {
				ended = append(ended, under)
			}
		}
		delete(m.children, ended[i])
		delete(m.owners, ended[i])
		delete(m.clientTargets, ended[i])
		delete(m.clientBrowsers, ended[i])
		delete(m.contexts, ended[i])
		delete(m.privileged, ended[i])
		delete(m.privacy.listening, listener{ended[i], "Tracing"})
		delete(m.privacy.listening, listener{ended[i], "Fetch"})
		delete(m.letRun, ended[i])
		delete(m.leaving, ended[i])
	}
	return ended
}

// sessionGone is part of Chrome's answer to a command on a CDP session that has ended. The
// answer names no session.
var sessionGone = []byte(`"error":{"code":-32001,`)

// refused passes an answer that a CDP session has ended to the sender of the command: a client
// or the launcher, on a session that was forgotten. If several have sent a command with that
// id, each gets the answer, since Chrome does not answer them in any other way.
func (m *Mux) refused(parsed browserMessage, msg []byte) {
	for _, s := range m.sessions() {
		s.mu.Lock()
		conn, observer := s.conn, s.observer
		s.mu.Unlock()
		switch {
		case conn != nil:
			conn.deliverRefusal(parsed.id, msg)
		case observer != nil && !m.isOpen(observer.calls.sessionOf(parsed.id)):
			observer.calls.complete(parsed.id, msg)
		}
	}
}

func (m *Mux) sessions() []*ClientSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[*ClientSession]bool{}
	for _, s := range m.owners {
		seen[s] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// isOpen tells whether a CDP session is open, as far as the browser has reported; "" is the
// root.
func (m *Mux) isOpen(sessionID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sessionID == "" || m.owners[sessionID] != nil
}

// noteTargetURL takes in that a target has another URL: clients that are attached to it may use
// it unless that is one of Chrome's own pages.
func (m *Mux) noteTargetURL(msg []byte) {
	var e struct {
		Params struct {
			TargetInfo struct {
				TargetID string `json:"targetId"`
				URL      string `json:"url"`
			} `json:"targetInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) != nil {
		return
	}
	privileged := methods.Privileged(e.Params.TargetInfo.URL)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !privileged && len(m.privileged) == 0 {
		return
	}
	for session, target := range m.clientTargets {
		switch {
		case target != e.Params.TargetInfo.TargetID:
		case privileged:
			m.privileged[session] = true
		default:
			delete(m.privileged, session)
		}
	}
}

// HiddenWorld is the name of the isolated world in which the launcher's own script runs in each
// document. Clients are not told about it, because some (chromedp) take the last world of a
// frame for the page's own, and would run their scripts there.
// The name stays, for a launcher that adopts the browser of an earlier one finds its script by it.
const HiddenWorld = "leasehold.presses"

var (
	worldEvent  = []byte(`{"method":"Runtime.executionContextCreated",`)
	hiddenNamed = []byte(`,"name":"` + HiddenWorld + `",`)

	scriptEvent  = []byte(`{"method":"Debugger.scriptParsed",`)
	hiddenScript = []byte(`,"url":"` + HiddenWorld + `",`)
	isolated     = []byte(`"executionContextAuxData":{"isDefault":false,"type":"isolated",`)
)

// hiddenWorld tells whether an event is about the launcher's own world, or about its script
// there, whose URL is the world's name.
func hiddenWorld(msg []byte) bool {
	return bytes.HasPrefix(msg, worldEvent) && bytes.Contains(msg, hiddenNamed) ||
		bytes.HasPrefix(msg, scriptEvent) && bytes.Contains(msg, hiddenScript) && bytes.Contains(msg, isolated)
}

// reportTraffic reports an event of what a page sent.
func (m *Mux) reportTraffic(method string, msg []byte) {
	var e struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		m.traffic(Traffic{Method: method, Params: e.Params})
	}
}
