package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// clients are the connections of a session, and what those that ended left open in the
// browser.
type clients struct {
	token   lease.Token
	browser func() *browser.Browser // nil while there is none
	log     zerolog.Logger

	// mu is held when the end of a connection and the session's facts change together. It is
	// taken before the session's mutex.
	mu    sync.Mutex
	conns map[*cdpproxy.Conn]bool
	// ended are the client sessions of connections that ended. returned are those whose worker
	// came back: their browser contexts stay.
	ended, returned []*cdpproxy.ClientSession
	commands        recorder.Commands // of connections that ended
}

func newClients(token lease.Token, browser func() *browser.Browser, log zerolog.Logger) *clients {
	return &clients{token: token, browser: browser, log: log, conns: map[*cdpproxy.Conn]bool{}}
}

// inherit keeps the client sessions of an earlier launcher's connections.
func (c *clients) inherit(left []*cdpproxy.ClientSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = left
}

// add counts a connection among those that are open.
func (c *clients) add(conn *cdpproxy.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[conn] = true
}

// remove takes in the end of a connection. facts states it in the same step: run closes what
// ended connections left behind when the session goes on without them, and must not take this
// connection for one of those before its end is stated.
func (c *clients) remove(conn *cdpproxy.Conn, facts func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[conn] { // otherwise Detach had it
		c.leave(conn)
	}
	facts()
}

// leave takes a connection out of the open ones, with those of the pages that it exposed. The caller
// holds c.mu.
func (c *clients) leave(conn *cdpproxy.Conn) {
	for _, exposed := range conn.Exposed() {
		if c.conns[exposed] {
			c.leave(exposed)
		}
	}
	c.keepCommands(conn.ClientSession())
	delete(c.conns, conn)
	c.ended = append(c.ended, conn.ClientSession())
}

// snapshot returns the client sessions of connections that ended, and calls facts in the
// same step.
func (c *clients) snapshot(facts func()) []*cdpproxy.ClientSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	facts()
	return slices.Clone(c.ended)
}

func (c *clients) connected() []*cdpproxy.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conns := make([]*cdpproxy.Conn, 0, len(c.conns))
	for conn := range c.conns {
		conns = append(conns, conn)
	}
	return conns
}

// closing counts the connections that end cleanly: see cdpproxy.Conn.Closing.
func (c *clients) closing() int {
	n := 0
	for _, conn := range c.connected() {
		if conn.Closing() {
			n++
		}
	}
	return n
}

// fence fails the requests that vanished clients had paused. Their client sessions stay open.
func (c *clients) fence() {
	c.mu.Lock()
	all := slices.Concat(c.ended, c.returned)
	c.mu.Unlock()
	for _, p := range all {
		p.Fence()
	}
}

// release lets go on whatever vanished clients had blocked, but for the requests that they had paused,
// which are failed: the worker may have lost another connection since run saw that it is back. Their
// client sessions stay open, since their browser contexts would end with them.
func (c *clients) release() {
	c.mu.Lock()
	ended := c.ended
	c.ended, c.returned = nil, append(c.returned, ended...)
	c.mu.Unlock()
	for _, p := range ended {
		p.Fence()
		p.Free()
	}
}

// close ends client sessions that a living session no longer needs.
func (c *clients) close(ctx context.Context, ended []*cdpproxy.ClientSession) {
	c.mu.Lock()
	c.ended = slices.DeleteFunc(c.ended, func(p *cdpproxy.ClientSession) bool { return slices.Contains(ended, p) })
	c.mu.Unlock()
	for _, p := range ended {
		p.Fence()
		c.closeOne(ctx, p)
	}
}

// closeExposed ends the client session of a page that the worker had exposed, whose document has ended while
// the worker's connection goes on: nobody else would fail what it had paused, or let run what waits for it.
func (c *clients) closeExposed(ctx context.Context, conn *cdpproxy.Conn) {
	c.mu.Lock()
	open := c.conns[conn] // otherwise it is among those that ended
	if open {
		c.keepCommands(conn.ClientSession())
		delete(c.conns, conn)
	}
	c.mu.Unlock()
	if open {
		conn.ClientSession().Fence()
		c.closeOne(ctx, conn.ClientSession())
	}
}

// Detach ends everything that the session's connections have in the browser. They were cut
// before; Detach does not wait until each client has read that.
func (c *clients) Detach() {
	c.mu.Lock()
	for conn := range c.conns {
		c.leave(conn)
	}
	all := slices.Concat(c.ended, c.returned)
	c.ended, c.returned = nil, nil
	c.mu.Unlock()
	for _, p := range all {
		c.closeOne(context.Background(), p)
	}
}

func (c *clients) closeOne(ctx context.Context, p *cdpproxy.ClientSession) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := p.Close(ctx); err != nil && !errors.Is(err, cdpproxy.ErrBrowserGone) {
		c.log.Warn().Err(err).Msg("an ended connection's browser session stays")
	}
	if b := c.browser(); b.Driven() {
		b.Monitor().KeepPlace()
	}
}

// keepCommands keeps what a connection sent since the last call. The caller holds c.mu.
func (c *clients) keepCommands(p *cdpproxy.ClientSession) {
	sent, missed := p.Commands()
	entries := make([]recorder.CommandEntry, len(sent))
	for i, cmd := range sent {
		entries[i] = recorder.CommandEntry{Passed: cmd.Passed, At: cmd.At, LeaseToken: uint64(c.token), Target: cmd.Target, Session: cmd.Session, Method: cmd.Method}
	}
	c.commands.Record(missed, entries...)
}

