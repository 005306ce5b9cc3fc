// Package cdpproxy carries the CDP traffic of many websocket connections over the
// one pipe of a browser. Each connection has a browser session of its own in Chrome,
// and a command passes only while the lease that it belongs to is live.
//
// A Mux owns the pipe. A ClientSession is one browser session in Chrome with everything
// that was opened under it. Chrome keeps these apart as it keeps the connections to a
// debugging port apart, and the Mux makes sure that each uses only the CDP sessions that
// were opened under it. A Conn serves a websocket on one; an Observer makes calls from Go
// on another. Message ids need no translation, since Chrome names the session in its
// reply.
//
// A command of a client goes through these files:
//
//	loop.go          one thread waits for the pipe and for every client's socket
//	conn_read.go     the client's bytes become websocket frames (frames.go), and those become messages
//	conn_command.go  the message is parsed (command.go, json.go): refused, left to the handler, or passed on
//	conn_send.go     commands that are passed on are staged, and sent together
//	pipe_write.go    the fence is checked, package acts is told, and the pipe is written, under one lock
//
// A reply or an event of the browser comes back through these:
//
//	pipe_read.go     the pipe's bytes become messages
//	route.go         the client session that a message belongs to is found (browser_message.go, sessions.go)
//	conn_deliver.go  the message is queued (outbox.go), and written to the client's socket
//
// What keeps the launcher's own session out of the clients' sight is in hide.go and
// waiting.go, what lets service workers end in ended_workers.go, and what tells clients of
// the end in conn_targets.go.
//
// Bounded are the size of a message from a client (MaxCommand) and the bytes that
// wait for a client that does not read (MaxQueued): a client over either is cut off.
// The number of commands that a client may have in flight is not bounded.
package cdpproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy/acts"
	"leasehold/internal/boottime"
	"leasehold/lease"
)

// Pipe is the launcher's ends of a browser's pipe. In both directions it carries messages that
// end with a zero byte.
type Pipe struct {
	// Commands and Events are the descriptors that the browser's commands are written
	// to, and that its messages are read from. Both must be nonblocking, and nothing
	// else may use or poll them. The Mux closes them.
	Commands, Events int
	// PipeLog records what is open on the pipe; nil: nothing is recorded. A pipe log that an
	// earlier launcher kept says what is open already: see Inherited. The owner of the pipe
	// closes or removes it.
	PipeLog *PipeLog
	// Waiting waits instead of the kernel; nil: the kernel waits.
	Waiting Waiting
}

// ErrBrowserGone says that the pipe ended: the browser exited or was lost.
var ErrBrowserGone = errors.New("the browser is gone: its pipe ended")

// Mux is the one reader and the one writer of a browser's pipe.
type Mux struct {
	traffic   func(Traffic)
	acts      acts.Acts
	pipeLog   *PipeLog         // nil: none is kept
	waiting   Waiting          // nil: the kernel
	inherited []*ClientSession // opened by an earlier launcher; set by New

	inFlight atomic.Int32 // commands of clients that wait for their replies
	reads    atomic.Uint64
	routing  atomic.Bool // the loop is reading the pipe, or passing on what it has read
	dropped  atomic.Uint64

	calls     pendingCalls  // on the root session
	attaching chan struct{} // has room for one: see attach
	pictures  owedPictures
	sessions  openSessions
	privacy   privacy
	fresh     freshContexts

	ownContext atomic.Pointer[string] // the id of the profile's own browser context; nil: not asked yet

	// writing is held from a message's check at the fence until the whole message is in the
	// pipe. It guards the following fields.
	writing  sync.Mutex
	commands int              // -1 once nothing more is written
	scratch  []byte           // small messages, put together
	passedAt boottime.Instant // when the fence let the last message through

	writeBy atomic.Pointer[time.Time] // see LimitWrites; nil: no limit

	mu       sync.Mutex
	lastID   int64         // of a call of the launcher's
	endCause error         // nil while the pipe lives
	posts    [][]byte      // see post; what is left to write of each. The first ones go with writing held
	posted   chan struct{} // has room for one: something was posted; closed at the end

	// Only the loop uses these.
	unflushed       []*Conn // connections with something queued since the last flush
	commandSent     bool    // a client's command was sent since the loop last waited
	repliedToClient bool    // a reply went to a client since the pipe was last read
	sentToClient    bool    // any message went to a client since then
	replySeen       bool    // a reply to anybody was read since then

	done chan struct{}

	// waking is held to change what the loop sees when it is woken.
	waking  sync.Mutex
	wakeup  int // an eventfd; -1 while no loop runs
	events  int // -1 once the pipe has ended; only the loop writes it
	joining []*Conn
	stopped bool
}

