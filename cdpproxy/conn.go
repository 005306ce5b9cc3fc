package cdpproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/lease"
)

const (
	// MaxCommand is the longest message taken from a client, in bytes: 100 MiB
	// and more would kill Chrome's pipe for good.
	MaxCommand = 100<<20 - 4096
	// MaxQueued is how many bytes may wait for a client, before the next message
	// for it cuts it off.
	MaxQueued = 256 << 20
)

// Handler answers what the proxy does not pass on to the browser. Its methods
// are called by the connection's reader: while one runs, the client's next
// message waits.
type Handler interface {
	// Lease answers a command of the Lease domain with its result, or with Last.
	Lease(ctx context.Context, method string, params json.RawMessage) (any, *Error)
	// ClosingPage is told before a command that closes a page is passed on.
	ClosingPage()
	// CloseBrowser is told that the client wants the browser closed. The
	// client was answered.
	CloseBrowser()
	// Refused is told of a command that came after the fence was shut.
	Refused(method string)
}

// Last is a result after which the connection may be cut: Then is called once it
// is on its way.
type Last struct {
	Result any
	Then   func()
}

// Conn is one websocket connection of a session. The Mux's loop reads it, and is
// alone with the fields that stand before mu; whoever holds mu may write to it.
type Conn struct {
	session *Peer
	fence   *lease.Fence
	handler Handler
	ctx     context.Context // of Serve
	suffix  []byte          // what ends a message that has no session of its own

	phase       phase
	writeShut   bool // no more is written
	refusedAt   time.Time
	in          []byte // bytes of the client that are not a whole frame, or had to wait
	unread      bool   // in may hold whole frames all the same
	frameLen    int    // length of the frame that in begins with, if that is known
	fragments   []byte // of a message in fragments
	inFragments bool   // a message in fragments has begun
	end         End
	ended       chan End // one place

	staged []stagedCommand // commands that go out with the next commit

	offloading sync.WaitGroup
	busy       atomic.Bool // a goroutine has the last message in hand: nothing is read

	mu             sync.Mutex
	offloaded      []func() // for that goroutine
	fd             int      // -1 while it is not served
	out            outbox
	blocked        bool // the socket takes no more: the loop waits for it
	writeErr       error
	queuedForFlush bool // on the loop's list of what to flush
	cut            bool
	deadline       time.Time                              // zero: none
	closingBrowser bool                                   // the client sent Browser.close
	pending        map[string]map[int64]*continuedRequest // ids in flight by session; "" is the connection's own
	leaseSessions  map[string]bool                        // sessions that used the Lease domain
}

// phase is how far a connection is.
type phase int

const (
	reading    phase = iota
	discarding       // the client broke the protocol: it may still read why
	draining         // only what is queued still goes out
	over
)

// Connect opens a browser session for a client, or one on a target where its id
// is given. The caller serves the connection or closes its peer.
func (m *Mux) Connect(ctx context.Context, target string, fence *lease.Fence, h Handler) (*Conn, error) {
	p, err := m.attach(ctx, fence.Token())
	if err != nil {
		return nil, err
	}
	c := &Conn{
		session: p, fence: fence, handler: h, fd: -1, ended: make(chan End, 1),
		pending: map[string]map[int64]*continuedRequest{"": {}}, leaseSessions: map[string]bool{},
	}
	if target != "" {
		var r struct {
			SessionID string `json:"sessionId"`
		}
		params := map[string]any{"targetId": target, "flatten": true}
		attaching := &Observer{session: p}
		p.mu.Lock()
		p.observer = attaching
		p.mu.Unlock()
		if err := attaching.Call(ctx, "", "Target.attachToTarget", params, &r); err != nil {
			return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
		}
		p.defaultID = r.SessionID
	}
	c.suffix = append(append(append(make([]byte, 0, 64), sessionKey...), p.defaultID...), '"', '}')
	p.mu.Lock()
	p.conn, p.observer = c, nil
	p.mu.Unlock()
	return c, nil
}

// Peer is what the connection leaves behind when it ends.
func (c *Conn) Peer() *Peer { return c.session }

// Serve carries messages until either side ends, and closes conn. buffered holds
// what was read of conn already.
func (c *Conn) Serve(ctx context.Context, conn net.Conn, buffered *bufio.Reader) End {
	defer c.retire()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := takeSocket(conn)
	if err != nil {
		return End{Err: err}
	}
	defer s.close()
	if n := buffered.Buffered(); n > 0 {
		b, _ := buffered.Peek(n) // it has them
		c.in, c.unread = slices.Clone(b), true
	}
	c.ctx = ctx
	c.mu.Lock()
	c.fd = s.fd
	if c.cut { // before it was served
		c.startEndTimeout()
	}
	c.mu.Unlock()
	c.flush()
	if err := c.session.mux.wake(c); err != nil {
		c.dropSocket()
		return End{Err: err}
	}
	end := <-c.ended
	c.offloading.Wait()
	c.dropSocket()
	return end
}

// unserve has nobody write to the socket any more.
func (c *Conn) dropSocket() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd = -1
}

// retire leaves the peer without its connection.
func (c *Conn) retire() {
	c.session.mu.Lock()
	c.session.conn = nil
	c.session.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.forgetPending()
	c.out = outbox{}
}
