package launcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// A session of a launcher that was killed, or that left its browsers, goes on in
// the next one: same id, same token, same capability. What is left of its clients
// in the browser is fenced, and stays as it was until the worker is back.

// errNotYet says that it cannot be known yet whether a session may go on.
var errNotYet = errors.New("the launcher has no presence yet")

// nameOver is the journal's entry for the end of all connections with a launcher.
const nameOver = "launcher_restarted"

// resumable says why the session of the record cannot go on here, or is nil. It
// has no effects.
func (l *Launcher) resumable(r lease.Record) error {
	l.mu.Lock()
	f, known := l.ended[r.SessionID]
	draining := l.draining
	l.mu.Unlock()
	switch {
	case draining:
		return errors.New("the launcher is draining")
	case !known:
		return errors.New("there is no session file")
	case f.Reason != "" || f.Ended != "" || f.Evidence.EvidenceID != "":
		return errors.New("its end had begun")
	case f.Token != r.Token:
		return fmt.Errorf("it had token %d, the profile has %d", f.Token, r.Token)
	case !l.presence.continues(r.PresenceEpoch):
		return errors.New("its lease expired while no launcher was there")
	}
	k, err := l.presence.current()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if _, err := r.Continue(f.Token, l.request(f.Manifest, r.SessionID, k, 0), time.Now()); err != nil {
		return fmt.Errorf("the lease is %s, with %d runs: %w", r.State, len(r.Runs), err)
	}
	return nil
}

// resume goes on with the session of the record, if it may and its browser can be
// driven. Otherwise nothing was changed but the lease's presence, and the session
// has to be recovered.
func (l *Launcher) resume(o *slots.Slot, r lease.Record, path string, lock *profiledir.Lock, b *browser.Browser, seen *sightings, log zerolog.Logger) bool {
	err := l.resumable(r)
	switch {
	case err != nil:
	case b == nil:
		err = errors.New("its browser is gone")
	case !b.Driven():
		err = errors.New("its browser cannot be driven")
	case !b.HasLedger():
		err = errors.New("it is not known what its clients left open")
	default:
		err = l.sameProxy(o, r)
	}
	var s *session
	if err == nil {
		s, err = l.goOn(o, r, path, lock, b)
	}
	if err != nil {
		log.Info().AnErr("why", err).Msg("the session does not go on: it is recovered")
		return false
	}
	o.Starting(s)
	seen.pass(o.Note)
	// The launcher before held new pages until it saw them; this one does.
	for token, peers := range b.Mux().Left() {
		for _, p := range peers {
			if token != s.token {
				s.closePeer(l.ctx, p)
			}
		}
	}
	asking, cancel := context.WithTimeout(l.ctx, askTimeout)
	defer cancel()
	if err := b.Monitor().LearnContext(asking); err != nil {
		s.log.Warn().Err(err).Msg("it is not known which pages are the profile's own")
	}
	b.LimitWrites(0)
	l.metrics.adoptions.Inc()
	s.log.Info().Int("pid", b.PID()).Str("worker", s.manifest.WorkerID).Str("task", s.manifest.TaskID).Dur("grace", s.policy.grace).
		Msg("session taken over: its worker may reconnect")
	l.enter(s)
	l.settle(s.id)
	return true
}

// goOn takes the lease over and makes a session of what is on disk.
func (l *Launcher) goOn(o *slots.Slot, r lease.Record, path string, lock *profiledir.Lock, b *browser.Browser) (*session, error) {
	l.mu.Lock()
	f := l.ended[r.SessionID]
	l.mu.Unlock()
	f.Manifest.OneShot, f.Manifest.ByHand = f.OneShot, f.ByHand
	entries, err := checkpoint.Read(l.cases.Journal(f.SessionID))
	if err != nil {
		return nil, err
	}
	s := newSession(l, f.Manifest, r, path, o, "")
	s.file, s.facts, s.resume = f, factsLeft(f, entries, time.Now()), f.Resume
	s.file.Unseen = true // while there was no launcher
	if v, _ := s.policy.rule(s.facts, time.Now()); v.verdict != stay && v.verdict != interrupted {
		return nil, fmt.Errorf("it would end at once: %s", v.reason)
	}
	k, err := l.presence.current()
	if err != nil {
		return nil, err
	}
	// What nobody saw has to be known before anything else can happen.
	if err := s.persist(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	held, err := lease.Change(ctx, l.o.Store, r.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if !l.presence.continues(r.PresenceEpoch) {
			return e.Record, lease.ErrExpired
		}
		return e.Record.Continue(s.token, l.request(f.Manifest, s.id, k, 0), time.Now())
	})
	if err != nil {
		return nil, err
	}
	if s.granted = held.Record; s.granted.SessionID != s.id {
		return nil, fmt.Errorf("the lease is that of session %s", s.granted.SessionID)
	}
	if _, kept, err := l.o.Root.Kept(r.ProfileID); err == nil && leftWarm(kept) {
		// It was killed over a handover: what the browser has is not to be set again.
		if err := l.jar.Drop(r.ProfileID); err != nil {
			return nil, err
		}
	}
	s.hold(k)
	if s.journal, err = checkpoint.Open(l.cases.Journal(s.id)); err == nil {
		if err = s.record(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: nameOver}); err == nil {
			err = errors.Join(lock.Keep(s.granted), s.holding.Fence().Check())
		}
		if err != nil {
			err = errors.Join(err, s.journal.Close())
		}
	}
	if err != nil {
		s.holding.Fence().Shut(err)
		s.holding.Stop()
		return nil, err
	}
	s.browser = b
	b.LimitMemory(s.granted.BrowserMemory)
	o.Locked(lock)
	o.UseProxy(l.o.Proxies.Find(r.ProxyID)) // it is the same, see sameProxy
	startedFor := ""
	if running, ok, err := l.o.Root.Running(r.ProfileID); err == nil && ok {
		startedFor = running.SessionID
	}
	o.Opened(b, startedFor, nil)
	b.Monitor().Attribute(s.token, s.granted.HarmlessRequests)
	for token, peers := range b.Mux().Left() {
		if token == s.token {
			// A person's DevTools may not come back: nothing waits for them.
			s.peers, s.left = peers, !s.policy.byHand
		}
	}
	if err := s.openDedicated(); err != nil {
		s.log.Warn().Err(err).Msg("the session's own port is gone")
	}
	return s, nil
}

