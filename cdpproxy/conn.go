package cdpproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

const (
	// MaxCommand is the longest message taken from a client, in bytes: 100 MiB
	// and more would kill Chrome's pipe for good.
	MaxCommand = 100<<20 - 4096
	// MaxQueued is how many bytes may wait for a client, before the next message
	// for it cuts it off.
	MaxQueued = 256 << 20

	// cutGrace is how long a client that was cut off may take to read the
	// reason and to answer the close frame. One that was refused in the middle
	// of what it says may take it again after each part, up to refuseGrace.
	cutGrace    = 2 * time.Second
	refuseGrace = 10 * time.Second
)

// The close codes of the outside contract.
const (
	CloseNormal       = 1000
	CloseBadData      = 1003
	CloseTooSlow      = 1008
	CloseTooBig       = 1009
	CloseExpired      = 4408
	CloseFenced       = 4409
	CloseQuarantined  = 4410
	CloseCrashed      = 4411
	CloseShuttingDown = 4503
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

// End is how a connection ended.
type End struct {
	// Clean says that the client began the close handshake.
	Clean bool
	// Cut says that the launcher ended it.
	Cut bool
	Err error
}

// Conn is one websocket connection of a session. The Mux's loop reads it, and is
// alone with the fields that stand before mu; whoever holds mu may write to it.
type Conn struct {
	peer    *Peer
	fence   *lease.Fence
	handler Handler
	ctx     context.Context // of Serve
	tail    []byte          // what ends a message that has no session of its own

	phase   phase
	shut    bool // no more is written
	refused time.Time
	in      []byte // bytes of the client that are not a whole frame, or had to wait
	unread  bool   // in may hold whole frames all the same
	want    int    // length of the frame that in begins with, if that is known
	parts   []byte // of a message in fragments
	partial bool   // a message in fragments has begun
	end     End
	ended   chan End // one place

	staged []staged // commands that go out with the next commit

	work sync.WaitGroup
	busy atomic.Bool // a goroutine has the last message in hand: nothing is read

	mu       sync.Mutex
	todo     []func() // for that goroutine
	fd       int      // -1 while it is not served
	out      outbox
	blocked  bool // the socket takes no more: the loop waits for it
	broken   error
	dirty    bool // on the loop's list of what to flush
	cut      bool
	deadline time.Time                      // zero: none
	closing  bool                           // the client sent Browser.close
	pending  map[string]map[int64]*disposal // ids in flight by session; "" is the connection's own
	asked    map[string]bool                // sessions that used the Lease domain
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
		peer: p, fence: fence, handler: h, fd: -1, ended: make(chan End, 1),
		pending: map[string]map[int64]*disposal{"": {}}, asked: map[string]bool{},
	}
	if target != "" {
		var r struct {
			SessionID string `json:"sessionId"`
		}
		params := map[string]any{"targetId": target, "flatten": true}
		attaching := &Observer{peer: p}
		p.mu.Lock()
		p.watcher = attaching
		p.mu.Unlock()
		if err := attaching.Call(ctx, "", "Target.attachToTarget", params, &r); err != nil {
			return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
		}
		p.base = r.SessionID
	}
	c.tail = append(append(append(make([]byte, 0, 64), sessionKey...), p.base...), '"', '}')
	p.mu.Lock()
	p.conn, p.watcher = c, nil
	p.mu.Unlock()
	return c, nil
}

// Peer is what the connection leaves behind when it ends.
func (c *Conn) Peer() *Peer { return c.peer }

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
		c.linger()
	}
	c.mu.Unlock()
	c.flush()
	if err := c.peer.mux.wake(c); err != nil {
		c.unserve()
		return End{Err: err}
	}
	end := <-c.ended
	c.work.Wait()
	c.unserve()
	return end
}

// unserve has nobody write to the socket any more.
func (c *Conn) unserve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd = -1
}

