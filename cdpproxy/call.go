package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"leasehold/lease"
)

// reply is the browser's reply to a call.
type reply struct {
	Result json.RawMessage
	Error  *Error
}

// pendingCalls are the launcher's own commands that wait for their replies on one
// session.
type pendingCalls struct {
	mu      sync.Mutex
	waiting map[int64]pendingCall
}

type pendingCall struct {
	sessionID string
	replied   chan<- []byte
}

// add registers a call on a CDP session, whose reply is sent to the channel. The channel
// needs room for it. The returned function forgets the call.
func (c *pendingCalls) add(id int64, sessionID string, replied chan<- []byte) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[int64]pendingCall{}
	}
	c.waiting[id] = pendingCall{sessionID, replied}
	return func() { c.remove(id) }
}

// sessionOf is the CDP session that a call is on; "" if there is no such call.
func (c *pendingCalls) sessionOf(id int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id].sessionID
}

// remove forgets a call, and returns its channel; nil if there is none.
func (c *pendingCalls) remove(id int64) chan<- []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	replied := c.waiting[id].replied
	delete(c.waiting, id)
	return replied
}

// complete gives a reply to the call that waits for it, if one does. The caller parses
// it, not the pipe's reader, which a screenshot would delay.
func (c *pendingCalls) complete(id int64, msg []byte) {
	if replied := c.remove(id); replied != nil {
		replied <- bytes.Clone(msg)
	}
}

// Call sends a command on the root session and waits for its result.
func (m *Mux) Call(ctx context.Context, method string, params, result any) error {
	return m.call(ctx, nil, "", method, params, result, &m.calls)
}

// call sends a command of the launcher's on a CDP session ("" is the root), through the fence
// if there is one, and waits for the reply. on are the pending calls of the browser session to
// which the reply is routed.
func (m *Mux) call(ctx context.Context, fence *lease.Fence, sessionID, method string, params, result any, on *pendingCalls) error {
	if params == nil {
		params = struct{}{}
	}
	replied := make(chan []byte, 1)
	m.mu.Lock()
	if m.endCause != nil {
		m.mu.Unlock()
		return fmt.Errorf("%s: %w", method, m.endCause)
	}
	m.lastID = m.lastID%(1<<30) + 1
	id := m.lastID
	m.mu.Unlock()
	defer on.add(id, sessionID, replied)()
	msg, err := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{id, method, params, sessionID})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if method == captureCommand {
		m.pictures.asked(inFlight{sessionID, id})
	}
	if fence != nil { // before the write, since its effect may be seen before the write returns
		m.noteCall(msg)
	}
	if err := m.send(fence, msg, nil); err != nil {
		m.pictures.settled(inFlight{sessionID, id})
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case msg := <-replied:
		var r reply
		switch err := json.Unmarshal(msg, &r); {
		case err != nil:
			return fmt.Errorf("%s: the browser's answer cannot be read: %w", method, err)
		case r.Error != nil:
			return fmt.Errorf("%s: %w", method, r.Error)
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(r.Result, result); err != nil {
			return fmt.Errorf("%s: its result cannot be read: %w", method, err)
		}
		return nil
	case <-m.done:
		return fmt.Errorf("%s: %w", method, ErrBrowserGone)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w", method, ctx.Err())
	}
}

// oneWay is a command whose reply nobody needs. All of them share the largest id, which calls
// would reach only after half a billion, so that the replies match no call.
func oneWay(sessionID, method string, params any) []byte {
	// Maps of strings and booleans can always be marshalled.
	msg, _ := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{1 << 30, method, params, sessionID})
	return msg
}

// maxPosts is how many posted commands may wait for room in the pipe.
const maxPosts = 4096

// post queues a one-way command for sendPosts, and does not block. While maxPosts are queued,
// further ones are dropped: the browser is then not reading, which others notice by waiting for
// it.
func (m *Mux) post(msg []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endCause != nil {
		return
	}
	select {
	case m.posts <- msg:
	default:
		m.dropped.Add(1)
	}
}

// sendPosts sends what is posted until the pipe ends. It is a goroutine of its own,
// since the pipe may be full.
func (m *Mux) sendPosts() {
	for msg := range m.posts {
		_ = m.send(nil, msg, nil) // the reader reports the pipe's end
	}
}

// Dropped counts the one-way commands that were dropped while the browser did not
// read. One of them may have been to turn on the events of a page.
func (m *Mux) Dropped() uint64 { return m.dropped.Load() }
