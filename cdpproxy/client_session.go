package cdpproxy

import (
	"context"
	"fmt"
	"sync"

	"leasehold/lease"
)

// Peer is one browser session in Chrome and everything opened under it. It
// outlives its connection: what a vanished client had opened stays as it was
// until the peer is closed, since closing it would send the requests that the
// client had paused and drop its contexts.
type Peer struct {
	mux       *Mux
	id        string // the browser session
	defaultID string // where messages without a session go: session, or one page's
	token     lease.Token
	inherited bool // a launcher before opened it

	mu                 sync.Mutex
	conn               *Conn
	observer           *Observer
	paused             map[pausedRequest]bool // by request; true where it waits for credentials
	waitingForDebugger map[string]bool        // sessions whose target waits for a debugger
	fenced             bool                   // pause nothing more: fail it
	freed              bool                   // let go of targets that wait

	log commandLog
}

func newClientSession(m *Mux, session string, token lease.Token) *Peer {
	return &Peer{mux: m, id: session, defaultID: session, token: token, paused: map[pausedRequest]bool{}, waitingForDebugger: map[string]bool{}}
}

// takeUp registers what a launcher before left open, before anything is read: the
// pipe may still hold what Chrome said of it meanwhile.
func (m *Mux) inheritSessions() {
	if m.ledger == nil {
		return
	}
	for _, was := range m.ledger.inherited {
		p := newClientSession(m, was.id, was.token)
		p.inherited, p.paused = true, was.paused
		m.owners[was.id] = p
		for _, child := range was.children {
			m.owners[child] = p
			p.waitingForDebugger[child] = true // it may be; to be let go does no harm
		}
		m.inherited = append(m.inherited, p)
	}
}

// Left returns what the launcher before left open, by the token of the lease that
// it was opened under; 0 stands for that launcher itself. The clients are gone:
// Fence what they left before anything else.
func (m *Mux) Left() map[lease.Token][]*Peer {
	left := map[lease.Token][]*Peer{}
	for _, p := range m.inherited {
		left[p.token] = append(left[p.token], p)
	}
	return left
}

func (p *Peer) deliver(a browserMessage, msg []byte) (kept bool) {
	p.mu.Lock()
	conn, watcher := p.conn, p.observer
	p.mu.Unlock()
	switch {
	case conn != nil:
		p.mux.sentToClient = true
		return conn.deliver(a, msg)
	case watcher != nil:
		watcher.deliver(a, msg)
	}
	return false
}

// observes tells whether the peer is the launcher's own.
func (p *Peer) hasObserver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observer != nil
}

func (p *Peer) childAttached(session string, waiting bool) {
	if !waiting {
		return
	}
	p.mu.Lock()
	p.waitingForDebugger[session] = true
	free := p.freed
	p.mu.Unlock()
	if free {
		p.mux.post(oneWay(session, "Runtime.runIfWaitingForDebugger", nil))
	}
}

func (p *Peer) childDetached(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waitingForDebugger, session)
	for r := range p.paused {
		if r.sessionID == session {
			delete(p.paused, r)
		}
	}
}

// Fence ends what the peer's client could still cause: every request it had
// paused, and every one that pauses from now on, is failed. The peer stays open.
func (p *Peer) Fence() {
	p.mu.Lock()
	p.fenced = true
	pending := p.paused
	p.paused = map[pausedRequest]bool{}
	p.mu.Unlock()
	for r, auth := range pending {
		_ = p.mux.send(nil, failing(r, auth), nil) // a browser that is gone sends nothing
		p.mux.ledger.append(lineSettled, r.sessionID, r.requestID)
	}
}

// Free lets go of everything that a vanished client could stand in the way with,
// for the client that took its place: targets that wait for its debugger, and
// the sessions on which it intercepts. Fence comes first. The contexts that it
// made stay, and their pages with them.
func (p *Peer) Free() {
	p.mu.Lock()
	p.freed = true
	waiting := p.waitingForDebugger
	p.waitingForDebugger = map[string]bool{}
	p.mu.Unlock()
	p.mux.post(oneWay(p.id, "Target.setAutoAttach", map[string]any{"autoAttach": false, "waitForDebuggerOnStart": false, "flatten": true}))
	for session := range waiting {
		p.mux.post(oneWay(session, "Runtime.runIfWaitingForDebugger", nil))
	}
	p.mux.mu.Lock()
	var children []string
	for session, owner := range p.mux.owners {
		if owner == p && session != p.id {
			children = append(children, session)
		}
	}
	p.mux.mu.Unlock()
	for _, session := range children {
		p.mux.post(oneWay(p.id, "Target.detachFromTarget", map[string]string{"sessionId": session}))
	}
}

// Close detaches the peer's session in Chrome: contexts that its client made for
// itself end, and requests that are still paused are sent.
func (p *Peer) Close(ctx context.Context) error {
	err := p.mux.Call(ctx, "Target.detachFromTarget", map[string]string{"sessionId": p.id}, nil)
	p.mux.mu.Lock()
	for s, owner := range p.mux.owners {
		if owner == p {
			delete(p.mux.owners, s)
			delete(p.mux.clientTargets, s)
		}
	}
	p.mux.mu.Unlock()
	if err != nil {
		return fmt.Errorf("closing a peer: %w", err)
	}
	p.mux.ledger.append(lineClosed, p.id)
	return nil
}