// retire leaves the peer without its connection.
func (c *Conn) retire() {
	c.peer.mu.Lock()
	c.peer.conn = nil
	c.peer.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.forgetPending()
	c.out = outbox{}
}

// interest is what the loop has to wait for.
func (c *Conn) interest() unix.PollFd {
	p := unix.PollFd{Fd: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked {
		p.Events |= unix.POLLOUT
	}
	if c.phase <= discarding && !c.busy.Load() {
		p.Events |= unix.POLLIN
	}
	if p.Events != 0 {
		p.Fd = int32(c.fd)
	}
	return p
}

// due is when the loop has to look again without being woken.
func (c *Conn) due() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero() && !c.busy.Load()
}

// turn reads the client if there is something to read, and ends what is to end.
func (c *Conn) turn(l *loop, readable bool) {
	if c.busy.Load() {
		return
	}
	if c.unread {
		c.unread = false
		c.take(c.in, true)
	}
	if readable && c.phase <= discarding && !c.busy.Load() {
		c.read(l.in)
	}
	if c.busy.Load() {
		return
	}
	c.mu.Lock()
	broken, waits := c.broken, c.out.size > 0
	late := !c.deadline.IsZero() && !time.Now().Before(c.deadline)
	c.mu.Unlock()
	switch {
	case broken != nil:
		c.leave(over, End{Err: broken})
	case late:
		c.leave(over, End{Err: os.ErrDeadlineExceeded})
	case c.phase == draining && !waits:
		c.leave(over, End{})
	case c.phase == discarding && !waits && !c.shut:
		// The client sees the end, and that it should close too.
		c.shut = true
		_ = unix.Shutdown(c.fd, unix.SHUT_WR) // of what may be closed already
	}
	if c.phase == over {
		c.ended <- c.end
	}
}

// leave goes on to a later phase. The end that is given first counts.
func (c *Conn) leave(to phase, end End) {
	c.mu.Lock()
	if c.phase == reading {
		c.end = end
		c.end.Cut = c.cut
		c.cut = true
		c.forgetPending()
		c.linger()
	}
	c.mu.Unlock()
	c.phase = to
}

// read takes what the client sent, by way of shared where nothing waits for more.
func (c *Conn) read(shared []byte) {
	into := shared
	owned := len(c.in) > 0 && c.phase == reading
	if owned {
		const least = 4 << 10
		c.in = slices.Grow(c.in, max(least, c.want-len(c.in)))
		into = c.in[len(c.in):cap(c.in)]
	}
	n, err := unix.Read(c.fd, into)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil:
		c.leave(draining, End{Err: os.NewSyscallError("read", err)})
	case n == 0:
		c.leave(draining, End{Err: io.EOF})
	case c.phase == discarding:
		c.mu.Lock()
		if now := time.Now(); now.Before(c.refused.Add(refuseGrace - cutGrace)) {
			c.deadline = now.Add(cutGrace)
		}
		c.mu.Unlock()
	case owned:
		c.take(c.in[:len(c.in)+n], true)
	default:
		c.take(into[:n], false)
	}
}

// take handles the whole frames that b begins with, and keeps what is left. b is
// the connection's own, or good only until take returns.
func (c *Conn) take(b []byte, owned bool) {
	c.want = 0
	for c.phase == reading && !c.busy.Load() {
		f, whole, bad := parseFrame(b, c.fragments())
		if bad != nil {
			c.refuse(bad)
		}
		if !whole {
			break
		}
		if length := f.size + f.length; len(b) < length {
			c.want = length
			break
		}
		payload := b[f.size : f.size+f.length]
		b = b[f.size+f.length:]
		unmask(payload, f.mask)
		switch {
		case f.op == ws.OpClose:
			c.closed(payload)
		case f.op == ws.OpPing:
			c.push(ws.OpPong, payload)
			c.flush()
		case f.op == ws.OpPong:
		case f.fin && !c.partial:
			c.command(payload, owned)
		default:
			c.parts, c.partial = append(c.parts, payload...), true
			if f.fin {
				msg := c.parts
				c.parts, c.partial = nil, false
				c.command(msg, true)
			}
		}
	}
	c.commit()
	c.unread = len(b) > 0 && c.busy.Load()
	switch {
	case len(b) == 0 || c.phase != reading:
		c.in = nil
	case owned && (cap(b) <= largestRead || c.want > readChunk):
		c.in = b
	default:
		c.in = append(make([]byte, 0, max(c.want, 2*len(b))), b...)
	}
}

