package cdpproxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"leasehold/lease"
)

// ClientSession is one browser session in Chrome, with everything that was opened under it. It
// belongs to a Conn or to an Observer, and outlives its connection: what a vanished client had
// opened stays as it was until Close, which would send the requests that the client had paused,
// and dispose of its contexts.
type ClientSession struct {
	mux       *Mux
	id        string      // of the browser session
	defaultID string      // session of the messages that name none: id, or that of one page
	token     lease.Token // of the lease that it was opened under; 0: the launcher's own
	inherited bool        // an earlier launcher opened it

	mu                 sync.Mutex
	conn               *Conn     // nil: not connected yet, or no longer
	observer           *Observer // nil, unless it is the launcher's own
	paused             map[pausedRequest]pause
	unsent             map[pausedRequest]unsentRequest // of those, the ones that were not sent yet
	waitingForDebugger map[string]string               // targets that wait for a debugger, by CDP session; see childWaits
	fenced             bool                            // see Fence: requests that pause are failed
	freed              bool                            // see Free: targets that wait are resumed
	downloadDir        string                          // see SetDownloadDir
	// downloads are the browser contexts whose behaviour for downloads the client set,
	// by the CDP session on which it did.
	downloads map[string]map[string]bool

	log commandLog
}

func newClientSession(m *Mux, id string, token lease.Token) *ClientSession {
	return &ClientSession{mux: m, id: id, defaultID: id, token: token, paused: map[pausedRequest]pause{}, waitingForDebugger: map[string]string{}, downloads: map[string]map[string]bool{}}
}

// inheritSessions registers what an earlier launcher left open. It comes before the
// first read, since the pipe may contain what Chrome has reported of it in the meantime.
func (m *Mux) inheritSessions() {
	if m.pipeLog == nil {
		return
	}
	for _, found := range m.pipeLog.inherited.sessions {
		s := newClientSession(m, found.id, found.token)
		s.inherited = true
		for r, auth := range found.paused {
			s.paused[r] = pause{auth: auth}
		}
		m.sessions.add(s.id, s)
		for _, child := range found.children {
			m.sessions.add(child, s)
			s.waitingForDebugger[child] = "" // it may be waiting; resuming one that is not does no harm
		}
		m.inherited = append(m.inherited, s)
	}
	for _, page := range m.pipeLog.inherited.private {
		m.privacy.pages[page.target], m.privacy.logged[page.target] = nobody, true
	}
}

// Inherited returns the sessions that an earlier launcher left open, by the token of the
// lease that they were opened under; 0 stands for that launcher itself. Their clients
// are gone: call Fence on each before anything else.
func (m *Mux) Inherited() map[lease.Token][]*ClientSession {
	byToken := map[lease.Token][]*ClientSession{}
	for _, s := range m.inherited {
		byToken[s.token] = append(byToken[s.token], s)
	}
	return byToken
}

// deliver passes a message of the browser to the connection or the observer. It returns true if
// msg is kept.
func (s *ClientSession) deliver(parsed browserMessage, msg []byte) (kept bool) {
	s.mu.Lock()
	conn, observer := s.conn, s.observer
	s.mu.Unlock()
	switch {
	case conn != nil:
		s.mux.sentToClient = true
		return conn.deliver(parsed, msg)
	case observer != nil:
		observer.deliver(parsed, msg)
	}
	return false
}

func (s *ClientSession) hasObserver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observer != nil
}

// childWaits is called when a CDP session was opened under this one and its target waits for
// its debugger. If the target is a tab, the one that waits is the tab's page, to which the
// client is not attached yet.
func (s *ClientSession) childWaits(sessionID, target, kind string) {
	if kind == "tab" {
		target = ""
	}
	s.mu.Lock()
	s.waitingForDebugger[sessionID] = target
	freed := s.freed
	s.mu.Unlock()
	if freed {
		s.mux.post(oneWay(sessionID, letRunCommand, nil))
	}
}

// childDetached is called when a CDP session that was opened under this one has ended.
func (s *ClientSession) childDetached(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waitingForDebugger, sessionID)
	for r := range s.paused {
		if r.sessionID == sessionID {
			delete(s.paused, r)
			delete(s.unsent, r)
		}
	}
	s.restoreDownloads(sessionID)
}

