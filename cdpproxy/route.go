package cdpproxy

import (
	"bytes"
	"encoding/json"

	"leasehold/cdpproxy/acts"
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
	Cookies *acts.CookieCommand
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

// maxReplyHead is the number of bytes within which a reply has its id and the beginning of its
// result.
const maxReplyHead = 48

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
			m.sessions.noteBrowserSession(msg)
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
	if parsed.isReply && m.privacy.unanswered.Load() > 0 {
		m.privacy.answered(inFlight{string(parsed.sessionID), parsed.id}, parsed.isError)
	}
	s := m.sessions.ownerOf(parsed.sessionID)
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
				SessionID  string     `json:"sessionId"`
				Waiting    bool       `json:"waitingForDebugger"`
				TargetInfo targetInfo `json:"targetInfo"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) != nil || e.Params.SessionID == "" {
			return
		}
		if bytes.HasPrefix(msg, detachedEvent) {
			ended := m.forgetSession(e.Params.SessionID)
			for _, sessionID := range ended {
				m.pipeLog.append(lineDetached, sessionID)
				s.childDetached(sessionID)
			}
			m.lookAtWaiting()
			return
		}
		m.sessions.opened(e.Params.SessionID, string(parsed.sessionID), s, e.Params.TargetInfo)
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
			m.sessions.noteURL(msg)
		}
	case bytes.HasPrefix(msg, destroyedEvent):
		if s.hasObserver() {
			m.sessions.noteEnded(msg)
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

// forgetSession forgets a CDP session that has ended. It returns it, and those that ended with it.
func (m *Mux) forgetSession(sessionID string) (ended []string) {
	ended = m.sessions.forget(sessionID)
	m.privacy.forget(ended)
	return ended
}

// sessionGone is part of Chrome's answer to a command on a CDP session that has ended. The
// answer names no session.
var sessionGone = []byte(`"error":{"code":-32001,`)

// refused passes an answer that a CDP session has ended to the sender of the command: a client
// or the launcher, on a session that was forgotten. If several have sent a command with that
// id, each gets the answer, since Chrome does not answer them in any other way.
func (m *Mux) refused(parsed browserMessage, msg []byte) {
	m.privacy.sessionGone(m.sessions.isOpen)
	for _, s := range m.sessions.owners() {
		s.mu.Lock()
		conn, observer := s.conn, s.observer
		s.mu.Unlock()
		switch {
		case conn != nil:
			conn.deliverRefusal(parsed.id, msg)
		case observer != nil && !m.sessions.isOpen(observer.calls.sessionOf(parsed.id)):
			observer.calls.complete(parsed.id, msg)
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

// reportCookies reports a client's command that concerns cookies.
func (m *Mux) reportCookies(c acts.CookieCommand) { m.traffic(Traffic{Cookies: &c}) }
