package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/lease"
)

// session is one worker's stay on a profile. Its run is the only place that ends
// it; everything else states facts.
type session struct {
	l          *Launcher
	id         string
	capability string
	manifest   api.Manifest
	policy     policy
	profile    string
	path       string
	token      lease.Token
	granted    lease.Record
	resume     *api.Resume
	dedicated  *string
	log        zerolog.Logger

	// open is the profile's browser and lock, which several runs may share.
	open    *openProfile
	journal *checkpoint.Journal
	holding *lease.Holding

	pictures pictures

	// left says that peers are those of a launcher before, whose worker has not
	// come back yet. It is run's.
	left bool

	mu       sync.Mutex
	file     caseFile
	facts    facts
	commands recorder.Commands // of connections that ended
	conns    map[*cdpproxy.Conn]bool
	peers    []*cdpproxy.Peer // of connections that ended
	kept     []*cdpproxy.Peer // of those whose worker came back: their contexts stay
	refusing bool             // the end has begun
	over     bool             // the journal is closed: what connections say now is too late
	woken    chan struct{}    // one place: the facts changed
	done     chan struct{}    // closed when the session is over
}

// live is a browser that is driven: the process, its pipe, and the launcher's
// eyes on it.
type live struct {
	browser  *chrome.Browser
	mux      *cdpproxy.Mux
	ledger   *cdpproxy.Ledger
	dumps    string // the folder of its minidumps; empty: not known
	eyes     *eyes
	vitals   *vitals // nil: it was never driven
	stop     context.CancelFunc
	recorded chan struct{} // closed when all that was seen is in the journal
}

func newSession(l *Launcher, m api.Manifest, r lease.Record, path string, o *openProfile, capability string) *session {
	now := time.Now()
	s := &session{
		l: l, id: r.SessionID, capability: capability, manifest: m, profile: r.ProfileID, path: path,
		token: r.Token, granted: r, open: o, conns: map[*cdpproxy.Conn]bool{},
		policy: policyOf(m, l.o.Timing.TTL, l.o.ReconnectGrace),
		facts:  facts{startedAt: now, seenAt: now},
		woken:  make(chan struct{}, 1), done: make(chan struct{}),
		file: caseFile{
			SessionID: r.SessionID, CapabilityHash: hashCapability(capability), Token: r.Token,
			Manifest: m, OneShot: m.OneShot, ByHand: m.ByHand, AcquiredAt: now.UTC(), SeenAt: now.UTC(), Proxy: o.proxy,
		},
	}
	s.pictures.woken = make(chan struct{}, 1)
	s.pictures.demand = demand{interval: l.o.PictureInterval, frames: map[string]bool{}}
	s.log = l.o.Log.With().Str("profile", s.profile).Uint64("token", uint64(s.token)).Str("session", s.id).Logger()
	return s
}

// policyOf fills in the defaults of a manifest.
func policyOf(m api.Manifest, ttl, grace time.Duration) policy {
	p := policy{
		oneShot: m.OneShot, byHand: m.ByHand != nil, heartbeat: m.Heartbeat, onClose: m.OnClose, onDrop: m.OnDrop,
		silence: ttl, grace: grace, lockTimeout: time.Duration(m.LockTimeoutSeconds * float64(time.Second)),
	}
	if p.heartbeat == "" {
		p.heartbeat = api.HeartbeatConnection
	}
	if p.onClose == "" {
		p.onClose = api.OnCloseKeep
		if m.OneShot {
			p.onClose = api.OnCloseRelease
		}
	}
	if p.onDrop == "" {
		p.onDrop = api.OnDropLost
	}
	return p
}

func (s *session) persist() error {
	s.mu.Lock()
	f := s.file
	f.SeenAt = s.facts.seenAt.UTC()
	s.mu.Unlock()
	return s.l.cases.save(f)
}

// forget removes what a grant that did not happen left behind.
func (s *session) forget() {
	if err := s.l.cases.remove(s.id); err != nil {
		s.log.Warn().Err(err).Msg("session file not removed")
	}
}

// hold begins the holding of the lease that was granted under the keeper's
// presence.
func (s *session) hold(k *lease.Keeper) {
	s.holding = lease.Hold(s.l.ctx, s.granted, s.token, s.l.o.Store, k)
}

func (s *session) openJournal() error {
	var err error
	if s.journal, err = checkpoint.Open(s.l.cases.journal(s.id)); err != nil {
		return err
	}
	s.note(checkpoint.Entry{Kind: checkpoint.KindStart, Name: s.manifest.TaskID, Text: s.manifest.WorkerID})
	return nil
}

