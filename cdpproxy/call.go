package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"leasehold/lease"
)

type reply struct {
	Result json.RawMessage
	Error  *Error
}

// calls are the commands of ours that wait for their answers on one session.
type pendingCalls struct {
	mu      sync.Mutex
	waiting map[int64]chan<- []byte
}

// add registers a call. What it returns takes the call back.
func (c *pendingCalls) add(id int64, answer chan<- []byte) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[int64]chan<- []byte{}
	}
	c.waiting[id] = answer
	return func() { c.remove(id) }
}

func (c *pendingCalls) remove(id int64) chan<- []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.waiting[id]
	delete(c.waiting, id)
	return answer
}

// settle gives an answer to the call that waits for it, if one does. Whoever called
// parses it: a screenshot would hold up the pipe's reader.
func (c *pendingCalls) complete(id int64, msg []byte) {
	if answer := c.remove(id); answer != nil {
		answer <- bytes.Clone(msg)
	}
}

// Call sends a command on the root session and waits for its result.
func (m *Mux) Call(ctx context.Context, method string, params, result any) error {
	return m.call(ctx, nil, "", method, params, result, &m.calls)
}

// call sends a command of the Mux's own on a session ("" is the root), through the
// fence unless that is nil, and waits for the reply. on are the calls that wait for
// replies of that session.
func (m *Mux) call(ctx context.Context, fence *lease.Fence, session, method string, params, result any, on *pendingCalls) error {
	if params == nil {
		params = struct{}{}
	}
	c := make(chan []byte, 1)
	m.mu.Lock()
	if m.endCause != nil {
		m.mu.Unlock()
		return fmt.Errorf("%s: %w", method, m.endCause)
	}
	m.lastID = m.lastID%(1<<30) + 1
	id := m.lastID
	m.mu.Unlock()
	defer on.add(id, c)()
	msg, err := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{id, method, params, session})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if err := m.send(fence, msg, nil); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case answer := <-c:
		var r reply
		switch err := json.Unmarshal(answer, &r); {
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

// quiet is a command whose answer nobody needs.
func oneWay(session, method string, params any) []byte {
	// Strings in maps always marshal.
	msg, _ := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId"`
	}{1 << 30, method, params, session})
	return msg
}

// maxPosts is how many commands of ours may wait for room in the pipe.
const maxPosts = 4096

// post leaves a command whose answer nobody needs to a goroutine of its own. More
// than maxPosts at once are dropped: the browser does not read, and whoever
// waits for it finds that out.
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

func (m *Mux) sendPosts() {
	for msg := range m.posts {
		_ = m.send(nil, msg, nil) // the pipe's end is the reader's to report
	}
}

// Dropped counts the commands that were dropped so: among them may be what turns the
// events of a page on.
func (m *Mux) Dropped() uint64 { return m.dropped.Load() }
