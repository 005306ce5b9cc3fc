package session

import (
	"context"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Session is one worker's use of a profile. Only its method run ends it; all other code states
// facts. It implements slots.Run.
//
// It is put together from objects. Each one owns its state and the mutexes that guard it;
// Session itself has none. If two are held, they are taken in this order:
//
//  1. People.handing, or standstill.stopping
//  2. People.mu, Asks.mu, or clients.mu
//  3. kept.saving
//  4. life.mu
//  5. kept.mu
//
// Of one line, only one is held at a time. The mutex of the Registry is taken before all of
// them. Those of acts, denials, pictures and watchers are held for one step only: no other one
// is taken under them.
type Session struct {
	*terms
	h    *Registry
	life *life // the facts, and how far the end has come
	file *kept // the session file

	slot    *slots.Slot      // of the profile, which several runs may share
	browser *browser.Browser // nil before it is started
	holding tenure
	opening *opening
	port    *dedicatedPort
	reader  *Reader // nil: the session has the lease of its profile

	clients   *clients
	still     *standstill
	files     *hostFiles
	limits    *Limits
	people    *People
	asks      *Asks
	reports   *Reports
	recording *recording
	baselines *baselines
	pictures  *pictures
	watchers  watchers

	// inherited says that the client sessions are those of an earlier launcher, whose worker
	// has not come back yet. Once the session serves, only run uses it.
	inherited bool
}

// New makes the session of a lease that is about to be granted. Nothing is on disk yet.
func (h *Registry) New(m api.Manifest, r lease.Record, path string, slot *slots.Slot, capability string) *Session {
	return newSession(h, newTerms(h, m, r, path), slot, capability, h.o.Jar)
}

// newSession makes a session of its objects. The jar has the session cookies of its browser.
func newSession(h *Registry, t *terms, slot *slots.Slot, capability string, jar sessionfile.Jar) *Session {
	s := &Session{terms: t, h: h, life: newLife(t), slot: slot, browser: slot.Browser()}
	s.file = newKept(h, t, s.life, capability, slot.ProxyUse())
	s.asks = newAsks(h, t, s.life, s.Note)
	s.people = newPeople(h, t, s.life, s.file, s.asks, s)
	s.files, s.limits = newHostFiles(h, t), newLimits(h, t, s.file, s.Note)
	s.opening, s.port = newOpening(h, t, slot, s.files, jar), newDedicatedPort(h, t, s.life, s.file)
	s.clients = newClients(s.token, s.Browser, s.log)
	s.still = newStandstill(t, s.life, s.file, s.Browser, func() []slots.Run { return slot.Others(s) })
	s.pictures = newPictures(h, t, s.Browser, func() tenure { return s.holding }, func(e checkpoint.Entry) error { return s.recording.add(e) })
	s.recording = newRecording(h, t, s.life, s.file, s.people, s.Browser, s.pictures.note, func(p lease.Progress) { s.holding.Report(p) })
	s.baselines = newBaselines(h, t, s.Browser, func() bool { return slot.Shared(s) }, s.recording, s.did)
	s.recording.safe = s.baselines.named
	s.reports = newReports(h, t, s.life, s.limits, s.people, s.Browser, s.recording.add)
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

// People is who has the session by hand, and who looks at it.
func (s *Session) People() *People { return s.people }

// Asks is what the session's worker asks of a person.
func (s *Session) Asks() *Asks { return s.asks }

// Limits are what the session's worker may not do.
func (s *Session) Limits() *Limits { return s.limits }

// Reports are what the session's worker reports about itself and its task.
func (s *Session) Reports() *Reports { return s.reports }

// AwaitCheckpoint returns when what sites say at a safe checkpoint is known, in a bounded time: what its
// worker does before that may be in what they say.
func (s *Session) AwaitCheckpoint(ctx context.Context) { s.baselines.await(ctx) }

// Fence guards everything that the session's worker writes.
func (s *Session) Fence() *lease.Fence { return s.holding.Fence() }

// Browser is the session's browser.
func (s *Session) Browser() *browser.Browser { return s.browser }

// Monitor watches the pages of the session's browser. It is refused once the session ends.
func (s *Session) Monitor() (*monitor.Monitor, error) {
	if s.life.isEnding() || s.Fence().Check() != nil {
		return nil, s.life.endingProblem()
	}
	return s.browser.Monitor(), nil
}

// Show is the session as outsiders see it.
func (s *Session) Show() api.Session {
	f, ends := s.life.look()
	state := api.SessionServing
	if ends {
		state = api.SessionRecovering
	}
	shown := api.Session{
		SessionID: s.id, ProfileID: s.profile, Token: s.token, WorkerID: s.manifest.WorkerID, TaskID: s.manifest.TaskID,
		State: state, DedicatedURL: s.port.url, AcquiredAt: f.startedAt.UTC(), Connections: f.connections,
		Capability: s.file.shown(), ExchangeDir: s.files.exchange,
		Principal: s.manifest.Opener.Name, OpenerUID: s.manifest.Opener.UID,
	}
	if s.ephemeral {
		shown.ExpiresAt = s.reader.expires(f).UTC()
		shown.Ephemeral, shown.SnapshotID, shown.ReadOnly = true, s.reader.of.SnapshotID, s.rules().ReadOnly
		return shown
	}
	remaining := s.Fence().Deadline().Sub(s.h.o.Clock()) + s.h.o.Timing.Margin()
	shown.ExpiresAt = time.Now().Add(remaining).UTC()
	shown.Resume, shown.Person, shown.Ask = s.file.get().Resume, s.people.shown(), s.asks.shown()
	return shown
}

// SetResume sets from where the task is told to go on: from a safe checkpoint of an earlier session, and
// the step at which it was named.
func (s *Session) SetResume(from string, safe checkpoint.Entry) {
	s.file.change(func(f *sessionfile.File) { f.Resume = &api.Resume{From: from, Checkpoint: safe.Name, Data: safe.Data} })
	s.recording.resumed = &checkpoint.Entry{
		Kind: checkpoint.KindCheckpoint, Name: safe.Name, Safe: true, Idempotent: safe.Idempotent, IdempotentShapes: safe.IdempotentShapes, Data: safe.Data, ResumeFrom: from,
	}
}

// Hold begins the renewals of the lease, which depends on the keeper's presence.
func (s *Session) Hold(k *lease.Keeper) {
	s.holding = lease.Hold(s.h.ctx, s.granted, s.token, s.h.o.Store, k)
}

// Observe takes in what the store shows of the profile's lease.
func (s *Session) Observe(r lease.Record) { s.holding.Observe(r) }

// Expiring warns the worker that its lease could not be renewed for a while.
func (s *Session) Expiring(left time.Duration) {
	for _, c := range s.clients.connected() {
		c.Notify("Lease.leaseExpiring", map[string]any{"lease_token": s.token, "seconds": left.Seconds()})
	}
}

// Note puts something that the launcher itself saw into the journal. An error is logged.
func (s *Session) Note(e checkpoint.Entry) { _ = s.recording.add(e) }

// task is what the manifest and the profile say of the task.
func (t *terms) task() findings.Task {
	return recovery.TaskOf(t.manifest, t.granted, t.sites.Book())
}

// did is what the session did, and what is known of its task and its profile.
func (s *Session) did() (checkpoint.Summary, findings.Task) {
	t := s.task()
	t.ProfileDomains = s.granted.ExpectedDomains
	return checkpoint.Summarize(s.recording.entries()), t
}

// Latest updates a record of the session with what its journal knows and when its worker was
// last seen.
func (s *Session) Latest(r lease.Record) lease.Record {
	r = s.recording.latest(r)
	r.HeartbeatAt = s.life.lastSeen(time.Now()).UTC()
	return r
}

// Begin starts the clocks of a session that is about to serve: how long its browser took
// to start does not count against the worker. Sites are asked about its account from now on.
func (s *Session) Begin() {
	s.life.begin()
	s.baselines.atGrant()
}

// EndsInOrder tells whether the session is ending in order, or is about to, because its worker
// closed or released it. The profile is free in a moment then, unless the end shows that
// something was touched.
func (s *Session) EndsInOrder() bool {
	var f facts
	s.clients.snapshot(func() { f = s.life.known() })
	closing := s.clients.closing()
	if f.connections > 0 && closing == f.connections { // their end will be stated in a moment
		f.connections, f.dropped = 0, false
	}
	r, _ := s.policy.rule(f, time.Now())
	return r.verdict == endInOrder
}