// start raises the floor and starts the browser.
func (s *session) start(ctx context.Context) error {
	lock := s.open.lock
	if err := errors.Join(lock.Keep(s.granted), s.openJournal()); err != nil {
		return err
	}
	begun := time.Now()
	// The deadline may have passed while the disk was slow.
	if err := s.holding.Fence().Check(); err != nil {
		return err
	}
	proxy, err := s.openProxy()
	if err != nil {
		return err
	}
	dumps, err := s.l.cases.makeDumps(s.id)
	if err != nil {
		return err
	}
	limit := memoryLimit(s.l.o.BrowserMemory, s.granted.BrowserMemory)
	group, err := s.l.group(s.id, limit)
	if err != nil { // the launcher's own readings hold it all the same
		s.log.Warn().Err(err).Msg("the browser gets no control group")
	}
	browser, err := chrome.Start(ctx, chrome.Options{
		Binary: s.l.o.Chrome, ProfileDir: s.path, Headless: s.l.headless(s.manifest), Proxy: proxy, Group: group, DumpDir: dumps,
		ExtraArgs: s.manifest.ChromeArgs, Lock: lock.File(), OutputFile: s.l.cases.output(s.id),
	})
	if err != nil {
		if group != nil {
			err = errors.Join(err, group.Remove(groupTimeout))
		}
		return err
	}
	identity := browser.Identity()
	for _, w := range browser.Warnings() {
		s.log.Warn().Msg(w)
	}
	ledger, err := cdpproxy.CreateLedger(s.l.cases.ledger(s.id))
	if err != nil { // the session is recovered then, if the launcher is killed
		s.log.Warn().Err(err).Msg("a restart of the launcher will end the session")
	}
	running := profiledir.Running{
		PID: identity.PID, StartTime: identity.StartTime, BootID: identity.BootID, SessionID: s.id, Token: s.token,
		TempDir: browser.TempDir(), OutputFile: s.l.cases.output(s.id), Dumps: dumps,
	}
	if group != nil {
		running.Group = group.Dir()
	}
	if ledger != nil {
		running.Ledger = s.l.cases.ledger(s.id)
	}
	if err := lock.SetRunning(running); err != nil {
		s.open.live = &live{browser: browser, ledger: ledger, stop: func() {}}
		return err
	}
	if s.open.live, err = s.l.drive(ctx, browser, ledger, dumps, s.l.noteAll(s.open, s)); err != nil {
		return err
	}
	started := s.l.fitOf(s.manifest, s.granted, s.open.server)
	s.l.startedFor(s.open, s.id)
	s.open.fit = &started
	s.open.live.vitals.bound(limit)
	s.l.metrics.starts.Observe(time.Since(begun).Seconds())
	if s.manifest.SessionCookies == api.CookiesDrop {
		err = s.l.jar.drop(s.profile)
	} else {
		err = s.l.jar.restore(ctx, s.open.live.eyes.observer, s.profile)
	}
	if err == nil {
		err = s.openDedicated()
	}
	if err != nil {
		return err
	}
	s.observed(ctx)
	s.log.Info().Int("pid", identity.PID).Dur("took", time.Since(begun)).Msg("browser started")
	return nil
}

// openDedicated gives the session a port of its own, if it asked for one.
func (s *session) openDedicated() error {
	if !s.manifest.DedicatedPort {
		return nil
	}
	url, closer, err := s.l.o.Dedicated(s.id, s.file.Dedicated)
	if err != nil {
		return err
	}
	s.dedicated = &url
	s.l.work.Go(func() { <-s.done; closer() })
	s.mu.Lock()
	s.file.Dedicated = strings.TrimPrefix(url, "http://")
	s.mu.Unlock()
	return s.persist()
}

