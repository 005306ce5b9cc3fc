// Package cdpproxy carries the CDP traffic of many connections over the one pipe
// of a browser, each in a browser session of its own, and lets a message pass
// only while the lease it belongs to is live.
//
// A Mux owns the pipe. A Peer is one browser session in Chrome: Chrome keeps the
// peers apart as it keeps connections to a port apart, and the Mux makes sure
// that a peer uses only the sessions that were opened under it. A Conn serves a
// websocket on a peer; an Observer makes calls from Go. Ids need no translation,
// since Chrome answers with the session that was asked.
//
// What is bounded: messages from a client (MaxCommand), the bytes that wait for a
// client that does not read (MaxQueued); a client over either is cut off. What is
// not: how many commands a client may have in flight.
package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// Pipe is the launcher's two ends of a browser's pipe: messages that end with a
// zero byte, both ways.
type Pipe struct {
	// Events is the descriptor that the browser's messages are read from. It
	// does not block, nothing else reads or watches it, and the Mux closes it.
	Events int
	// Commands is where the browser's commands go. It does not block either, so
	// that its write deadlines work, which bound how long a browser that does
	// not read may hold up a write. Its owner closes it.
	Commands *os.File
	// Ledger, where it is given, is told what is open on the pipe. One that
	// was kept by a launcher before says what is open already: see Left. The
	// owner of the pipe closes or removes it.
	Ledger *Ledger
}

// ErrBrowserGone says that the pipe ended: the browser exited or was lost.
var ErrBrowserGone = errors.New("the browser is gone: its pipe ended")

// Traffic is something that a page sent, or printed, as the browser told a peer of
// it.
type Traffic struct {
	// Method is the CDP event: Network.requestWillBeSent (of an unsafe
	// method) or Network.webSocketFrameSent; or, where a client asked the
	// browser for them, Runtime.consoleAPICalled or Runtime.exceptionThrown.
	Method string
	// Params are nil of what was printed, where they are longer than
	// MaxPrinted.
	Params json.RawMessage
	// Acted is Mux.Acted, when this was sent.
	Acted boottime.Instant
}

// MaxPrinted is the size of the longest parameters of something printed that is
// reported, in bytes.
const MaxPrinted = 16 << 10

// Mux is the one reader and the one writer of a browser's pipe.
type Mux struct {
	commands *os.File
	raw      syscall.RawConn // of commands
	traffic  func(Traffic)
	ledger   *Ledger // nil: none is kept

	writing sync.Mutex // held for each message to the pipe, until it is whole
	// Of whoever holds writing:
	scratch []byte             // small messages, put together
	parts   [3][]byte          // what to write
	once    func(uintptr) bool // writes parts, once
	written int
	failed  error
	passed  boottime.Instant // when the fence let the last message through

	awaited atomic.Int32 // commands of clients in flight
	acted   atomic.Int64 // see Acted
	reads   atomic.Uint64
	routing atomic.Bool // the loop reads the pipe, or passes on what it read

	calls calls // on the root session

	mu    sync.Mutex
	peers map[string]*Peer // by CDP session: the peer's own and its children
	// attached are the targets of clients' sessions, by session.
	attached map[string]string
	typed    map[string]boottime.Instant // by target, see Typed
	actedOn  map[string]boottime.Instant // the same, see ActedOn
	// made are targets, navigated documents by loader: see Made and Navigated.
	made, navigated map[string]bool
	left            []*Peer // of a launcher before
	lastID          int64
	gone            error
	posts           chan []byte // see post
	dropped         atomic.Uint64

	// The loop's:
	dirty    []*Conn // with something to flush
	asked    bool    // a command was sent since it last waited
	answered bool    // a client was, since it last read the pipe
	relayed  bool    // anything went to a client, since then
	replied  bool    // anybody was answered, since then
	done     chan struct{}

	// waking is held to change what the loop finds when it is woken.
	waking  sync.Mutex
	wakeup  int // an eventfd; -1 where no loop runs
	events  int // -1 once the pipe has ended; written by the loop
	joining []*Conn
	stopped bool
}

type reply struct {
	Result json.RawMessage
	Error  *Error
}

// calls are the commands of ours that wait for their answers on one session.
type calls struct {
	mu      sync.Mutex
	waiting map[int64]chan<- []byte
}

// add registers a call. What it returns takes the call back.
func (c *calls) add(id int64, answer chan<- []byte) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[int64]chan<- []byte{}
	}
	c.waiting[id] = answer
	return func() { c.take(id) }
}

