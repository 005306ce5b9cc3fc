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
	mux     *Mux
	session string // the browser session
	base    string // where messages without a session go: session, or one page's
	token   lease.Token
	left    bool // a launcher before opened it

	mu      sync.Mutex
	conn    *Conn
	watcher *Observer
	paused  map[pausedRequest]bool // by request; true where it waits for credentials
	waiting map[string]bool        // sessions whose target waits for a debugger
	fenced  bool                   // pause nothing more: fail it
	freeing bool                   // let go of targets that wait

	log commandLog
}

func newPeer(m *Mux, session string, token lease.Token) *Peer {
	return &Peer{mux: m, session: session, base: session, token: token, paused: map[pausedRequest]bool{}, waiting: map[string]bool{}}
}

// takeUp registers what a launcher before left open, before anything is read: the
// pipe may still hold what Chrome said of it meanwhile.
func (m *Mux) takeUp() {
	if m.ledger == nil {
		return
	}
	for _, was := range m.ledger.left {
		p := newPeer(m, was.session, was.token)
		p.left, p.paused = true, was.paused
		m.peers[was.session] = p
		for _, child := range was.children {
			m.peers[child] = p
			p.waiting[child] = true // it may be; to be let go does no harm
		}
		m.left = append(m.left, p)
	}
}

// Left returns what the launcher before left open, by the token of the lease that
// it was opened under; 0 stands for that launcher itself. The clients are gone:
// Fence what they left before anything else.
func (m *Mux) Left() map[lease.Token][]*Peer {
	left := map[lease.Token][]*Peer{}
	for _, p := range m.left {
		left[p.token] = append(left[p.token], p)
	}
	return left
}

func (p *Peer) deliver(a answer, msg []byte) (kept bool) {
	p.mu.Lock()
	conn, watcher := p.conn, p.watcher
	p.mu.Unlock()
	switch {
	case conn != nil:
		p.mux.relayed = true
		return conn.deliver(a, msg)
	case watcher != nil:
		watcher.deliver(a, msg)
	}
	return false
}

// observes tells whether the peer is the launcher's own.
func (p *Peer) observes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watcher != nil
}

func (p *Peer) childAttached(session string, waiting bool) {
	if !waiting {
		return
	}
	p.mu.Lock()
	p.waiting[session] = true
	free := p.freeing
	p.mu.Unlock()
	if free {
		p.mux.post(quiet(session, "Runtime.runIfWaitingForDebugger", nil))
	}
}

func (p *Peer) forget(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, session)
	for r := range p.paused {
		if r.session == session {
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
		p.mux.ledger.note(lineSettled, r.session, r.request)
	}
}

// Free lets go of everything that a vanished client could stand in the way with,
// for the client that took its place: targets that wait for its debugger, and
// the sessions on which it intercepts. Fence comes first. The contexts that it
// made stay, and their pages with them.
func (p *Peer) Free() {
	p.mu.Lock()
	p.freeing = true
	waiting := p.waiting
	p.waiting = map[string]bool{}
	p.mu.Unlock()
	p.mux.post(quiet(p.session, "Target.setAutoAttach", map[string]any{"autoAttach": false, "waitForDebuggerOnStart": false, "flatten": true}))
	for session := range waiting {
		p.mux.post(quiet(session, "Runtime.runIfWaitingForDebugger", nil))
	}
	p.mux.mu.Lock()
	var children []string
	for session, owner := range p.mux.peers {
		if owner == p && session != p.session {
			children = append(children, session)
		}
	}
	p.mux.mu.Unlock()
	for _, session := range children {
		p.mux.post(quiet(p.session, "Target.detachFromTarget", map[string]string{"sessionId": session}))
	}
}

// Close detaches the peer's session in Chrome: contexts that its client made for
// itself end, and requests that are still paused are sent.
func (p *Peer) Close(ctx context.Context) error {
	err := p.mux.Call(ctx, "Target.detachFromTarget", map[string]string{"sessionId": p.session}, nil)
	p.mux.mu.Lock()
	for s, owner := range p.mux.peers {
		if owner == p {
			delete(p.mux.peers, s)
			delete(p.mux.attached, s)
		}
	}
	p.mux.mu.Unlock()
	if err != nil {
		return fmt.Errorf("closing a peer: %w", err)
	}
	p.mux.ledger.note(lineClosed, p.session)
	return nil
}