// drive opens the launcher's own session on a browser's pipe. On an error it
// returns the browser all the same, for the caller to close.
func (l *Launcher) drive(ctx context.Context, browser *chrome.Browser, ledger *cdpproxy.Ledger, dumps string, record func(checkpoint.Entry)) (*live, error) {
	b := &live{browser: browser, ledger: ledger, dumps: dumps, stop: func() {}, recorded: make(chan struct{})}
	sent := make(chan cdpproxy.Traffic, 1024)
	var lost time.Time
	var err error
	e := newEyes(record)
	b.mux, err = openMux(browser, ledger, func(t cdpproxy.Traffic) {
		if slices.Contains(recorder.ConsoleEvents, t.Method) {
			e.printed(t)
			return
		}
		e.told.Add(1)
		select {
		case sent <- t:
		default:
			e.told.Add(-1)
			if time.Since(lost) > time.Second { // one unsafe request is as good as many
				lost = time.Now()
				record(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests at once than could be recorded"})
			}
		}
	})
	if err != nil {
		close(b.recorded)
		return b, err
	}
	// What the clients of a launcher before had paused is not to be sent.
	for _, peers := range b.mux.Left() {
		for _, p := range peers {
			p.Fence()
		}
	}
	if err = e.attach(ctx, b.mux); err != nil {
		close(b.recorded)
		return b, browser.StartFailure(err)
	}
	b.eyes = e
	watching, cancel := context.WithCancel(l.ctx)
	b.vitals = newVitals(watching, browser, b.mux, dumps)
	forget := l.drivenBy(b.vitals)
	b.stop = func() { forget(); cancel() }
	l.work.Go(func() {
		defer close(b.recorded)
		b.eyes.watch(watching, sent)
	})
	return b, b.eyes.settle(ctx)
}

// openMux takes over a browser's pipe.
func openMux(browser *chrome.Browser, ledger *cdpproxy.Ledger, traffic func(cdpproxy.Traffic)) (*cdpproxy.Mux, error) {
	events, err := browser.TakeEvents()
	if err != nil {
		return nil, err
	}
	m, err := cdpproxy.New(cdpproxy.Pipe{Events: events, Commands: browser.Commands(), Ledger: ledger}, traffic)
	if err != nil {
		return nil, errors.Join(err, unix.Close(events))
	}
	return m, nil
}

// record puts an entry into the journal, and what the lease record shows of it
// into the next renewal.
//
// An entry that could not be written counts as something that nobody saw.
func (s *session) record(e checkpoint.Entry) error {
	e.At, e.Token = time.Now().UTC(), uint64(s.token)
	if e.Kind == checkpoint.KindFrame {
		if !recovery.SensitiveFrame(e.URL, e.Text, taskOf(s.manifest, s.granted)) {
			return nil // pages have them by the dozen
		}
		e.Sensitive, e.Text = true, ""
	}
	if e.URL != "" { // what makes it sensitive may not be stored
		e.Sensitive = e.Sensitive || recovery.SensitiveURL(e.URL, taskOf(s.manifest, s.granted))
		e.URL = redact.URL(e.URL)
	}
	e.URL, e.Name, e.Action, e.Text = clip(e.URL), clip(e.Name), clip(e.Action), clip(e.Text)
	if _, err := s.journal.Append(e); err != nil {
		s.mu.Lock()
		over := s.over
		s.mu.Unlock()
		if over {
			return err
		}
		s.log.Error().Err(err).Msg("journal entry lost")
		s.mu.Lock()
		s.file.Unseen = true
		s.mu.Unlock()
		return err
	}
	s.pictureOf(e)
	var p lease.Progress
	switch e.Kind {
	case checkpoint.KindURL:
		p.LastKnownURL = e.URL
	case checkpoint.KindStep:
		p.LastKnownStep = e.Name
	case checkpoint.KindCheckpoint:
		s.open.live.eyes.checkpointed()
		if e.Safe {
			p.LastSafeCheckpoint = e.Name
		}
	default:
		return nil
	}
	s.holding.Note(p)
	return nil
}

// maxText is the longest text, in bytes, that a journal entry or a record keeps
// of what pages and workers say: a record has to fit into one message.
const maxText = 2048

func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// note is record for what the launcher itself saw: the error is logged.
func (s *session) note(e checkpoint.Entry) { _ = s.record(e) }

func (s *session) seenAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy.byHand || s.facts.connections > 0 && s.policy.heartbeat == api.HeartbeatConnection {
		return time.Now()
	}
	return s.facts.seenAt
}

func (s *session) connections() []*cdpproxy.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*cdpproxy.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// update states facts, and lets run look at them.
func (s *session) update(change func(*facts)) {
	s.mu.Lock()
	change(&s.facts)
	s.mu.Unlock()
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// ending tells whether the end has begun.
func (s *session) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusing
}

// run serves until the rules say that the session is over, and ends it.
func (s *session) run() {
	defer close(s.done)
	defer s.l.metrics.sessions.Dec()
	r, bundle := s.serve()
	s.mu.Lock()
	s.refusing = true
	s.mu.Unlock()
	s.endPictures()
	s.open.gate <- struct{}{}
	defer func() { <-s.open.gate }()
	if r.verdict == leave {
		s.leave(bundle)
		return
	}
	s.finish(r, bundle)
}