// fragments is how much of a message came in fragments so far; -1 where none did.
func (c *Conn) fragments() int {
	if !c.partial {
		return -1
	}
	return len(c.parts)
}

// closed answers the client's close frame.
func (c *Conn) closed(payload []byte) {
	answer, bad := closeAnswer(payload)
	if bad != nil {
		c.refuse(bad)
		return
	}
	c.push(ws.OpClose, answer)
	c.flush()
	c.leave(draining, End{Clean: true})
}

// refuse closes the connection of a client that broke the protocol. What it sends
// until it closes too is read: closed with bytes unread, the socket would be
// reset, and the client never read the reason.
func (c *Conn) refuse(v *violation) {
	c.push(ws.OpClose, ws.NewCloseFrameBody(v.code, clipReason(v.reason)))
	c.flush()
	c.refused = time.Now()
	c.leave(discarding, End{Err: v})
}

// refusals are the commands that would break a promise, and why.
var refusals = map[string]string{
	"Browser.crash":                 "would end the browser without its evidence: release the lease instead",
	"Browser.crashGpuProcess":       "would end the browser without its evidence: release the lease instead",
	"Target.exposeDevToolsProtocol": "would let pages drive the browser past the lease",
	"Target.sendMessageToTarget":    "carries commands past the lease: attach with flatten set to true",
}

var leaseDomain = []byte("Lease.")

// command handles one message of the client, which is the connection's own or good
// only until take returns.
func (c *Conn) command(msg []byte, owned bool) {
	cmd, bad := scan(msg)
	switch {
	case bad == errBadUTF8:
		c.refuse(errNotUTF8)
	case bad != nil:
		c.answer(cmd, nil, bad)
	case cmd.inSession && !c.peer.mux.owns(c.peer, cmd.session):
		c.answer(cmd, nil, errSessionGone)
	case refusals[string(cmd.method)] != "":
		c.answer(cmd, nil, &Error{codeServer, "leasehold refuses " + string(cmd.method) + ": it " + refusals[string(cmd.method)]})
	case handled(cmd.method) || !c.stage(cmd, msg, owned):
		if !owned {
			msg = slices.Clone(msg)
		}
		c.commit()
		c.aside(func() { c.handle(msg) })
	}
}

// handled tells which commands the handler is asked about, which may take time.
func handled(method []byte) bool {
	switch string(method) {
	case "Browser.close", "Target.closeTarget", "Page.close":
		return true
	}
	return bytes.HasPrefix(method, leaseDomain)
}

// aside runs what may block, in order. The connection is not read in the meantime.
func (c *Conn) aside(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo = append(c.todo, f)
	if !c.busy.Swap(true) {
		c.work.Go(c.doAside)
	}
}

func (c *Conn) doAside() {
	for {
		c.mu.Lock()
		if len(c.todo) == 0 {
			c.busy.Store(false)
			c.mu.Unlock()
			_ = c.peer.mux.wake() // fails for joining connections only
			return
		}
		f := c.todo[0]
		c.todo = c.todo[1:]
		c.mu.Unlock()
		f()
	}
}