func (c *calls) take(id int64) chan<- []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.waiting[id]
	delete(c.waiting, id)
	return answer
}

// settle gives an answer to the call that waits for it, if one does. Whoever called
// parses it: a screenshot would hold up the pipe's reader.
func (c *calls) settle(id int64, msg []byte) {
	if answer := c.take(id); answer != nil {
		answer <- bytes.Clone(msg)
	}
}

// New starts to read the pipe. traffic is told of everything unsafe that pages
// send, and of what they print, by the reader: it must not block. The Mux ends when the pipe does, or by
// Stop. On an error the descriptors are as they were.
func New(pipe Pipe, traffic func(Traffic)) (*Mux, error) {
	raw, err := pipe.Commands.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("the browser's pipe: %w", err)
	}
	wakeup, err := newWakeup()
	if err != nil {
		return nil, err
	}
	m := &Mux{
		commands: pipe.Commands, raw: raw, events: pipe.Events, traffic: traffic, ledger: pipe.Ledger, wakeup: wakeup,
		peers: map[string]*Peer{}, attached: map[string]string{}, done: make(chan struct{}),
		// An adopted browser may still answer the launcher before.
		lastID: rand.Int64N(1 << 29),
		posts:  make(chan []byte, maxPosts),
	}
	m.once = m.writeOnce
	m.takeUp()
	go func() {
		defer close(m.done)
		m.sendPosts()
	}()
	go m.run()
	return m, nil
}

// Stop has the Mux end as if its pipe had, while the browser lives on.
func (m *Mux) Stop() {
	m.waking.Lock()
	m.stopped = true
	m.waking.Unlock()
	_ = m.wake() // fails for joining connections only
}

// maxPosts is how many commands of ours may wait for room in the pipe.
const maxPosts = 4096

// post leaves a command whose answer nobody needs to a goroutine of its own. More
// than maxPosts at once are dropped: the browser does not read, and whoever
// waits for it finds that out.
func (m *Mux) post(msg []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone != nil {
		return
	}
	select {
	case m.posts <- msg:
	default:
		m.dropped.Add(1)
	}
}

// Dropped counts the commands that were dropped so: among them may be what turns the
// events of a page on.
func (m *Mux) Dropped() uint64 { return m.dropped.Load() }

func (m *Mux) sendPosts() {
	for msg := range m.posts {
		_ = m.send(nil, msg, nil) // the pipe's end is the reader's to report
	}
}

// Reads counts the reads of the pipe that brought something: a browser of which it
// grows lives.
func (m *Mux) Reads() uint64 { return m.reads.Load() }

// Behind tells whether the browser has said something that is not passed on yet: it
// lies in the pipe, or the reader is at work on it, which may have to wait for a
// disk. Ask it before Reads: what is read in between then shows in one of them.
func (m *Mux) Behind() bool {
	m.waking.Lock()
	defer m.waking.Unlock()
	if m.events < 0 {
		return false
	}
	n, err := unix.IoctlGetInt(m.events, unix.TIOCINQ)
	return err != nil || n > 0 || m.routing.Load()
}

// Done is closed when the pipe has ended and every connection was told.
func (m *Mux) Done() <-chan struct{} { return m.done }

func (m *Mux) flush() {
	for _, c := range m.dirty {
		c.flush()
	}
	m.dirty = m.dirty[:0]
}

// end refuses what comes now. Calls that wait learn of the end by done.
func (m *Mux) end(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = cause
	close(m.posts)
}

var (
	attached     = []byte(`{"method":"Target.attachedToTarget",`)
	detached     = []byte(`{"method":"Target.detachedFromTarget",`)
	paused       = []byte(`{"method":"Fetch.requestPaused",`)
	authRequired = []byte(`{"method":"Fetch.authRequired",`)
	requestSent  = []byte(`{"method":"Network.requestWillBeSent",`)
	frameSent    = []byte(`{"method":"Network.webSocketFrameSent",`)
	methodMember = []byte(`"method":"`)
	consoleEvent = []byte(`{"method":"Runtime.consoleAPICalled",`)
	exception    = []byte(`{"method":"Runtime.exceptionThrown",`)

	targetCreated = []byte(`{"method":"Target.targetCreated",`)
	targetChanged = []byte(`{"method":"Target.targetInfoChanged",`)
	isAttached    = []byte(`"attached":true`)
	notAttached   = []byte(`"attached":false`)
)