// serve waits for the end. Where the connection was lost before, it returns the
// bundle that was captured at that moment.
func (s *session) serve() (ruling, *evidence.Bundle) {
	var bundle *evidence.Bundle
	var cookies <-chan time.Time
	if s.policy.byHand {
		s.noteCookies() // the person may close it at any time
		ticker := time.NewTicker(cookiesEvery)
		defer ticker.Stop()
		cookies = ticker.C
	}
	for {
		s.mu.Lock()
		now := time.Now()
		f, ended := s.facts, slices.Clone(s.peers)
		s.mu.Unlock()
		r, next := s.policy.rule(f, now)
		switch r.verdict {
		case endInOrder, lose, leave:
			return r, bundle
		case interrupted:
			if bundle == nil {
				s.log.Warn().Str("worker", s.manifest.WorkerID).Dur("grace", s.policy.grace).Msg("connection lost without a close handshake")
				s.open.live.bound(cutTimeout)
				s.fencePeers()
				bundle = s.capture(r.reason, "")
			}
		case stay:
			switch {
			case bundle != nil || s.left && f.connections > 0:
				s.log.Info().Msg("the worker came back")
				s.left = false
				s.open.live.bound(0)
				s.freePeers()
				if bundle == nil {
					break
				}
				if err := bundle.Discard(); err != nil {
					s.log.Warn().Err(err).Msg("unused evidence not removed")
				}
				bundle = nil
			case !s.left:
				s.closePeers(ended)
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-s.woken:
		case <-timer:
		case <-s.holding.Context().Done():
			cause := context.Cause(s.holding.Context())
			s.update(func(f *facts) { f.leaseLost = cause })
		case <-cookies:
			s.noteCookies()
		case <-s.open.live.browser.Exited():
			s.lostBrowser()
		case <-s.open.live.mux.Done():
			s.lostBrowser()
		case <-s.open.live.vitals.sick:
			s.update(func(f *facts) { f.ill = s.open.live.vitals.ill })
		}
	}
}

func (s *session) lostBrowser() {
	quit := s.quitInOrder()
	s.update(func(f *facts) { f.browserGone, f.browserQuit = true, quit })
}

// fencePeers fails what vanished clients had paused: their peers stay open.
func (s *session) fencePeers() {
	s.mu.Lock()
	peers := slices.Concat(s.peers, s.kept)
	s.mu.Unlock()
	for _, p := range peers {
		p.Fence()
	}
}

// freePeers lets go of what vanished clients stood in the way with. They stay
// open, since their contexts would end with them.
func (s *session) freePeers() {
	s.mu.Lock()
	peers := s.peers
	s.peers, s.kept = nil, append(s.kept, peers...)
	s.mu.Unlock()
	for _, p := range peers {
		p.Free()
	}
}

// closePeers ends what connections left behind that a living session goes on
// without.
func (s *session) closePeers(ended []*cdpproxy.Peer) {
	s.mu.Lock()
	s.peers = slices.DeleteFunc(s.peers, func(p *cdpproxy.Peer) bool { return slices.Contains(ended, p) })
	s.mu.Unlock()
	for _, p := range ended {
		p.Fence()
		s.closePeer(s.l.ctx, p)
	}
}

func (s *session) closePeer(ctx context.Context, p *cdpproxy.Peer) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := p.Close(ctx); err != nil && !errors.Is(err, cdpproxy.ErrBrowserGone) {
		s.log.Warn().Err(err).Msg("an ended connection's browser session stays")
	}
}

// cutOff shuts the fence and ends every connection with the code. When it
// returns, no message of the worker can reach the browser any more.
func (s *session) cutOff(cause error, code int, reason string) {
	s.holding.Fence().Shut(cause)
	s.open.live.bound(cutTimeout)
	for _, c := range s.connections() {
		if code != cdpproxy.CloseNormal {
			c.Notify("Lease.leaseLost", map[string]any{"lease_token": s.token, "reason": reason})
		}
		c.Cut(code, reason)
		c.Peer().Fence()
	}
	s.open.live.mux.Barrier()
	s.fencePeers()
}

// connection carries one websocket for the surfaces.
type connection struct {
	s    *session
	conn *cdpproxy.Conn
}