// handle is command for a message that may have to wait.
func (c *Conn) handle(msg []byte) {
	cmd, _ := scan(msg) // it was right before
	switch method := string(cmd.method); {
	case bytes.HasPrefix(cmd.method, leaseDomain):
		c.mu.Lock()
		c.asked[string(cmd.session)] = true
		c.peer.trail.add(cmd.session, cmd.method)
		c.mu.Unlock()
		c.peer.trail.stamp(1, boottime.Now())
		result, err := c.handler.Lease(c.ctx, method, cmd.params)
		last, ends := result.(Last)
		if ends {
			result = last.Result
		}
		c.answer(cmd, result, err)
		if ends {
			last.Then()
		}
		return
	case method == "Browser.close":
		c.answer(cmd, struct{}{}, nil)
		c.mu.Lock()
		c.closing = true
		c.peer.trail.add(cmd.session, cmd.method)
		c.mu.Unlock()
		c.peer.trail.stamp(1, boottime.Now())
		c.handler.CloseBrowser()
		return
	case method == "Target.closeTarget" || method == "Page.close":
		c.handler.ClosingPage()
	}
	if w, ok := c.register(cmd); ok {
		head, tail := c.parted(cmd, msg)
		// Before, too: what comes of it may be told before the write returns.
		c.peer.mux.noteActs(boottime.Now(), staged{cmd, w})
		err := c.peer.mux.send(c.fence, head, tail)
		if err == nil {
			now := boottime.Now()
			c.peer.trail.stamp(1, now)
			c.peer.mux.noteActs(now, staged{cmd, w})
		}
		c.sent(err, staged{cmd, w})
	}
}

// staged is a command that is about to be sent.
type staged struct {
	command
	way
}

// way is what has to be taken back where a command does not reach the browser.
type way struct {
	ids      map[int64]*disposal
	disposes *disposal
}

// register notes that a command is in flight. It is false after a cut.
func (c *Conn) register(cmd command) (way, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return way{}, false
	}
	session := c.peer.base
	ids := c.pending[""]
	if cmd.inSession {
		if ids = c.pending[string(cmd.session)]; ids == nil {
			ids = map[int64]*disposal{}
			c.pending[string(cmd.session)] = ids
		}
	}
	w := way{ids: ids}
	if cmd.tracked() {
		if cmd.inSession {
			session = string(cmd.session)
		}
		w.disposes = c.peer.clientCommand(cmd, session)
	}
	if _, again := ids[cmd.id]; !again {
		c.peer.mux.awaited.Add(1)
	}
	ids[cmd.id] = w.disposes
	c.peer.trail.add(cmd.session, cmd.method)
	return w, true
}

// parted is the message as the browser is to get it, in two parts.
func (c *Conn) parted(cmd command, msg []byte) (head, tail []byte) {
	if cmd.inSession {
		return msg, nil
	}
	return msg[:cmd.end], c.tail
}

// stage has the client's command go out with the next commit. It is false where
// somebody else's message is in the way.
func (c *Conn) stage(cmd command, msg []byte, owned bool) bool {
	m := c.peer.mux
	if len(c.staged) == 0 {
		if !m.writing.TryLock() {
			return false
		}
		m.scratch = m.scratch[:0]
	}
	w, ok := c.register(cmd)
	if !ok {
		if len(c.staged) == 0 {
			m.writing.Unlock()
		}
		return true
	}
	c.staged = append(c.staged, staged{cmd, w})
	head, tail := c.parted(cmd, msg)
	if len(head) > smallMessage {
		c.commitLarge(head, append(tail, 0), owned)
		return true
	}
	m.scratch = append(append(append(m.scratch, head...), tail...), 0)
	if len(m.scratch) > smallMessage {
		c.commit()
	}
	return true
}

// commit sends what is staged.
func (c *Conn) commit() { c.commitLarge(nil, nil, true) }

