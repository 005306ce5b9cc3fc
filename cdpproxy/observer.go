package cdpproxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"leasehold/lease"
)

// Event is a CDP event that an observer asked for. Session is the CDP session on which it came,
// and is never empty. Params are as the browser wrote them.
type Event struct {
	Session string
	Method  string
	Params  json.RawMessage
}

// Observer makes calls and gets events from Go, on a browser session of the launcher's own.
type Observer struct {
	session *ClientSession
	queued  map[string]bool // methods of the events for queue
	handle  func(Event)
	handled map[string]bool // methods of the events for handle
	calls   pendingCalls

	mu    sync.Mutex
	queue []Event
	total uint64 // events that were ever in the queue

	ready chan struct{} // has room for one: something is in the queue
}

// Observe opens a browser session for Go code. Events of the methods in want are queued
// until Next takes them; others are dropped unread.
func (m *Mux) Observe(ctx context.Context, want ...string) (*Observer, error) {
	return m.Listen(ctx, nil, nil, want...)
}

// Listen is Observe with further methods, heard, whose events do not go through Next: the
// reader of the pipe calls hear with each of them. hear must not block, and may keep the event.
func (m *Mux) Listen(ctx context.Context, hear func(Event), heard []string, want ...string) (*Observer, error) {
	s, err := m.attach(ctx, 0)
	if err != nil {
		return nil, err
	}
	o := &Observer{session: s, queued: map[string]bool{}, handle: hear, handled: map[string]bool{}, ready: make(chan struct{}, 1)}
	for _, method := range heard {
		o.handled[method] = true
	}
	for _, method := range want {
		o.queued[method] = true
	}
	s.mu.Lock()
	s.observer = o
	s.mu.Unlock()
	return o, nil
}

// deliver completes the call that a reply is for, or passes an event on. The loop calls
// it.
func (o *Observer) deliver(parsed browserMessage, msg []byte) {
	if parsed.isReply {
		o.calls.complete(parsed.id, msg)
		return
	}
	method, params := splitEvent(msg, parsed)
	queued, handled := o.queued[string(method)], o.handled[string(method)]
	if !queued && !handled {
		return
	}
	e := Event{Session: string(parsed.sessionID), Method: string(method), Params: bytes.Clone(params)}
	if handled {
		o.handle(e)
	}
	if !queued {
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

// Call sends a command on one of the observer's CDP sessions ("" is its browser session) and
// waits for the reply. It decodes the result into result, unless that is nil. An error in the
// browser's reply is returned as an *Error; without a reply, the error wraps ErrBrowserGone or
// the context's error.
func (o *Observer) Call(ctx context.Context, session, method string, params, result any) error {
	return o.call(ctx, nil, session, method, params, result)
}

// CallFenced is Call for what is done on behalf of a lease. Like a client's command, the call
// is sent only while the fence is open. The check and the write are one step: nothing is sent
// after the fence was shut or its deadline has passed, however long the caller was delayed
// after a check of its own. If the call is refused, its error wraps the fence's cause, and the
// browser has received nothing. The fence must not be nil.
func (o *Observer) CallFenced(ctx context.Context, fence *lease.Fence, session, method string, params, result any) error {
	return o.call(ctx, fence, session, method, params, result)
}

// Send is Call for who waits for the reply later. The browser gets commands in the order in which they are sent.
func (o *Observer) Send(session, method string, params any) (*SentCall, error) {
	return o.session.mux.start(nil, o.sessionOr(session), method, params, &o.calls)
}

// SendFenced is CallFenced for who waits for the reply later: it returns once the command is sent.
func (o *Observer) SendFenced(fence *lease.Fence, session, method string, params any) (*SentCall, error) {
	return o.session.mux.start(fence, o.sessionOr(session), method, params, &o.calls)
}

// sessionOr is a CDP session; for "" it is the observer's browser session.
func (o *Observer) sessionOr(session string) string { return cmp.Or(session, o.session.id) }

func (o *Observer) call(ctx context.Context, fence *lease.Fence, session, method string, params, result any) error {
	return o.session.mux.call(ctx, fence, o.sessionOr(session), method, params, result, &o.calls)
}

// Post queues a command whose reply nobody needs, and returns at once. Whatever is sent
// after it reaches the browser later. It may be dropped: see Mux.Dropped.
func (o *Observer) Post(session, method string, params any) {
	o.session.mux.post(oneWay(o.sessionOr(session), method, params))
}

// Resolve is Post for the command that ends the pause of a request which the Fetch domain
// reported on one of the observer's sessions. Until then the request is in the pipe log: if the
// launcher is killed, the next one fails it. The command is never dropped.
func (o *Observer) Resolve(session, requestID, method string, params any) {
	o.session.resolved(pausedRequest{session, requestID})
	o.session.mux.postPauseEnd(oneWay(o.sessionOr(session), method, params))
}

// Queued returns how many events were ever queued for Next. When a Call has returned, it
// includes the events that the browser sent before the reply.
func (o *Observer) Queued() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// Next waits until events are queued, and returns all of them. It returns
// ErrBrowserGone after the last one at the end of the pipe, and the context's error
// when that ends first.
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