// factsLeft is what is known of a session's worker when its launcher has ended:
// the launcher ended the connections that were open, not the worker.
func factsLeft(f sessionfile.File, entries []checkpoint.Entry, now time.Time) facts {
	left := facts{startedAt: f.AcquiredAt, seenAt: now}
	open, last := 0, ""
	for _, e := range entries {
		if e.Kind != checkpoint.KindConnection {
			continue
		}
		last = e.Name
		switch e.Name {
		case "opened":
			open++
		case nameOver:
			open = 0
		default:
			open--
		}
	}
	if left.connected = last != ""; !left.connected {
		return left
	}
	left.endedAt, left.dropped = now, open > 0 || last != "closed"
	left.left = left.dropped
	return left
}

// learn keeps the secret that a worker showed, for a session of a launcher before:
// on disk there is only its hash.
func (s *session) learn(capability string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capability == "" && sessionfile.HashCapability(capability) == s.file.CapabilityHash {
		s.capability = capability
	}
}

// sightings passes on what is seen in a browser, as soon as it is known to whom.
type sightings struct {
	mu   sync.Mutex
	kept []checkpoint.Entry
	to   func(checkpoint.Entry)
}

func (s *sightings) record(e checkpoint.Entry) {
	s.mu.Lock()
	to := s.to
	if to == nil {
		s.kept = append(s.kept, e)
	}
	s.mu.Unlock()
	if to != nil {
		to(e)
	}
}

func (s *sightings) pass(to func(checkpoint.Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.kept {
		to(e)
	}
	s.kept, s.to = nil, to
}

// takeoverWait bounds how long a worker waits until it is known what becomes of
// its session.
const takeoverWait = 20 * time.Second

// await returns when it is known what becomes of a session of the launcher before.
func (l *Launcher) await(sessionID string) error {
	l.mu.Lock()
	known := l.pending[sessionID]
	l.mu.Unlock()
	if known == nil {
		return nil
	}
	late := time.NewTimer(takeoverWait)
	defer late.Stop()
	select {
	case <-known:
		return nil
	case <-late.C:
	case <-l.ctx.Done():
	}
	p := api.Refuse(api.CodeStoreUnavailable, "session %s of the launcher before is not taken over yet: ask again", sessionID).With("session_id", sessionID)
	p.RetryAfter = 1
	return p
}

// awaitTask is await for the sessions of a worker's task on a profile.
func (l *Launcher) awaitTask(profile, worker, task string) {
	l.mu.Lock()
	var sessions []string
	for id := range l.pending {
		if m := l.ended[id].Manifest; m.ProfileID == profile && m.WorkerID == worker && m.TaskID == task {
			sessions = append(sessions, id)
		}
	}
	l.mu.Unlock()
	for _, id := range sessions {
		_ = l.await(id) // what comes next finds out
	}
}

// settle says that it is known what becomes of a session.
func (l *Launcher) settle(sessionID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.pending[sessionID]; known != nil {
		delete(l.pending, sessionID)
		close(known)
	}
}

// settleProfile settles every session of a profile.
func (l *Launcher) settleProfile(profile string) {
	l.mu.Lock()
	var over []string
	for id := range l.pending {
		if l.ended[id].Manifest.ProfileID == profile {
			over = append(over, id)
		}
	}
	l.mu.Unlock()
	for _, id := range over {
		l.settle(id)
	}
}

// settlePending settles the sessions that nobody has to take over: the store's
// view is complete, and has them no more.
func (l *Launcher) settlePending(v *view) {
	l.mu.Lock()
	var over []string
	for id := range l.pending {
		profile := l.ended[id].Manifest.ProfileID
		if e, ok := v.records[profile]; l.slots.Find(profile) == nil && (!ok || e.Record.SessionID != id || !e.Record.Unfinished()) {
			over = append(over, id)
		}
	}
	l.mu.Unlock()
	for _, id := range over {
		l.settle(id)
	}
}