// commitLarge sends what is staged, the last message of it as head and tail.
func (c *Conn) commitLarge(head, tail []byte, owned bool) {
	if len(c.staged) == 0 {
		return
	}
	m := c.peer.mux
	rest, err := m.begin(c.fence, head, tail)
	if err == nil {
		c.peer.trail.stamp(len(c.staged), m.passed)
		m.noteActs(m.passed, c.staged...)
	}
	if err != nil || len(rest) == 0 {
		m.writing.Unlock()
	}
	if err == nil && len(rest) == 0 {
		m.asked = true
		c.staged = c.staged[:0]
		return
	}
	list := c.staged
	c.staged = nil
	for i := range list {
		list[i].command = list[i].clone()
	}
	if err != nil {
		c.aside(func() { c.sent(err, list...) })
		return
	}
	// The pipe is full, and whoever waits for it to empty goes on holding the
	// lock, and with it what is in scratch.
	if !owned {
		for i := range rest {
			rest[i] = slices.Clone(rest[i])
		}
	}
	c.aside(func() { c.sent(m.finish(rest), list...) })
}

// sent takes back what could not be sent, and tells the client.
func (c *Conn) sent(err error, list ...staged) {
	if err == nil {
		return
	}
	for _, s := range list {
		c.mu.Lock()
		if _, ok := s.ids[s.id]; ok {
			delete(s.ids, s.id)
			if c.pending != nil {
				c.peer.mux.awaited.Add(-1)
			}
		}
		c.mu.Unlock()
		c.peer.restore(s.disposes)
		if !errors.Is(err, ErrBrowserGone) {
			c.handler.Refused(string(s.method))
		}
		c.answer(s.command, nil, &Error{codeServer, err.Error()})
	}
}

// forgetPending forgets what is in flight. c.mu is held.
func (c *Conn) forgetPending() {
	n := 0
	for _, ids := range c.pending {
		n += len(ids)
	}
	c.pending = nil
	c.peer.mux.awaited.Add(int32(-n))
}

// answer gives the client an answer of ours.
func (c *Conn) answer(cmd command, result any, problem *Error) {
	m := map[string]any{}
	if cmd.hasID {
		m["id"] = cmd.id
	}
	if problem != nil {
		m["error"] = problem
	} else {
		m["result"] = result
	}
	if cmd.inSession && problem != errBadSession {
		m["sessionId"] = string(cmd.session)
	}
	msg, err := json.Marshal(m)
	if err != nil {
		return
	}
	c.push(ws.OpText, msg)
	c.flush()
}

