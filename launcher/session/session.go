package session

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Session is one worker's stay on a profile. Its run is the only place that ends it;
// everything else states facts. It implements slots.Run.
type Session struct {
	h         *Host
	id        string
	manifest  api.Manifest
	policy    policy
	profile   string
	path      string
	token     lease.Token
	granted   lease.Record
	resume    *api.Resume // what a resumed task is told
	dedicated *string     // the URL of its own port
	log       zerolog.Logger

	slot    *slots.Slot      // of the profile, which several runs may share
	browser *browser.Browser // nil before it is started
	journal *checkpoint.Journal
	holding *lease.Holding

	clients  *clients
	pictures *pictures

	// inherited says that the client sessions are those of an earlier launcher, whose
	// worker has not come back yet. It is run's.
	inherited bool

	mu         sync.Mutex
	capability string
	file       sessionfile.File
	facts      facts
	ending     bool          // the end has begun
	over       bool          // the journal is closed: what connections say now is too late
	woken      chan struct{} // one place: the facts changed
	done       chan struct{} // closed when the session is over
}

// New makes the session of a lease that is about to be granted. Nothing is on disk yet.
func (h *Host) New(m api.Manifest, r lease.Record, path string, slot *slots.Slot, capability string) *Session {
	now := time.Now()
	s := &Session{
		h: h, id: r.SessionID, capability: capability, manifest: m, profile: r.ProfileID, path: path,
		token: r.Token, granted: r, slot: slot, browser: slot.Browser(),
		policy: policyOf(m, h.o.Timing.TTL, h.o.ReconnectGrace),
		facts:  facts{startedAt: now, seenAt: now},
		woken:  make(chan struct{}, 1), done: make(chan struct{}),
		file: sessionfile.File{
			SessionID: r.SessionID, CapabilityHash: sessionfile.HashCapability(capability), Token: r.Token,
			Manifest: m, OneShot: m.OneShot, ByHand: m.ByHand, AcquiredAt: now.UTC(), SeenAt: now.UTC(), Proxy: slot.ProxyUse(),
		},
	}
	s.log = h.o.Log.With().Str("profile", s.profile).Uint64("token", uint64(s.token)).Str("session", s.id).Logger()
	s.clients = newClients(s.token, s.log)
	s.pictures = newPictures(s, h.o.PictureInterval)
	return s
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Profile is the profile that the session is on.
func (s *Session) Profile() string { return s.profile }

// Token is the session's lease token.
func (s *Session) Token() lease.Token { return s.token }

// Manifest is what the session's task asked for.
func (s *Session) Manifest() api.Manifest { return s.manifest }

// Fence guards everything that the session's worker writes.
func (s *Session) Fence() *lease.Fence { return s.holding.Fence() }

// Browser is the session's browser.
func (s *Session) Browser() *browser.Browser { return s.browser }

// Monitor watches the pages of the session's browser. It is refused once the session
// ends.
func (s *Session) Monitor() (*monitor.Monitor, error) {
	if s.Ending() || s.Fence().Check() != nil {
		return nil, api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id)
	}
	return s.browser.Monitor(), nil
}

// Show is the session as outsiders see it.
func (s *Session) Show() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := api.SessionServing
	if s.ending {
		state = api.SessionRecovering
	}
	remaining := s.Fence().Deadline().Sub(boottime.Now()) + s.h.o.Timing.Margin()
	return api.Session{
		SessionID: s.id, ProfileID: s.profile, Token: s.token, WorkerID: s.manifest.WorkerID, TaskID: s.manifest.TaskID,
		State: state, DedicatedURL: s.dedicated, AcquiredAt: s.facts.startedAt.UTC(), ExpiresAt: time.Now().Add(remaining).UTC(),
		Connections: s.facts.connections, Resume: s.resume, Capability: s.capability,
	}
}

// SetResume says what the task is told to go on from.
func (s *Session) SetResume(r *api.Resume) { s.file.Resume, s.resume = r, r }

// learnCapability keeps the secret that a worker showed, for a session of an earlier
// launcher: on disk there is only its hash.
func (s *Session) learnCapability(capability string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capability == "" && sessionfile.HashCapability(capability) == s.file.CapabilityHash {
		s.capability = capability
	}
}

// persist writes the session's file, synced.
func (s *Session) persist() error {
	s.mu.Lock()
	f := s.file
	f.SeenAt = s.facts.seenAt.UTC()
	s.mu.Unlock()
	return s.h.o.Files.Save(f)
}

// Hold begins the renewals of the lease, which hangs on the keeper's presence.
func (s *Session) Hold(k *lease.Keeper) {
	s.holding = lease.Hold(s.h.ctx, s.granted, s.token, s.h.o.Store, k)
}

// See takes in what the store shows of the profile's lease.
func (s *Session) See(r lease.Record) { s.holding.See(r) }

// Expiring warns the worker that its lease could not be renewed for a while.
func (s *Session) Expiring(left time.Duration) {
	for _, c := range s.clients.connected() {
		c.Notify("Lease.leaseExpiring", map[string]any{"lease_token": s.token, "seconds": left.Seconds()})
	}
}

// openJournal opens the journal of a new session.
func (s *Session) openJournal() error {
	var err error
	if s.journal, err = checkpoint.Open(s.h.o.Files.Journal(s.id)); err != nil {
		return err
	}
	s.Note(checkpoint.Entry{Kind: checkpoint.KindStart, Name: s.manifest.TaskID, Text: s.manifest.WorkerID})
	return nil
}