// New starts to read the pipe. effect tells which commands of clients act on pages. The reader
// of the pipe calls traffic with everything unsafe that pages send, and with what they print;
// traffic must not block. Neither may be nil. The Mux ends when the pipe does, or by Stop. On
// an error the descriptors stay as they were.
func New(pipe Pipe, effect acts.Effect, traffic func(Traffic)) (*Mux, error) {
	wakeup, err := newWakeup()
	if err != nil {
		return nil, err
	}
	m := &Mux{
		commands: pipe.Commands, events: pipe.Events, traffic: traffic, pipeLog: pipe.PipeLog, waiting: pipe.Waiting, wakeup: wakeup, done: make(chan struct{}),
		// An adopted browser may still reply to calls of an earlier launcher.
		lastID:    rand.Int64N(1 << 29),
		privacy:   privacy{pages: map[string]*ClientSession{}, sessions: map[string]bool{}, hidden: map[string]bool{}, logged: map[string]bool{}},
		posted:    make(chan struct{}, 1),
		attaching: make(chan struct{}, 1),
	}
	m.acts.Follow(effect, m.sessions.attached, m.reportCookies)
	m.inheritSessions()
	go func() {
		defer close(m.done)
		m.sendPosts()
		m.closeCommands()
	}()
	go m.run()
	return m, nil
}

// Acts is what clients did in the browser.
func (m *Mux) Acts() *acts.Acts { return &m.acts }

// ForgetActs forgets what clients did, and what they made. It is called when the pages that they had
// are gone.
func (m *Mux) ForgetActs() {
	m.acts.Forget()
	m.fresh.clear()
}

// Stop ends the Mux as if its pipe had ended. The browser lives on.
func (m *Mux) Stop() {
	m.waking.Lock()
	m.stopped = true
	m.waking.Unlock()
	_ = m.wake() // this can only fail for a joining connection
}

// Done is closed when the pipe has ended and nothing more is written to it. Connections outlive
// it until their owner cuts them or their clients leave.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Reads counts the reads of the pipe that returned bytes. While the count grows, the browser is
// alive.
func (m *Mux) Reads() uint64 { return m.reads.Load() }

// Behind tells whether the browser has written something that is not passed on yet: it is still
// in the pipe, or the reader is working on it, which may take as long as a disk needs. Call it
// before Reads: what is read between the two calls then shows in one of them.
func (m *Mux) Behind() bool {
	m.waking.Lock()
	defer m.waking.Unlock()
	if m.events < 0 {
		return false
	}
	n, err := unix.IoctlGetInt(m.events, unix.TIOCINQ)
	return err != nil || n > 0 || m.routing.Load()
}

// Barrier returns when every message that passed a fence before it was shut has
// reached the pipe, or never will.
func (m *Mux) Barrier() {
	m.writing.Lock()
	defer m.writing.Unlock()
}

// flush writes what is queued for connections to their sockets.
func (m *Mux) flush() {
	for _, c := range m.unflushed {
		c.flush()
	}
	m.unflushed = m.unflushed[:0]
}

// end refuses further calls and posts. Calls that wait return when done is closed.
func (m *Mux) end(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endCause = cause
	close(m.posted)
}

// attachTimeout bounds how long Chrome may take to open a browser session.
const attachTimeout = 20 * time.Second

// attach opens a browser session in Chrome: for a client's lease or, with token 0,
// for the launcher itself. It opens one after the other, so that it is known whose is
// the one that Chrome tells of.
func (m *Mux) attach(ctx context.Context, token lease.Token) (*ClientSession, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	select {
	case m.attaching <- struct{}{}:
	case <-m.done:
		return nil, ErrBrowserGone
	case <-ctx.Done():
		return nil, fmt.Errorf("the browser has not opened another connection's session yet: %w", ctx.Err())
	}
	m.sessions.opening(token == 0)
	call, err := m.start(nil, "", "Target.attachToBrowserTarget", nil, &m.calls)
	if err != nil {
		m.attachEnds()
		return nil, err
	}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := call.Wait(ctx, &r); err != nil {
		if errors.Is(err, ctx.Err()) {
			call.leave(m.attachedLate)
		} else {
			call.Forget()
			m.attachEnds()
		}
		return nil, err
	}
	s := newClientSession(m, r.SessionID, token)
	m.pipeLog.append(lineOpened, s.id, fmt.Sprint(token))
	m.sessions.add(s.id, s)
	m.attachEnds()
	return s, nil
}

// attachEnds lets the next browser session be opened.
func (m *Mux) attachEnds() {
	m.sessions.opening(false)
	<-m.attaching
}

// attachedLate detaches a browser session for which nobody waits any more, by Chrome's reply to
// the command that opened it.
func (m *Mux) attachedLate(msg []byte) {
	var r struct {
		Result struct {
			SessionID string `json:"sessionId"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) == nil && r.Result.SessionID != "" {
		m.forgetSession(r.Result.SessionID)
		m.post(oneWay("", "Target.detachFromTarget", map[string]string{"sessionId": r.Result.SessionID}))
	}
	m.attachEnds()
}
