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

	"leasehold/cdpproxy/methods"
	"leasehold/lease"
)

const (
	// tooLong is the length of a message, in bytes, that would end Chrome's pipe for good. MaxCommand is
	// the longest message accepted from a client: it leaves room for the name of a session.
	tooLong    = 100 << 20
	MaxCommand = tooLong - 4096
	// MaxQueued is how many bytes may wait for a client. A client that has more waiting is cut
	// off when the next message for it comes.
	MaxQueued = 256 << 20
)

// Handler answers the commands that the proxy does not pass on to the browser. Its
// methods may block: the connection's next message is not read before they return.
//
// It has 10 methods because it is a session as a connection sees it, which has one of them.
type Handler interface {
	// Lease answers a command of the Lease domain with its result, which may be a
	// Last or a Later, or with an error.
	Lease(ctx context.Context, method string, params json.RawMessage) (any, *Error)
	// ClosingTarget is called before a command that closes a target is passed on.
	ClosingTarget(target string)
	// CloseBrowser is called when the client wants the browser closed. A cut by then comes
	// after the answer, which is sent at the latest when CloseBrowser has returned, and earlier
	// where something else is sent to the client meanwhile.
	CloseBrowser()
	// Refused is called for each command that came after the fence was shut, and for one of which the browser
	// had not got all by then: that is among ClientSession.Commands nevertheless, as it had passed the fence.
	Refused(method string)
	// Readable and Writable return nil for a file that pages of the session may read,
	// and for a directory that they may download to. The error says what is allowed.
	Readable(path string) error
	Writable(dir string) error
	// DownloadDir is where downloads go as long as the client has not said where.
	DownloadDir() string
	// Denied is called for each command that the session may not send.
	Denied(method string, why *methods.Refusal)
	// Opened is called with a further connection of the session, on which a page speaks that a
	// client has exposed: see Conn.Exposed. left is called if it ends with the page's document: what it
	// has in the browser is open then. The context ends with the connection of the client.
	Opened(c *Conn) (left func(ctx context.Context))
	// Takeover says whether a person has the session; nil: none ever does.
	Takeover() *Takeover
}

// Last is a result after which the connection may be cut. Then is called when the result is queued for
// the client. It is sent at the latest when Then has returned, and earlier where something else is sent
// to the client meanwhile.
type Last struct {
	Result any
	Then   func()
}

// Conn is one websocket connection of a worker's session. The Mux's loop reads it,
// and runs the commands that may block on a goroutine (see offload).
type Conn struct {
	session *ClientSession
	fence   *lease.Fence
	handler Handler
	taken   *Takeover
	// released says that the client has ended the session, and sends nothing more. The loop
	// reads it, and a goroutine of offload sets it.
	released atomic.Bool
	ctx      context.Context // of Serve
	laters   later
	suffix   []byte // replaces the last brace of a message that names no session
	// closeFrames says that the client understands close frames. For a client that does not,
	// the connection ends as Chrome ends it: the socket is closed.
	closeFrames bool

	// Only the loop uses these.
	phase       phase
	writeShut   bool      // our direction of the socket is shut down
	refusedAt   time.Time // when the client broke the protocol
	in          []byte    // received, but not handled yet
	unread      bool      // in may begin with a complete frame
	frameLen    int       // length of the frame that in begins with; 0: not known
	inFragments bool      // a message in fragments has begun
	fragments   []byte    // what there is of it
	staged      []stagedCommand
	end         End
	ended       chan End // has room for one

	// busy says that the goroutine of offload is at work. Until it is done, the loop does not
	// read from the client.
	busy       atomic.Bool
	offloading sync.WaitGroup

	mu             sync.Mutex // its holder may write to the socket
	offloaded      []func()   // what the goroutine has to do
	fd             int        // -1 while the connection is not served
	out            outbox
	blocked        bool      // the socket takes no more now: the loop waits until it does
	writeErr       error     // why nothing more can be written
	queuedForFlush bool      // the connection is in Mux.unflushed
	cut            bool      // nothing more is queued for the client
	deadline       time.Time // when the loop gives the connection up; zero: never
	closingBrowser bool      // the client sent Browser.close
	// pending are the commands in flight, by CDP session ("" is the connection's own)
	// and id. A value is not nil if the command continues a paused request.
	pending map[string]map[int64]*continuedRequest
	// more is how many further commands are in flight that have the same id as one in pending.
	more          map[inFlight]int
	leaseSessions map[string]bool // CDP sessions on which the client used the Lease domain
	// discovered are the targets that the client was told about, by the CDP session on which it
	// asked for that.
	discovered map[string]map[string]bool
	// unshown are the ids of browser targets that the client was not told about: see hidesBrowser.
	unshown map[string]bool
	// undiscovering are commands in flight by which it asks for the end of that.
	undiscovering map[inFlight]bool
	exposed       []*Conn // see Exposed
	// targetClosed says that the connection ended because its target was closed, as Chrome
	// would end it.
	targetClosed bool
}

