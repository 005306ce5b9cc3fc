package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// announceTimeout bounds how long a refusal waits for its event, which the store publishes later then.
const announceTimeout = 2 * time.Second

// Announcer publishes the events that are not transitions: a request for a profile that
// somebody has, and a write that came after its session was fenced.
type Announcer struct {
	launcherID string
	store      lease.Store
	log        zerolog.Logger
	lateWrites prometheus.Counter
	gatherer   *gatherer

	mu   sync.Mutex
	late map[string]bool // sessions whose worker wrote after its end
}

// NewAnnouncer returns an announcer.
func NewAnnouncer(launcherID string, store lease.Store, log zerolog.Logger, metrics prometheus.Registerer) *Announcer {
	a := &Announcer{
		launcherID: launcherID, store: store, log: log, late: map[string]bool{},
		lateWrites: prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_late_writes_total", Help: "Writes refused for a stale token."}),
	}
	metrics.MustRegister(a.lateWrites)
	a.gatherer = newGatherer(a.announce)
	return a
}

// Run publishes gathered events until ctx ends. Without it only the first event of each kind is
// published.
func (a *Announcer) Run(ctx context.Context) { a.gatherer.run(ctx) }

func (a *Announcer) announce(ctx context.Context, e lease.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	e.LauncherID, e.At = a.launcherID, time.Now().UTC()
	if err := a.store.Announce(ctx, e); err != nil {
		a.log.Warn().Err(err).Str("profile", e.ProfileID).Str("event", e.Event).Msg("event is not known to be published")
	}
}

// Conflict is a request for a profile that somebody has.
type Conflict struct {
	Holder           lease.Record
	Decision         string
	NextCheckSeconds int
}

// Conflict announces that the manifest's task was refused. It does so at once or, if the worker
// was already refused in the last minute, together with its other refusals.
func (a *Announcer) Conflict(ctx context.Context, m api.Manifest, c Conflict) {
	what := about{lease.EventConflict, m.ProfileID, c.Holder.OwnerWorkerID + "\x00" + c.Holder.TaskID, m.Opener.Name + "\x00" + m.WorkerID}
	told := a.gatherer.add(ctx, what, lease.Event{
		Event: lease.EventConflict, ProfileID: m.ProfileID, Token: c.Holder.Token,
		Principal: m.Opener.Name, BlockedTaskID: m.TaskID, BlockedWorkerID: m.WorkerID,
		CurrentTaskID: c.Holder.TaskID, CurrentWorkerID: c.Holder.OwnerWorkerID,
		Decision: c.Decision, NextCheckSeconds: c.NextCheckSeconds,
	})
	level := zerolog.InfoLevel
	if !told {
		level = zerolog.DebugLevel
	}
	a.log.WithLevel(level).Str("profile", m.ProfileID).Str("worker", m.WorkerID).Str("task", m.TaskID).Str("principal", m.Opener.Name).
		Str("current_worker", c.Holder.OwnerWorkerID).Str("current_task", c.Holder.TaskID).Str("decision", c.Decision).Msg("lease refused: the profile is held")
}

// Stale refuses a write with another token than the current one, and reports it if its token is
// lower.
func (a *Announcer) Stale(ctx context.Context, profile, sessionID string, token, current lease.Token, write string) *api.Problem {
	if token < current {
		a.lateWrite(ctx, profile, sessionID, token, current, write)
	}
	return api.Refuse(api.CodeStaleToken, "%s with token %d: the current token is %d", write, token, current).
		With("lease_token", token).With("current_token", current)
}

// LateCommand reports a CDP command that came after its session was fenced, once for each
// session, since a client may retry a thousand times.
func (a *Announcer) LateCommand(ctx context.Context, profile, sessionID string, token lease.Token, method string) {
	a.mu.Lock()
	again := a.late[sessionID]
	a.late[sessionID] = true
	a.mu.Unlock()
	if again {
		return
	}
	current := token
	if entry, err := a.store.Get(ctx, profile); err == nil {
		current = entry.Record.Token
	}
	a.lateWrite(ctx, profile, sessionID, token, current, method)
}

func (a *Announcer) lateWrite(ctx context.Context, profile, sessionID string, token, current lease.Token, write string) {
	a.mu.Lock()
	a.late[sessionID] = true
	a.mu.Unlock()
	a.lateWrites.Inc()
	by := principal.Of(ctx).Name
	a.log.Warn().Str("principal", by).Str("profile", profile).Str("session", sessionID).Uint64("token", uint64(token)).
		Uint64("current_token", uint64(current)).Str("write", write).Msg("late write refused")
	a.gatherer.add(ctx, about{lease.EventLateWrite, profile, sessionID, fmt.Sprint(token, " ", current, " ", write)}, lease.Event{
		Event: lease.EventLateWrite, ProfileID: profile, Token: token, CurrentToken: current,
		SessionID: sessionID, Write: write, Principal: by, Reason: "stale_lease_token",
	})
}

// Person announces that a worker waits for a person (lease.EventAsked), or that a person took
// a session over or handed it back.
func (a *Announcer) Person(ctx context.Context, e lease.Event) { a.announce(ctx, e) }

// WroteLate tells whether the worker of a session wrote after it was fenced.
func (a *Announcer) WroteLate(sessionID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.late[sessionID]
}

func (a *Announcer) forget(sessionID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.late, sessionID)
}
