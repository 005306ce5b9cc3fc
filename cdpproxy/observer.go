package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"leasehold/lease"
)

// Event is a CDP event that an observer asked for.
type Event struct {
	Session string
	Method  string
	Params  json.RawMessage
}

// Observer is a peer that Go code talks on: the launcher's own eyes.
type Observer struct {
	session *Peer
	queued  map[string]bool
	handle  func(Event)
	handled map[string]bool
	calls   pendingCalls

	mu    sync.Mutex
	queue []Event
	total uint64 // events that were ever in the queue
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
	o := &Observer{session: p, queued: map[string]bool{}, handle: hear, handled: map[string]bool{}, ready: make(chan struct{}, 1)}
	for _, method := range heard {
		o.handled[method] = true
	}
	for _, method := range want {
		o.queued[method] = true
	}
	p.mu.Lock()
	p.observer = o
	p.mu.Unlock()
	return o, nil
}

func (o *Observer) deliver(a browserMessage, msg []byte) {
	if a.isReply {
		o.calls.complete(a.id, msg)
		return
	}
	method, params := splitEvent(msg, a)
	wanted, heard := o.queued[string(method)], o.handled[string(method)]
	if !wanted && !heard {
		return
	}
	e := Event{Session: string(a.sessionID), Method: string(method), Params: bytes.Clone(params)}
	if heard {
		o.handle(e)
	}
	if !wanted {
		return
	}
	o.mu.Lock()
	o.queue = append(o.queue, e)
	o.total++
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// Call sends a command on one of the observer's sessions ("" is its browser
// session) and waits for the result, which may be nil.
func (o *Observer) Call(ctx context.Context, session, method string, params, result any) error {
	return o.call(ctx, nil, session, method, params, result)
}

// CallFenced is Call for what is done in the name of a lease: like a client's
// command, the call is sent only while the fence is open. The check and the write
// are one step, so nothing is sent after the fence was shut or its deadline has
// passed, however long the caller was held up after a check of its own. What is
// refused returns an error that wraps the fence's cause, and the browser has not
// seen it. The fence must not be nil.
func (o *Observer) CallFenced(ctx context.Context, fence *lease.Fence, session, method string, params, result any) error {
	return o.call(ctx, fence, session, method, params, result)
}

func (o *Observer) call(ctx context.Context, fence *lease.Fence, session, method string, params, result any) error {
	if session == "" {
		session = o.session.id
	}
	return o.session.mux.call(ctx, fence, session, method, params, result, &o.calls)
}

// Post sends a command whose answer nobody needs, without waiting.
func (o *Observer) Post(session, method string, params any) {
	if session == "" {
		session = o.session.id
	}
	o.session.mux.post(oneWay(session, method, params))
}

// Queued is how many events Next has had to give, ever. Those that came before the
// answer to a Call are among them once it has returned.
func (o *Observer) Queued() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
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
		case <-o.session.mux.done:
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