// Connect opens a connection to a session: to its browser, or to one target.
func (l *Launcher) Connect(ctx context.Context, sessionID, targetID string) (api.Connection, error) {
	s, err := l.lookup(sessionID)
	if err != nil {
		return nil, err
	}
	if s.ending() {
		return nil, api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id).With("session_id", s.id)
	}
	if err := s.holding.Fence().Check(); err != nil {
		return nil, api.Refuse(api.CodeSessionEnded, "session %s is over: %v", s.id, err).With("session_id", s.id)
	}
	conn, err := s.open.live.mux.Connect(ctx, targetID, s.holding.Fence(), s)
	if err != nil {
		var refused *cdpproxy.Error
		if errors.As(err, &refused) && targetID != "" {
			return nil, api.Refuse(api.CodeNotFound, "session %s has no target %s", s.id, targetID)
		}
		return nil, fmt.Errorf("connecting to session %s: %w", s.id, err)
	}
	s.update(func(f *facts) {
		f.connections++
		f.connected, f.left = true, false
		if s.policy.heartbeat == api.HeartbeatConnection {
			f.seenAt = time.Now()
		}
	})
	s.mu.Lock()
	s.conns[conn] = true
	refusing := s.refusing
	s.mu.Unlock()
	if refusing { // the end came in between, and may not have seen this one
		conn.Cut(cdpproxy.CloseNormal, "the session ended")
	}
	return &connection{s, conn}, nil
}

func (c *connection) Session() api.Session { return c.s.show() }

func (c *connection) Serve(nc net.Conn, buffered *bufio.Reader) {
	c.s.l.metrics.connections.Inc()
	defer c.s.l.metrics.connections.Dec()
	c.s.log.Info().Str("worker", c.s.manifest.WorkerID).Stringer("peer", nc.RemoteAddr()).Msg("connected")
	c.s.note(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: "opened"})
	c.over(c.conn.Serve(c.s.l.ctx, nc, buffered))
}

func (c *connection) Cancel() {
	c.over(cdpproxy.End{Err: errors.New("the client left before the upgrade")})
}

func (c *connection) over(end cdpproxy.End) {
	s := c.s
	name := "dropped"
	switch {
	case end.Cut:
		name = "cut"
	case end.Clean:
		name = "closed"
	}
	s.keepCommands(c.conn.Peer())
	s.note(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: name})
	s.log.Info().AnErr("cause", end.Err).Str("how", name).Msg("disconnected")
	// In one step: run closes the peers that a living session goes on without,
	// and must not take this one for such while its end is unknown.
	s.update(func(f *facts) {
		delete(s.conns, c.conn)
		s.peers = append(s.peers, c.conn.Peer())
		f.connections--
		if f.connections == 0 {
			f.endedAt, f.dropped = time.Now(), !end.Clean
		}
		if s.policy.heartbeat == api.HeartbeatConnection {
			f.seenAt = time.Now()
		}
	})
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over { // too late for the session to close it: the browser may have another one
		s.dropPeers()
	}
}

// show is the session as outsiders see it.
func (s *session) show() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := api.SessionServing
	if s.refusing {
		state = api.SessionRecovering
	}
	left := s.holding.Fence().Deadline().Sub(boottime.Now()) + s.l.o.Timing.Margin()
	return api.Session{
		SessionID: s.id, ProfileID: s.profile, Token: s.token, WorkerID: s.manifest.WorkerID, TaskID: s.manifest.TaskID,
		State: state, DedicatedURL: s.dedicated, AcquiredAt: s.facts.startedAt.UTC(), ExpiresAt: time.Now().Add(left).UTC(),
		Connections: s.facts.connections, Resume: s.resume, Capability: s.capability,
	}
}

// Lease answers the Lease domain.
func (s *session) Lease(ctx context.Context, method string, params json.RawMessage) (any, *cdpproxy.Error) {
	return s.domain(ctx, method, params)
}

// keepOpenTimeout bounds how long a closing page waits for the one that is to
// stay.
const keepOpenTimeout = 2 * time.Second

// ClosingPage opens an empty tab where the worker closes the last one: with it
// Chrome would drop the profile's session cookies.
func (s *session) ClosingPage() {
	if s.open.live.eyes.closing() {
		return
	}
	ctx, cancel := context.WithTimeout(s.l.ctx, keepOpenTimeout)
	defer cancel()
	if err := s.open.live.eyes.observer.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank", "background": true}, nil); err != nil {
		s.log.Warn().Err(err).Msg("no tab to keep the profile open: session cookies may be lost")
	}
}

// CloseBrowser is told of a worker's Browser.close: the session ends in order.
func (s *session) CloseBrowser() { s.update(func(f *facts) { f.closing = true }) }

// Refused is told of a command that came too late.
func (s *session) Refused(method string) { s.l.lateWrite(s.l.ctx, s.profile, s.id, s.token, method) }