// Notify sends a CDP event to every session of the client that used the Lease
// domain: others would not know it.
func (c *Conn) Notify(method string, params any) {
	c.mu.Lock()
	sessions := make([]string, 0, len(c.asked))
	for s := range c.asked {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	for _, s := range sessions {
		msg, err := json.Marshal(struct {
			Method    string `json:"method"`
			Params    any    `json:"params"`
			SessionID string `json:"sessionId,omitempty"`
		}{method, params, s})
		if err == nil {
			c.push(ws.OpText, msg)
		}
	}
	c.flush()
}

// largeMessage is from which size, in bytes, a message is written from where it
// was read.
const largeMessage = 128 << 10

// deliver queues a message from Chrome; the loop calls it, and flushes when it has
// no more at hand. It is true where the connection keeps msg.
func (c *Conn) deliver(a answer, msg []byte) (kept bool) {
	own := string(a.session) == c.peer.base
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	if a.isReply {
		ids := c.pending[string(a.session)]
		if own {
			ids = c.pending[""]
		}
		disposes, ok := ids[a.id]
		if !ok {
			return false // the answer to a command of ours
		}
		delete(ids, a.id)
		c.peer.mux.awaited.Add(-1)
		c.peer.mux.answered = true
		switch {
		case disposes != nil && a.isError:
			c.peer.restore(disposes)
		case disposes != nil:
			c.peer.mux.ledger.note(lineSettled, disposes.request.session, disposes.request.request)
		}
	}
	if c.tooSlow() {
		return false
	}
	if own {
		msg[a.strip] = '}'
		msg = msg[:a.strip+1]
	}
	if !a.isReply {
		msg = c.peer.mux.hideEyes(msg)
	}
	if len(msg) >= largeMessage && c.out.size == 0 && c.fd >= 0 {
		return c.deliverLarge(msg)
	}
	c.out.add(ws.OpText, msg)
	if !c.dirty {
		c.dirty = true
		c.peer.mux.dirty = append(c.peer.mux.dirty, c)
	}
	return false
}

// deliverLarge writes what the socket takes at once, and keeps the rest without a
// copy where it is large. c.mu is held.
func (c *Conn) deliverLarge(msg []byte) (kept bool) {
	var space [maxHeader]byte
	header := appendHeader(space[:0], ws.OpText, len(msg))
	n, err := writeParts(c.fd, header, msg)
	if err != nil {
		c.fail(err)
		return false
	}
	if n < len(header) {
		c.out.keep(slices.Clone(header[n:]))
		n = len(header)
	}
	msg = msg[n-len(header):]
	if kept = len(msg) >= largeMessage; !kept {
		msg = slices.Clone(msg)
	}
	c.out.keep(msg)
	c.blocked = c.out.size > 0
	return kept
}

func (c *Conn) push(op ws.OpCode, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut && !c.tooSlow() {
		c.out.add(op, payload)
	}
}

// tooSlow cuts off a client for which too much waits already.
func (c *Conn) tooSlow() bool {
	if c.out.size <= MaxQueued {
		return false
	}
	c.cutLocked(CloseTooSlow, fmt.Sprintf("the client does not read: more than %d bytes wait for it", MaxQueued))
	return true
}

// Cut ends the connection from our side: each command in flight gets one error
// with the reason, and the close frame follows at once.
func (c *Conn) Cut(code int, reason string) {
	c.mu.Lock()
	c.cutLocked(code, reason)
	c.mu.Unlock()
	c.flush()
}

func (c *Conn) cutLocked(code int, reason string) {
	if c.cut {
		return
	}
	for session, ids := range c.pending {
		if c.closing {
			break // it asked for the end: Chrome too leaves its commands unanswered
		}
		for id := range ids {
			m := map[string]any{"id": id, "error": &Error{codeServer, "leasehold: " + reason}}
			if session != "" {
				m["sessionId"] = session
			}
			if msg, err := json.Marshal(m); err == nil {
				c.out.add(ws.OpText, msg)
			}
		}
	}
	c.forgetPending()
	c.out.add(ws.OpClose, ws.NewCloseFrameBody(ws.StatusCode(code), clipReason(reason)))
	c.cut = true
	if c.fd >= 0 {
		c.linger()
		_ = c.peer.mux.wake() // for the deadline; fails for joining connections only
	}
}

// linger bounds what is left of a connection that was cut.
func (c *Conn) linger() {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(cutGrace)
	}
}

// clipReason keeps a close reason within what a close frame holds.
func clipReason(s string) string {
	const longest = 123
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "")
	}
	return s
}

// flush writes what waits if that can be done without blocking, and leaves the
// rest to the loop.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = false
	if c.blocked {
		return
	}
	if c.writeOut(); c.blocked {
		_ = c.peer.mux.wake() // fails for joining connections only
	}
}

// writable goes on where the socket had taken no more.
func (c *Conn) writable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked {
		c.writeOut()
	}
}

// writeOut writes what the socket takes. c.mu is held.
func (c *Conn) writeOut() {
	if c.fd < 0 || c.out.size == 0 {
		return
	}
	if err := c.out.write(c.fd); err != nil {
		c.fail(err)
		return
	}
	c.blocked = c.out.size > 0
}

// fail gives up what waits for a client that is gone. The loop ends the
// connection. c.mu is held.
func (c *Conn) fail(err error) {
	c.broken = os.NewSyscallError("write", err)
	c.out, c.blocked = outbox{}, false
	_ = c.peer.mux.wake() // fails for joining connections only
}
