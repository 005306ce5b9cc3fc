package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

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
	take      func(reply []byte) // it must not block, and must not keep the reply
}

// add registers a call on a CDP session.
func (c *pendingCalls) add(id int64, call pendingCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[int64]pendingCall{}
	}
	c.waiting[id] = call
}

// sessionOf is the CDP session that a call is on; "" if there is no such call.
func (c *pendingCalls) sessionOf(id int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id].sessionID
}

// remove forgets a call, and returns what takes its reply; nil if there is no such call.
func (c *pendingCalls) remove(id int64) (take func(reply []byte)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	take = c.waiting[id].take
	delete(c.waiting, id)
	return take
}

// leave lets another function take the reply of a call. It returns false if the reply has come.
func (c *pendingCalls) leave(id int64, late func(reply []byte)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, waits := c.waiting[id]
	if waits {
		call.take = late
		c.waiting[id] = call
	}
	return waits
}

// complete gives a reply to the call that waits for it, if one does.
func (c *pendingCalls) complete(id int64, msg []byte) {
	if take := c.remove(id); take != nil {
		take(msg)
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
	c, err := m.start(fence, sessionID, method, params, on)
	if err != nil {
		return err
	}
	defer c.Forget()
	return c.Wait(ctx, result)
}

// SentCall is a command of the launcher's own on its way to the browser. Who does not wait for the reply
// any more forgets it.
type SentCall struct {
	mux     *Mux
	method  string
	id      int64
	on      *pendingCalls
	replied chan []byte // has room for the reply
}

// start sends a command as call does. The caller waits for the reply, and then forgets or leaves
// the call.
func (m *Mux) start(fence *lease.Fence, sessionID, method string, params any, on *pendingCalls) (*SentCall, error) {
	if params == nil {
		params = struct{}{}
	}
	m.mu.Lock()
	if m.endCause != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", method, m.endCause)
	}
	m.lastID = m.lastID%(1<<30) + 1
	c := &SentCall{mux: m, method: method, id: m.lastID, on: on, replied: make(chan []byte, 1)}
	m.mu.Unlock()
	msg, err := plainJSON(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{c.id, method, params, sessionID})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	// The caller parses the reply, not the pipe's reader, which a screenshot would delay.
	on.add(c.id, pendingCall{sessionID, func(reply []byte) { c.replied <- bytes.Clone(reply) }})
	if method == captureCommand {
		m.pictures.asked(inFlight{sessionID, c.id})
	}
	var passing []stagedCommand
	if fence != nil { // a person who took over acts on pages by such commands
		if cmd, bad := scan(msg); bad == nil {
			passing = []stagedCommand{{command: cmd, session: cmd.sessionID}}
		}
	}
	if err := m.sendIf(nil, fence, passing, msg, nil); err != nil {
		m.pictures.settled(inFlight{sessionID, c.id})
		c.Forget()
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return c, nil
}

// Wait waits for the reply, and decodes its result into result, unless that is nil. An error in the
// browser's reply is an *Error; without a reply, the error wraps ErrBrowserGone or the context's error.
// After the latter the reply can be waited for again.
func (c *SentCall) Wait(ctx context.Context, result any) error {
	select {
	case msg := <-c.replied:
		var r reply
		switch err := json.Unmarshal(msg, &r); {
		case err != nil:
			return fmt.Errorf("%s: the browser's answer cannot be read: %w", c.method, err)
		case r.Error != nil:
			return fmt.Errorf("%s: %w", c.method, r.Error)
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(r.Result, result); err != nil {
			return fmt.Errorf("%s: its result cannot be read: %w", c.method, err)
		}
		return nil
	case <-c.mux.done:
		return fmt.Errorf("%s: %w", c.method, ErrBrowserGone)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w", c.method, ctx.Err())
	}
}

// Forget drops the reply, if it still comes.
func (c *SentCall) Forget() { c.on.remove(c.id) }

// leave is for a caller that waits no longer: late takes the reply, once, if it still comes. It
// must not block, and must not keep the reply.
func (c *SentCall) leave(late func(reply []byte)) {
	if !c.on.leave(c.id, late) {
		late(<-c.replied)
	}
}

// oneWay is a command whose reply nobody needs. Its id is no call's, so that the reply matches none, and
// no other one-way command's: of two with one id that a page has not answered, Chrome takes the first
// answer for that of the second, and does the first again in the process of the page's next site.
func oneWay(sessionID, method string, params any) []byte {
	// Maps of strings and booleans can always be marshalled.
	msg, _ := json.Marshal(struct {
		ID        int64  `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{ownID + (firstOneWay+oneWays.Add(1))%ownIDs, method, params, sessionID})
	return msg
}

// One-way commands have the ids from ownID to the largest that Chrome takes. Calls would come to them
// only after half a billion.
const (
	ownID  = lookID + 1
	ownIDs = math.MaxInt32 - ownID + 1
)

// firstOneWay is somewhere among them, since a browser may have commands of an earlier launcher.
var (
	firstOneWay = rand.Int64N(ownIDs)
	oneWays     atomic.Int64
)

// maxPosts is how many posted commands may wait for room in the pipe.
const maxPosts = 4096

// post queues a one-way command, and does not block. Nothing that is sent after it reaches the browser
// before it. While maxPosts are queued, further ones are dropped: the browser is then not reading, which
// others notice by waiting for it.
func (m *Mux) post(msg []byte) { m.queue(msg, maxPosts) }

// postPauseEnd is post for a command that ends the pause of a request. It is never dropped: the request
// would go out with the end of the CDP session that it is paused on. There is one for each request that
// the browser has reported.
func (m *Mux) postPauseEnd(msg []byte) { m.queue(msg, math.MaxInt) }

// queue queues a one-way command, unless that many are queued.
func (m *Mux) queue(msg []byte, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endCause != nil {
		return
	}
	if len(m.posts) >= most {
		m.dropped.Add(1)
		return
	}
	m.posts = append(m.posts, append(slices.Clip(msg), 0))
	m.callPoster()
}

// callPoster wakes sendPosts. The caller holds m.mu, and the pipe has not ended.
func (m *Mux) callPoster() {
	select {
	case m.posted <- struct{}{}:
	default:
	}
}

// sendPosts sends what is posted until the pipe ends. It is a goroutine of its own,
// since the pipe may be full.
func (m *Mux) sendPosts() {
	for range m.posted {
		_ = m.flushPosts() // the reader reports the pipe's end
	}
}

// flushPosts is sendPosted for who does not hold m.writing.
func (m *Mux) flushPosts() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.sendPosted()
}

// sendPosted writes what is posted. It comes before everything else that the launcher or a client sends.
// What cannot be written now stays queued. The caller holds m.writing.
func (m *Mux) sendPosted() error {
	for next := m.nextPost(0); next != nil; {
		n, err := m.write(next)
		if err == nil && n == 0 {
			err = m.awaitRoom()
		}
		if err != nil {
			return pipeError(err)
		}
		next = m.nextPost(n)
	}
	return nil
}

// nextPost is what is left of the first post of which n more bytes were written, or the one behind it;
// nil: there is none. The caller holds m.writing.
func (m *Mux) nextPost(n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 {
		if m.posts[0] = m.posts[0][n:]; len(m.posts[0]) == 0 {
			m.posts = m.posts[1:]
		}
	}
	if len(m.posts) == 0 {
		m.posts = nil
		return nil
	}
	return m.posts[0]
}

// Dropped counts the one-way commands that were dropped while the browser did not
// read. One of them may have been to turn on the events of a page.
func (m *Mux) Dropped() uint64 { return m.dropped.Load() }
