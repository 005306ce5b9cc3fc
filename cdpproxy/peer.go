package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
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

	trail trail
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

type pausedRequest struct{ session, request string }

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

func (p *Peer) requestPaused(r pausedRequest, auth bool) {
	p.mu.Lock()
	fenced := p.fenced
	if !fenced {
		p.paused[r] = auth
	}
	p.mu.Unlock()
	if fenced {
		p.mux.post(failing(r, auth))
		return
	}
	p.mux.ledger.note(linePaused, r.session, r.request, kindOfPause(auth))
}

// disposal is a paused request that a command in flight lets go of. It counts as
// paused again where the command is refused.
type disposal struct {
	request pausedRequest
	auth    bool
}

// clientCommand keeps the tables that follow from what the client says.
func (p *Peer) clientCommand(c command, session string) *disposal {
	switch string(c.method) {
	case "Fetch.continueRequest", "Fetch.continueResponse", "Fetch.continueWithAuth", "Fetch.failRequest", "Fetch.fulfillRequest":
		var params struct {
			RequestID string `json:"requestId"`
		}
		if len(c.params) > 0 && json.Unmarshal(c.params, &params) == nil && params.RequestID != "" {
			r := pausedRequest{session, params.RequestID}
			p.mu.Lock()
			defer p.mu.Unlock()
			if auth, ok := p.paused[r]; ok {
				delete(p.paused, r)
				return &disposal{r, auth}
			}
		}
	case "Runtime.runIfWaitingForDebugger":
		p.mu.Lock()
		delete(p.waiting, session)
		p.mu.Unlock()
	}
	return nil
}

// restore takes back what a refused command would have disposed of.
func (p *Peer) restore(d *disposal) {
	if d != nil {
		p.requestPaused(d.request, d.auth)
	}
}

// failing is the command that ends a paused request without sending it. Nothing
// else does: closing the target, the session or the browser sends it.
func failing(r pausedRequest, auth bool) []byte {
	if auth {
		return quiet(r.session, "Fetch.continueWithAuth", map[string]any{
			"requestId": r.request, "authChallengeResponse": map[string]string{"response": "CancelAuth"},
		})
	}
	return quiet(r.session, "Fetch.failRequest", map[string]string{"requestId": r.request, "errorReason": "Aborted"})
}

// quiet is a command whose answer nobody needs.
func quiet(session, method string, params any) []byte {
	// Strings in maps always marshal.
	msg, _ := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId"`
	}{1 << 30, method, params, session})
	return msg
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

// Event is a CDP event that an observer asked for.
type Event struct {
	Session string
	Method  string
	Params  json.RawMessage
}

// Observer is a peer that Go code talks on: the launcher's own eyes.
type Observer struct {
	peer  *Peer
	want  map[string]bool
	hear  func(Event)
	heard map[string]bool
	calls calls

	mu    sync.Mutex
	queue []Event
	ever  uint64 // events that were ever in the queue
	ready chan struct{}
}

// Observe opens a peer for Go code. Events of the methods in want are kept until
// Next takes them; others are dropped unread.
func (m *Mux) Observe(ctx context.Context, want ...string) (*Observer, error) {
	return m.Listen(ctx, nil, nil, want...)
}

// Listen is Observe with further methods, heard, whose events wake nobody: hear is
// called with each by the pipe's reader. It must not block; the event is its own.
func (m *Mux) Listen(ctx context.Context, hear func(Event), heard []string, want ...string) (*Observer, error) {
	p, err := m.attach(ctx, 0)
	if err != nil {
		return nil, err
	}
	o := &Observer{peer: p, want: map[string]bool{}, hear: hear, heard: map[string]bool{}, ready: make(chan struct{}, 1)}
	for _, method := range heard {
		o.heard[method] = true
	}
	for _, method := range want {
		o.want[method] = true
	}
	p.mu.Lock()
	p.watcher = o
	p.mu.Unlock()
	return o, nil
}

func (o *Observer) deliver(a answer, msg []byte) {
	if a.isReply {
		o.calls.settle(a.id, msg)
		return
	}
	method, params := cutEvent(msg, a)
	wanted, heard := o.want[string(method)], o.heard[string(method)]
	if !wanted && !heard {
		return
	}
	e := Event{Session: string(a.session), Method: string(method), Params: bytes.Clone(params)}
	if heard {
		o.hear(e)
	}
	if !wanted {
		return
	}
	o.mu.Lock()
	o.queue = append(o.queue, e)
	o.ever++
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

var (
	methodFirst = []byte(`{"method":"`)
	paramsNext  = []byte(`,"params":`)
)

// cutEvent cuts the method, which Chrome writes first, and the parameters, which
// come next and last, out of an event without parsing it: both are empty where it
// is of another form.
func cutEvent(msg []byte, a answer) (method, params []byte) {
	rest, ok := bytes.CutPrefix(msg[:a.strip], methodFirst)
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return nil, nil
	}
	method = rest[:end]
	params, _ = bytes.CutPrefix(rest[end+1:], paramsNext)
	return method, params
}

// Call sends a command on one of the observer's sessions ("" is its browser
// session) and waits for the result, which may be nil.
func (o *Observer) Call(ctx context.Context, session, method string, params, result any) error {
	if session == "" {
		session = o.peer.session
	}
	return o.peer.mux.call(ctx, session, method, params, result, &o.calls)
}

// Post sends a command whose answer nobody needs, without waiting.
func (o *Observer) Post(session, method string, params any) {
	if session == "" {
		session = o.peer.session
	}
	o.peer.mux.post(quiet(session, method, params))
}

// Queued is how many events Next has had to give, ever. Those that came before the
// answer to a Call are among them once it has returned.
func (o *Observer) Queued() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ever
}

// Next returns the events that came since, and waits for the first. It returns
// ErrBrowserGone at the end, and the context's error when that ends first.
func (o *Observer) Next(ctx context.Context) ([]Event, error) {
	for {
		o.mu.Lock()
		events := o.queue
		o.queue = nil
		o.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-o.ready:
		case <-o.peer.mux.done:
			o.mu.Lock()
			events, o.queue = o.queue, nil
			o.mu.Unlock()
			if len(events) > 0 {
				return events, nil
			}
			return nil, ErrBrowserGone
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