// Note puts what the launcher itself saw into the journal. An error is logged.
func (s *Session) Note(e checkpoint.Entry) { _ = s.record(e) }

// record puts an entry into the journal, and what the lease record shows of it into the
// next renewal. An entry that could not be written counts as something that nobody saw.
func (s *Session) record(e checkpoint.Entry) error {
	e.At, e.Token = time.Now().UTC(), uint64(s.token)
	task := s.task()
	if e.Kind == checkpoint.KindFrame {
		if !decision.SensitiveFrame(e.URL, e.Text, task) {
			return nil // pages have them by the dozen
		}
		e.Sensitive, e.Text = true, ""
	}
	if e.URL != "" { // what makes it sensitive may not be stored
		e.Sensitive = e.Sensitive || decision.SensitiveURL(e.URL, task)
		e.URL = redact.URL(e.URL)
	}
	e.URL, e.Name, e.Action, e.Text = checkpoint.Clip(e.URL), checkpoint.Clip(e.Name), checkpoint.Clip(e.Action), checkpoint.Clip(e.Text)
	if _, err := s.journal.Append(e); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over {
			s.log.Error().Err(err).Msg("journal entry lost")
			s.file.Unseen = true
		}
		return err
	}
	s.pictures.note(e)
	var p lease.Progress
	switch e.Kind {
	case checkpoint.KindURL:
		p.LastKnownURL = e.URL
	case checkpoint.KindStep:
		p.LastKnownStep = e.Name
	case checkpoint.KindCheckpoint:
		s.browser.Monitor().Checkpointed()
		if e.Safe {
			p.LastSafeCheckpoint = e.Name
		}
	default:
		return nil
	}
	s.holding.Note(p)
	return nil
}

// task is what the manifest and the profile say of the task.
func (s *Session) task() decision.Task { return recovery.TaskOf(s.manifest, s.granted) }

// Latest brings a record of the session up to what its journal knows, and shows when
// its worker was last seen.
func (s *Session) Latest(r lease.Record) lease.Record {
	if s.journal != nil { // it began
		r = recovery.Latest(r, s.journal.Entries())
	}
	r.HeartbeatAt = s.seenAt().UTC()
	return r
}

func (s *Session) seenAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy.byHand || s.facts.connections > 0 && s.policy.heartbeat == api.HeartbeatConnection {
		return time.Now()
	}
	return s.facts.seenAt
}

// beat notes a sign of life.
func (s *Session) beat() { s.update(func(f *facts) { f.seenAt = time.Now() }) }

// Begin starts the clocks of a session that is about to serve: how long its browser took
// to start does not count against the worker.
func (s *Session) Begin() {
	s.update(func(f *facts) { f.startedAt, f.seenAt = time.Now(), time.Now() })
}

// update states facts, and lets run look at them.
func (s *Session) update(change func(*facts)) {
	s.mu.Lock()
	change(&s.facts)
	s.mu.Unlock()
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Ending tells whether the end has begun.
func (s *Session) Ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// run serves until the rules say that the session is over, and ends it.
func (s *Session) run() {
	defer close(s.done)
	defer s.h.metrics.sessions.Dec()
	r, bundle := s.serve()
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.pictures.end()
	s.slot.EnterGate()
	defer s.slot.LeaveGate()
	if r.verdict == leave {
		s.leave(bundle)
		return
	}
	s.finish(r, bundle)
}

// serve waits for the end. Where the connection was lost before, it returns the bundle
// that was captured at that moment.
func (s *Session) serve() (ruling, *evidence.Bundle) {
	var bundle *evidence.Bundle
	var cookies <-chan time.Time
	if s.policy.byHand {
		s.noteCookies() // the person may close it at any time
		ticker := time.NewTicker(cookiesEvery)
		defer ticker.Stop()
		cookies = ticker.C
	}
	for {
		var f facts
		now := time.Now()
		ended := s.clients.snapshot(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			f = s.facts
		})
		r, next := s.policy.rule(f, now)
		switch r.verdict {
		case endInOrder, lose, leave:
			return r, bundle
		case interrupted:
			if bundle == nil {
				s.log.Warn().Str("worker", s.manifest.WorkerID).Dur("grace", s.policy.grace).Msg("connection lost without a close handshake")
				s.browser.LimitWrites(cutTimeout)
				s.clients.fence()
				bundle = s.capture(r.reason, "")
			}
		case stay:
			switch {
			case bundle != nil || s.inherited && f.connections > 0:
				s.workerIsBack(bundle)
				bundle = nil
			case !s.inherited:
				s.clients.close(s.h.ctx, ended)
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
		case <-s.browser.Exited():
			s.lostBrowser()
		case <-s.browser.Mux().Done():
			s.lostBrowser()
		case <-s.browser.Failed():
			s.update(func(f *facts) { f.failure = s.browser.Failure() })
		}
	}
}

// workerIsBack goes on with a worker that had been lost. bundle is what was captured
// then; nil: nothing was.
func (s *Session) workerIsBack(bundle *evidence.Bundle) {
	s.log.Info().Msg("the worker came back")
	s.inherited = false
	s.browser.LimitWrites(0)
	s.clients.release()
	if bundle == nil {
		return
	}
	if err := bundle.Discard(); err != nil {
		s.log.Warn().Err(err).Msg("unused evidence not removed")
	}
}

func (s *Session) lostBrowser() {
	quit := s.quitInOrder()
	s.update(func(f *facts) { f.browserGone, f.browserQuit = true, quit })
}