// route hands one message from Chrome to the peer that it belongs to. It is true
// where the message was not copied, but is kept.
func (m *Mux) route(msg []byte) bool {
	if len(msg) < 2 || msg[len(msg)-1] != '}' {
		return false
	}
	a := glance(msg)
	m.replied = m.replied || a.isReply
	if len(a.session) == 0 {
		if a.isReply {
			m.calls.settle(a.id, msg)
		}
		return false
	}
	m.mu.Lock()
	p := m.peers[string(a.session)]
	m.mu.Unlock()
	if p == nil {
		return false
	}
	if a.isReply {
		m.noteOpened(msg)
	} else {
		m.watch(p, a, msg)
	}
	return p.deliver(a, msg)
}

// watch keeps the tables that follow from what Chrome says: children, paused
// requests, and what pages send.
func (m *Mux) watch(p *Peer, a answer, msg []byte) {
	switch {
	case bytes.HasPrefix(msg, attached), bytes.HasPrefix(msg, detached):
		var e struct {
			Params struct {
				SessionID  string `json:"sessionId"`
				Waiting    bool   `json:"waitingForDebugger"`
				TargetInfo struct {
					TargetID string `json:"targetId"`
				} `json:"targetInfo"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) != nil || e.Params.SessionID == "" {
			return
		}
		if bytes.HasPrefix(msg, detached) {
			m.mu.Lock()
			delete(m.peers, e.Params.SessionID)
			delete(m.attached, e.Params.SessionID)
			m.mu.Unlock()
			m.ledger.note(lineDetached, e.Params.SessionID)
			p.forget(e.Params.SessionID)
			return
		}
		m.mu.Lock()
		m.peers[e.Params.SessionID] = p
		if !p.observes() && !p.left {
			m.attached[e.Params.SessionID] = e.Params.TargetInfo.TargetID
		}
		m.mu.Unlock()
		m.ledger.note(lineAttached, p.session, e.Params.SessionID)
		p.trail.attached(e.Params.SessionID, e.Params.TargetInfo.TargetID)
		p.childAttached(e.Params.SessionID, e.Params.Waiting)
	case bytes.HasPrefix(msg, paused), bytes.HasPrefix(msg, authRequired):
		var e struct {
			Params struct {
				RequestID string `json:"requestId"`
			} `json:"params"`
		}
		if json.Unmarshal(msg, &e) == nil {
			p.requestPaused(pausedRequest{string(a.session), e.Params.RequestID}, bytes.HasPrefix(msg, authRequired))
		}
	case bytes.HasPrefix(msg, requestSent):
		if unsafeRequest(msg) {
			m.report("Network.requestWillBeSent", msg)
		}
	case bytes.HasPrefix(msg, frameSent):
		m.report("Network.webSocketFrameSent", msg)
	case bytes.HasPrefix(msg, consoleEvent), bytes.HasPrefix(msg, exception):
		// They come by the thousand: nothing is parsed.
		method, params := cutEvent(msg, a)
		if len(params) > MaxPrinted {
			params = nil
		}
		m.traffic(Traffic{Method: string(method), Params: bytes.Clone(params)})
	}
}

// hideEyes takes the launcher's own attachment out of what a client is told of a
// target: with the eyes on every page none would look free, and a client that
// waits for one would wait for ever.
func (m *Mux) hideEyes(msg []byte) []byte {
	if !bytes.HasPrefix(msg, targetCreated) && !bytes.HasPrefix(msg, targetChanged) {
		return msg
	}
	// Quotes inside a title or URL are escaped, so this is the member.
	at := bytes.LastIndex(msg, isAttached)
	var e struct {
		Params struct {
			TargetInfo struct {
				TargetID string `json:"targetId"`
				Type     string `json:"type"`
			} `json:"targetInfo"`
		} `json:"params"`
	}
	// To the browser itself the client is attached: by its own session.
	if at < 0 || json.Unmarshal(msg, &e) != nil || e.Params.TargetInfo.Type == "browser" {
		return msg
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, target := range m.attached {
		if target == e.Params.TargetInfo.TargetID {
			return msg
		}
	}
	return slices.Concat(msg[:at], notAttached, msg[at+len(isAttached):])
}

// unsafeRequest tells whether a requestWillBeSent is of a method that may change
// something. The request's own method is the second member of that name, and the
// quotes of one in a URL would be escaped.
func unsafeRequest(msg []byte) bool {
	rest := msg[len(requestSent):]
	i := bytes.Index(rest, methodMember)
	if i < 0 {
		return true
	}
	rest = rest[i+len(methodMember):]
	for _, safe := range []string{`GET"`, `HEAD"`, `OPTIONS"`} {
		if bytes.HasPrefix(rest, []byte(safe)) {
			return false
		}
	}
	return true
}

func (m *Mux) report(method string, msg []byte) {
	var e struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		m.traffic(Traffic{Method: method, Params: e.Params, Acted: m.Acted()})
	}
}

// smallMessage is up to which size, in bytes, messages are copied so that they go
// out in one piece: each write may wake the browser.
const smallMessage = 32 << 10

// send writes one message, of up to two parts, to the pipe, and waits where that
// is full. With a fence, it passes only while that is open: the check and the
// write are one step.
func (m *Mux) send(fence *lease.Fence, head, tail []byte) error {
	m.writing.Lock()
	m.scratch = m.scratch[:0]
	if len(head) <= smallMessage {
		m.scratch = append(append(append(m.scratch, head...), tail...), 0)
		head, tail = nil, nil
	} else {
		tail = append(tail, 0)
	}
	rest, err := m.begin(fence, head, tail)
	if err != nil || len(rest) == 0 {
		m.writing.Unlock()
		return err
	}
	return m.finish(rest)
}

// begin checks the fence and writes what the pipe takes at once of what is in
// scratch, and of head and tail after it. It returns the rest, for finish: until
// then nobody else writes. m.writing is held.
func (m *Mux) begin(fence *lease.Fence, head, tail []byte) (rest [][]byte, err error) {
	if fence != nil {
		if m.passed, err = fence.CheckAt(); err != nil {
			return nil, err
		}
	}
	m.parts, m.written, m.failed = [...][]byte{m.scratch, head, tail}, 0, nil
	defer func() { m.parts = [3][]byte{} }()
	if err := errors.Join(m.raw.Write(m.once), m.failed); err != nil {
		return nil, pipeError(err)
	}
	n := m.written
	for _, part := range m.parts {
		if n >= len(part) {
			n -= len(part)
			continue
		}
		rest = append(rest, part[n:])
		n = 0
	}
	return rest, nil
}

func (m *Mux) writeOnce(fd uintptr) bool {
	m.written, m.failed = writeParts(int(fd), m.parts[:]...)
	return true
}

// finish writes the rest of a message, and lets others write.
func (m *Mux) finish(rest [][]byte) error {
	defer m.writing.Unlock()
	for _, part := range rest {
		if _, err := m.commands.Write(part); err != nil {
			return pipeError(err)
		}
	}
	return nil
}

// writeParts writes what can be written at once, in one system call.
func writeParts(fd int, parts ...[]byte) (n int, err error) {
	only, several := parts[0], false
	for _, part := range parts[1:] {
		if len(part) > 0 {
			several = several || len(only) > 0
			only = part
		}
	}
	for {
		if several {
			n, err = unix.Writev(fd, parts)
		} else {
			n, err = unix.Write(fd, only)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}

func pipeError(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBrowserGone, err)
	}
	return nil
}

// Barrier returns when every message that passed a fence before it was shut has
// reached the pipe.
func (m *Mux) Barrier() {
	m.writing.Lock()
	defer m.writing.Unlock()
}

// call sends a command of the Mux's own on a session ("" is the root) and waits
// for the answer, which comes in where calls of that session are.
func (m *Mux) call(ctx context.Context, session, method string, params, result any, on *calls) error {
	if params == nil {
		params = struct{}{}
	}
	c := make(chan []byte, 1)
	m.mu.Lock()
	if m.gone != nil {
		m.mu.Unlock()
		return fmt.Errorf("%s: %w", method, m.gone)
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
	if err := m.send(nil, msg, nil); err != nil {
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

// Call sends a command on the root session and waits for its result.
func (m *Mux) Call(ctx context.Context, method string, params, result any) error {
	return m.call(ctx, "", method, params, result, &m.calls)
}

// attachTimeout bounds how long Chrome may take to open a browser session.
const attachTimeout = 20 * time.Second

// attach opens a browser session in Chrome for a new peer, of a client's lease or,
// with token 0, of the launcher itself.
func (m *Mux) attach(ctx context.Context, token lease.Token) (*Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := m.Call(ctx, "Target.attachToBrowserTarget", nil, &r); err != nil {
		return nil, err
	}
	p := newPeer(m, r.SessionID, token)
	m.ledger.note(lineOpened, p.session, fmt.Sprint(token))
	m.mu.Lock()
	m.peers[r.SessionID] = p
	m.mu.Unlock()
	return p, nil
}

// owns tells whether the session was opened under the peer.
func (m *Mux) owns(p *Peer, session []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[string(session)] == p
}
