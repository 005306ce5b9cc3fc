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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// Mux is the one reader and the one writer of a browser's pipe.
type Mux struct {
	commands    *os.File
	rawCommands syscall.RawConn // of commands
	traffic     func(Traffic)
	ledger      *Ledger // nil: none is kept

	writing sync.Mutex // held for each message to the pipe, until it is whole
	// Of whoever holds writing:
	scratch    []byte             // small messages, put together
	parts      [3][]byte          // what to write
	onWritable func(uintptr) bool // writes parts, once
	written    int
	failed     error
	passedAt   boottime.Instant // when the fence let the last message through

	inFlight  atomic.Int32 // commands of clients in flight
	lastActed atomic.Int64 // see Acted
	reads     atomic.Uint64
	routing   atomic.Bool // the loop reads the pipe, or passes on what it read

	calls pendingCalls // on the root session

	mu     sync.Mutex
	owners map[string]*Peer // by CDP session: the peer's own and its children
	// attached are the targets of clients' sessions, by session.
	clientTargets map[string]string
	typedAt       map[string]boottime.Instant // by target, see Typed
	actedAt       map[string]boottime.Instant // the same, see ActedOn
	// made are targets, navigated documents by loader: see Made and Navigated.
	made, navigated map[string]bool
	inherited       []*Peer // of a launcher before
	lastID          int64
	endCause        error
	posts           chan []byte // see post
	dropped         atomic.Uint64

	// The loop's:
	unflushed       []*Conn // with something to flush
	commandSent     bool    // a command was sent since it last waited
	repliedToClient bool    // a client was, since it last read the pipe
	sentToClient    bool    // anything went to a client, since then
	replySeen       bool    // anybody was answered, since then
	done            chan struct{}

	// waking is held to change what the loop finds when it is woken.
	waking  sync.Mutex
	wakeup  int // an eventfd; -1 where no loop runs
	events  int // -1 once the pipe has ended; written by the loop
	joining []*Conn
	stopped bool
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
		commands: pipe.Commands, rawCommands: raw, events: pipe.Events, traffic: traffic, ledger: pipe.Ledger, wakeup: wakeup,
		owners: map[string]*Peer{}, clientTargets: map[string]string{}, done: make(chan struct{}),
		// An adopted browser may still answer the launcher before.
		lastID: rand.Int64N(1 << 29),
		posts:  make(chan []byte, maxPosts),
	}
	m.onWritable = m.writeOnce
	m.inheritSessions()
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

// Done is closed when the pipe has ended and every connection was told.
func (m *Mux) Done() <-chan struct{} { return m.done }

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

// Barrier returns when every message that passed a fence before it was shut has
// reached the pipe.
func (m *Mux) Barrier() {
	m.writing.Lock()
	defer m.writing.Unlock()
}

func (m *Mux) flush() {
	for _, c := range m.unflushed {
		c.flush()
	}
	m.unflushed = m.unflushed[:0]
}

// end refuses what comes now. Calls that wait learn of the end by done.
func (m *Mux) end(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endCause = cause
	close(m.posts)
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
	p := newClientSession(m, r.SessionID, token)
	m.ledger.append(lineOpened, p.id, fmt.Sprint(token))
	m.mu.Lock()
	m.owners[r.SessionID] = p
	m.mu.Unlock()
	return p, nil
}

// owns tells whether the session was opened under the peer.
func (m *Mux) owns(p *Peer, session []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[string(session)] == p
}