// inFlight names the commands in flight that have one id on one CDP session.
type inFlight struct {
	sessionID string
	id        int64
}

// phase is how far a connection is.
type phase int

const (
	reading    phase = iota
	discarding       // the client broke the protocol, and may still read the reason
	draining         // only what is queued is still sent
	over
)

// Connect opens a browser session for a client or, if target is not empty, one whose messages
// go to the target with that id. closeFrames says that the client understands close frames; for
// one that does not, the connection simply ends. The caller serves the connection, or closes
// what ClientSession returns.
func (m *Mux) Connect(ctx context.Context, target string, fence *lease.Fence, h Handler, closeFrames bool) (*Conn, error) {
	s, err := m.attach(ctx, fence.Token())
	if err != nil {
		return nil, err
	}
	c := &Conn{
		session: s, fence: fence, handler: h, taken: h.Takeover(), closeFrames: closeFrames, fd: -1, ended: make(chan End, 1),
		pending: map[string]map[int64]*continuedRequest{"": {}}, leaseSessions: map[string]bool{}, discovered: map[string]map[string]bool{}, unshown: map[string]bool{},
	}
	if m.isPrivate(target) {
		return nil, errors.Join(&Error{codeInvalidParams, "No target with given id found"}, s.giveUp(ctx))
	}
	if target != "" {
		var r struct {
			SessionID string `json:"sessionId"`
		}
		params := map[string]any{"targetId": target, "flatten": true}
		attaching := &Observer{session: s}
		s.mu.Lock()
		s.observer = attaching
		s.mu.Unlock()
		if err := attaching.Call(ctx, "", "Target.attachToTarget", params, &r); err != nil {
			return nil, errors.Join(err, s.giveUp(ctx))
		}
		s.defaultID = r.SessionID
		if m.sessions.get(s.defaultID).privileged {
			refused := methods.RefuseTarget()
			h.Denied("Target.attachToTarget", refused)
			return nil, errors.Join(&Error{refused.Code, refused.Message("the connection")}, s.giveUp(ctx))
		}
	}
	s.SetDownloadDir(h.DownloadDir())
	c.suffix = append(append(append(make([]byte, 0, 64), sessionKey...), s.defaultID...), '"', '}')
	s.mu.Lock()
	s.conn, s.observer = c, nil
	s.mu.Unlock()
	if !m.sessions.isOpen(s.defaultID) { // the target was closed meanwhile, without an event
		gone := &Error{codeInvalidParams, "No target with given id found"}
		return nil, errors.Join(gone, s.giveUp(ctx))
	}
	return c, nil
}

// ClientSession returns the connection's browser session, which outlives it.
func (c *Conn) ClientSession() *ClientSession { return c.session }

// Serve carries messages until either side ends, and closes conn. buffered contains what was
// already read from conn.
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
		b, _ := buffered.Peek(n) // it cannot fail: there are that many
		c.in, c.unread = slices.Clone(b), true
	}
	c.ctx = ctx
	later, connectionEnds := context.WithCancel(ctx)
	defer connectionEnds()
	c.mu.Lock()
	c.laters.ctx = later
	c.fd = s.fd
	if c.cut { // the connection was cut before it was served
		c.startEndTimeout()
	}
	c.mu.Unlock()
	c.flush()
	if err := c.session.mux.wake(c); err != nil {
		c.dropSocket()
		return End{Err: err}
	}
	end := <-c.ended
	connectionEnds()
	c.offloading.Wait()
	c.laters.work.Wait()
	c.dropSocket()
	return end
}

// dropSocket makes sure that nothing is written to the socket any more.
func (c *Conn) dropSocket() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd = -1
}

// retire separates the client session from its connection.
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