// sent is the part of a bundle with the last commands of all connections.
func (c *clients) sent() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		c.keepCommands(conn.ClientSession())
	}
	return c.commands.Part()
}

// connection carries one websocket for the public interfaces.
type connection struct {
	s    *Session
	conn *cdpproxy.Conn
}

// Connect opens a connection to the session: to its browser, or to one target.
func (s *Session) Connect(ctx context.Context, targetID string, closeFrames bool) (api.Connection, error) {
	fenced := s.Fence().Check() // first: the end shuts the fence when it has begun
	switch {
	case s.life.isEnding():
		return nil, s.life.endingProblem()
	case fenced != nil:
		return nil, api.Refuse(api.CodeSessionEnded, "session %s is over: %v", s.id, fenced).With("session_id", s.id)
	}
	conn, err := s.browser.Mux().Connect(ctx, targetID, s.Fence(), handler{leaseDomain{s}}, closeFrames)
	if err != nil {
		if refused, ok := errors.AsType[*cdpproxy.Error](err); ok && targetID != "" {
			return nil, api.Refuse(api.CodeNotFound, "session %s has no target %s: %v", s.id, targetID, refused)
		}
		return nil, fmt.Errorf("connecting to session %s: %w", s.id, err)
	}
	s.life.update(func(f *facts) {
		f.connections++
		f.connected, f.left = true, false
		if s.policy.heartbeat == api.HeartbeatConnection {
			f.seenAt = time.Now()
		}
	})
	s.take(conn)
	return &connection{s, conn}, nil
}

// take counts a connection among those that are open. It cuts one that came while the end began, which may not
// have seen it.
func (s *Session) take(conn *cdpproxy.Conn) {
	s.clients.add(conn)
	switch {
	case s.life.isLeft():
		conn.Cut(cdpproxy.CloseShuttingDown, browserStays)
	case s.life.isEnding():
		conn.Cut(cdpproxy.CloseNormal, "the session ended")
	}
}

func (c *connection) Session() api.Session { return c.s.Show() }

func (c *connection) Serve(nc net.Conn, buffered *bufio.Reader) {
	c.s.h.metrics.connections.Inc()
	defer c.s.h.metrics.connections.Dec()
	c.s.log.Info().Str("worker", c.s.manifest.WorkerID).Stringer("peer", nc.RemoteAddr()).Msg("connected")
	c.s.Note(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: connectionOpened})
	c.ended(c.conn.Serve(c.s.h.ctx, nc, buffered))
}

func (c *connection) Cancel() {
	c.s.Note(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: connectionOpened}) // its end is noted, too
	c.ended(cdpproxy.End{Err: errors.New("the client left before the upgrade")})
}

// Names of the journal's entries about connections.
const (
	connectionOpened  = "opened"
	connectionClosed  = "closed"  // with a close handshake
	connectionDropped = "dropped" // without
	connectionCut     = "cut"     // by the launcher
	// connectionsOver stands for the end of all connections with their launcher.
	connectionsOver = "launcher_restarted"
)

func (c *connection) ended(end cdpproxy.End) {
	s := c.s
	name := connectionDropped
	switch {
	case end.Cut:
		name = connectionCut
	case end.Clean:
		name = connectionClosed
	default:
		defer s.still.mayBeLost()() // before anything that takes time
	}
	s.Note(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: name})
	s.log.Info().AnErr("cause", end.Err).Str("how", name).Msg("disconnected")
	s.clients.remove(c.conn, func() {
		s.life.update(func(f *facts) {
			f.connections--
			if f.connections == 0 {
				f.endedAt, f.dropped = time.Now(), !end.Clean
			}
			if s.policy.heartbeat == api.HeartbeatConnection {
				f.seenAt = time.Now()
			}
		})
	})
	if s.life.isOver() { // too late for the session to close it: the browser may have another one
		s.clients.Detach()
	}
}

// keepOpenTimeout bounds how long a closing page waits for the tab that is to stay.
const keepOpenTimeout = 2 * time.Second

// handler handles those commands and events of a session's connections that are not passed on
// to the browser. It implements cdpproxy.Handler.
type handler struct{ leaseDomain }

// ClosingTarget is called when the worker closes a target.
func (h handler) ClosingTarget(target string) { h.s.PageCloses(target) }

// CloseBrowser is called for a worker's Browser.close: the session ends in order.
func (h handler) CloseBrowser() { h.s.life.update(func(f *facts) { f.closing = true }) }

// Refused is called for a command that came too late.
func (h handler) Refused(method string) {
	s := h.s
	if s.ephemeral { // no lease was lost
		return
	}
	s.h.o.Announcer.LateCommand(principal.In(s.h.ctx, principal.Principal{Name: s.manifest.Opener.Name}), s.profile, s.id, s.token, method)
}

// PageCloses opens an empty tab if the target that is about to close is the last tab: without any
// tab Chrome would drop the profile's session cookies.
func (s *Session) PageCloses(target string) {
	m := s.browser.Monitor()
	if m.PageCloses(target) {
		return
	}
	ctx, cancel := context.WithTimeout(s.h.ctx, keepOpenTimeout)
	defer cancel()
	if err := m.Tabs().OpenBehind(ctx, s.Fence()); err != nil {
		s.log.Warn().Err(err).Msg("no tab to keep the profile open: session cookies may be lost")
	}
}