// Fence ends what the session's client could still cause: it fails every request that the
// client has paused, and every one that pauses from now on. The session stays open.
func (s *ClientSession) Fence() {
	s.mu.Lock()
	s.fenced = true
	paused := s.paused
	s.paused, s.unsent = map[pausedRequest]pause{}, nil
	s.mu.Unlock()
	s.mux.lookAtWaiting()
	for r, p := range paused {
		s.mux.postPauseEnd(failCommand(r, p.auth))
	}
	if len(paused) == 0 {
		return
	}
	if err := s.mux.flushPosts(); err != nil { // the browser is gone, and sends nothing, or it does not read yet
		return
	}
	for r := range paused {
		s.mux.pipeLog.append(lineSettled, r.sessionID, r.requestID)
	}
}

// Free removes what a vanished client has left that would hinder the client which takes its
// place: it resumes targets that wait for its debugger, detaches the sessions on which it
// intercepts requests, and ends what it hears of all pages on the browser's own, and that all accept every
// certificate. Fence has to come first. The contexts that the client made stay, with their pages.
func (s *ClientSession) Free() {
	s.mu.Lock()
	s.freed = true
	waiting := s.waitingForDebugger
	s.waitingForDebugger = map[string]string{}
	s.mu.Unlock()
	s.mux.post(oneWay(s.id, "Target.setAutoAttach", map[string]any{"autoAttach": false, "waitForDebuggerOnStart": false, "flatten": true}))
	for sessionID := range waiting {
		s.mux.post(oneWay(sessionID, letRunCommand, nil))
	}
	for _, opened := range s.mux.sessions.under(s) {
		s.mux.post(oneWay(s.id, "Target.detachFromTarget", map[string]string{"sessionId": opened.sessionID}))
	}
	// That session stays open. What a client intercepts there are the requests of every page, all of
	// which Fence would have failed from now on.
	s.mux.post(oneWay(s.id, "Fetch.disable", nil))
	s.mux.post(oneWay(s.id, "Tracing.end", nil))
	s.mux.post(oneWay(s.id, "Security.disable", nil)) // who comes says again which certificates are accepted
	s.mux.privacy.forget([]string{s.id})              // nobody hears it any more
}

// LetStart makes new targets start at once, whatever clients have asked for: waiting for
// clients that vanished, or for an earlier launcher, would be in vain. Fence has to be called
// for each of them first.
func (m *Mux) LetStart() {
	for _, s := range m.sessions.owners() {
		if !s.hasObserver() {
			m.post(oneWay(s.id, "Target.setAutoAttach", map[string]any{"autoAttach": false, "waitForDebuggerOnStart": false, "flatten": true}))
		}
	}
}

// Close detaches the session in Chrome: contexts that its client had made to end with
// it are disposed of, and requests that are still paused are sent. After Fence those are few that pause
// in the very moment.
func (s *ClientSession) Close(ctx context.Context) error {
	s.mu.Lock()
	fenced := s.fenced
	s.mu.Unlock()
	if fenced { // before its reply come the events of what has paused, and is failed
		_ = s.mux.Call(ctx, "Browser.getVersion", nil, nil) // the detach fails then, too
	}
	err := s.mux.Call(ctx, "Target.detachFromTarget", map[string]string{"sessionId": s.id}, nil)
	s.forget()
	if err != nil {
		return fmt.Errorf("closing a peer: %w", err)
	}
	s.mux.pipeLog.append(lineClosed, s.id)
	return nil
}

// leave is Close for a session whose end nobody has to wait for.
func (s *ClientSession) leave() {
	s.mux.post(oneWay("", "Target.detachFromTarget", map[string]string{"sessionId": s.id}))
	s.forget()
}

// forget forgets everything that was opened under the session.
func (s *ClientSession) forget() {
	s.mux.forgetSession(s.id) // first: from here on none is opened under it
	for _, opened := range s.mux.sessions.under(s) {
		s.mux.forgetSession(opened.sessionID)
	}
	s.mux.lookAtWaiting()
	s.restoreAllDownloads()
}

// giveUpTimeout bounds how long a browser may take to close what is given up.
const giveUpTimeout = 5 * time.Second

// giveUp is Close for a connection that does not come about, perhaps because ctx has ended.
func (s *ClientSession) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	return s.Close(ctx)
}
