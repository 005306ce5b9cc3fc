package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Acquire grants the manifest's profile to its task and starts the browser.
func (l *Launcher) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	if err := m.Check(); err != nil {
		return api.Session{}, err
	}
	if _, _, err := chrome.Arguments(chrome.Options{ProfileDir: l.o.DataDir, ExtraArgs: m.ChromeArgs}, os.Getuid()); err != nil {
		return api.Session{}, api.Invalid("chrome_args", "%v", err)
	}
	if m.TaskID == "" {
		m.TaskID = strings.ToLower(id.New("adhoc")[:len("adhoc")+1]) + strings.ToLower(id.New("x")[14:])
	}
	if m.WorkerID == "" {
		m.WorkerID = "anonymous"
	}
	s, err := l.acquire(ctx, m)
	if err != nil {
		err = l.problem(err)
		var p *api.Problem
		if errors.As(err, &p) {
			l.metrics.refusals.WithLabelValues(p.Code).Inc()
		}
		return api.Session{}, err
	}
	return s.show(), nil
}

// waitable are the refusals that time may mend.
var waitable = []string{
	api.CodeConflict, api.CodeQuarantined, api.CodeCoolingDown, api.CodeHostFull,
}

// pollEvery is how often a waiting request looks at a record that another
// launcher may have changed.
const pollEvery = 500 * time.Millisecond

func (l *Launcher) acquire(ctx context.Context, m api.Manifest) (*session, error) {
	deadline := time.Now().Add(time.Duration(m.Wait))
	announced := false
	var turn slots.Waiter
	defer l.slots.LeaveQueue(&turn)
	for {
		changed := l.slots.Changed()
		if l.slots.Draining() {
			return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
		}
		if m.OneShot {
			l.awaitTask(m.ProfileID, m.WorkerID, m.TaskID)
			if s := l.sessionOf(m.ProfileID, m.WorkerID, m.TaskID); s != nil {
				return s, nil
			}
		}
		s, err := l.try(ctx, m, &turn)
		if err == nil {
			return s, nil
		}
		var p *api.Problem
		if !errors.As(err, &p) {
			return nil, err
		}
		if p.Code == api.CodeConflict && !announced {
			announced = true
			l.announceConflict(ctx, m, p)
		}
		left := time.Until(deadline)
		if m.Wait == 0 || !slices.Contains(waitable, p.Code) {
			return nil, err
		}
		if left <= 0 {
			timeout := api.Refuse(api.CodeWaitTimeout, "waited %v, and still: %s", time.Duration(m.Wait), p.Detail).With("last_code", p.Code)
			for k, v := range p.More {
				timeout = timeout.With(k, v)
			}
			return nil, timeout
		}
		if p := l.slots.QueueUp(&turn, p); p != nil {
			return nil, p
		}
		select {
		case <-changed:
		case <-time.After(min(left, pollEvery)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// sessionOf finds a session that its own task may join.
func (l *Launcher) sessionOf(profile, worker, task string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if s.profile == profile && s.manifest.WorkerID == worker && s.manifest.TaskID == task && !s.ending() {
			return s
		}
	}
	return nil
}

// try makes one attempt: it either returns a session that serves, or leaves
// everything as it was.
func (l *Launcher) try(ctx context.Context, m api.Manifest, turn *slots.Waiter) (*session, error) {
	entry, err := l.o.Store.Get(ctx, m.ProfileID)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		entry = lease.Entry{Record: lease.Record{ProfileID: m.ProfileID}}
	case err != nil:
		return nil, err
	}
	if entry, err = l.healed(ctx, entry); err != nil {
		return nil, err
	}
	if err := l.outdated(ctx, entry.Record, m); err != nil {
		return nil, err
	}
	if p := l.refusal(entry.Record, m, time.Now()); p != nil {
		return nil, p
	}
	path, err := l.o.Root.Path(m.ProfileID)
	switch {
	case errors.Is(err, profiledir.ErrNoProfile) && m.Create:
		path, err = l.o.Root.Create(m.ProfileID)
	case errors.Is(err, profiledir.ErrNoProfile):
		return nil, api.Refuse(api.CodeUnknownProfile, "there is no profile %s: ask with create=true, or PUT /v1/profiles/%s, to make it", m.ProfileID, m.ProfileID)
	}
	if errors.Is(err, profiledir.ErrArchived) {
		return nil, api.Refuse(api.CodeUnknownProfile, "profile %s: %v", m.ProfileID, err)
	}
	if err != nil {
		return nil, api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", m.ProfileID, err)
	}
	if err := checkDir(m.ProfileID, path); err != nil {
		return nil, err
	}
	if l.joinable(entry.Record, m) {
		return l.join(ctx, m, entry, path)
	}
	o := l.slots.OccupyNext(ctx, m.ProfileID)
	if o == nil {
		return nil, l.busyHere(entry.Record, m)
	}
	s, err := l.grant(ctx, m, entry, path, o, turn)
	if err != nil {
		o.Vacate()
		return nil, err
	}
	return s, nil
}

// healed is the entry, or what it is after the floor healed it: the store must
// not offer a token that was used before.
func (l *Launcher) healed(ctx context.Context, e lease.Entry) (lease.Entry, error) {
	r := e.Record
	if r.Home != "" && r.Home != l.o.ID {
		return e, nil
	}
	floor, own, err := l.o.Root.Kept(r.ProfileID)
	switch {
	case err != nil || r.Token >= floor:
		return e, err
	case own.Home != "" && own.Home != l.o.ID:
		return e, l.elsewhere(own) // which shares this folder, and heals its own
	}
	if path, err := l.o.Root.Path(r.ProfileID); err == nil {
		if p := l.presence.sharedReady(path); p != nil {
			return e, p
		}
	}
	// A session may have come and gone since the record was read.
	if again, err := l.o.Store.Get(ctx, r.ProfileID); err == nil && again.Record.Token >= floor {
		return again, nil
	}
	slot := l.slots.OccupyCold(r.ProfileID)
	if slot == nil {
		return e, nil // it is refused as busy
	}
	defer slot.Vacate()
	if _, err := l.recoverer.Heal(ctx, r.ProfileID); err != nil {
		return e, err
	}
	return l.o.Store.Get(ctx, r.ProfileID)
}

// refusal says why a profile in this state is not for this task, or nil.
func (l *Launcher) refusal(r lease.Record, m api.Manifest, now time.Time) *api.Problem {
	state := func(code, format string, args ...any) *api.Problem {
		p := api.Refuse(code, format, args...).With("state", r.State).With("reason", r.Reason).With("lease_token", r.Token)
		if !r.AvailableAfter.IsZero() {
			p = p.With("available_after", r.AvailableAfter)
		}
		return p
	}
	if r.Home != "" && r.Home != l.o.ID {
		return l.elsewhere(r)
	}
	switch r.State {
	case lease.Held, lease.SuspectedStale:
		if !l.joinable(r, m) {
			return l.conflict(r, m)
		}
	case lease.Quarantined, lease.Inspected:
		return state(api.CodeQuarantined, "profile %s is in recovery (%s)", r.ProfileID, r.Reason)
	case lease.ManualReview:
		if m.ByHand != nil {
			break
		}
		return state(api.CodeInReview, "profile %s waits for a person: leasehold review %s", r.ProfileID, r.ProfileID)
	case lease.ResumePending:
		if r.TaskID != m.TaskID {
			return state(api.CodeResumePending, "profile %s is kept for task %s to resume", r.ProfileID, r.TaskID).With("current_task_id", r.TaskID)
		}
	}
	if m.AccountID != "" && r.AccountID != "" && m.AccountID != r.AccountID {
		return api.Refuse(api.CodeAccountMismatch, "profile %s belongs to account %s, not %s", r.ProfileID, r.AccountID, m.AccountID).With("account_id", r.AccountID)
	}
	if p := proxyRefusal(r, m, l.labels()); p != nil {
		return p
	}
	if now.Before(r.AvailableAfter) {
		p := state(api.CodeCoolingDown, "profile %s cools down after its recovery until %s", r.ProfileID, r.AvailableAfter.Format(time.RFC3339))
		p.RetryAfter = int(r.AvailableAfter.Sub(now).Seconds()) + 1
		return p
	}
	return nil
}

// conflict refuses a profile that somebody has.
func (l *Launcher) conflict(r lease.Record, m api.Manifest) *api.Problem {
	decision := "rescheduled"
	switch {
	case m.HumanReviewOnLockConflict:
		decision = "human_review"
	case m.Wait > 0:
		decision = "waiting"
	}
	r = l.shown(r)
	next := max(1, int(time.Until(r.ExpiresAt).Seconds())+1)
	p := api.Refuse(api.CodeConflict, "profile %s is held by worker %s for task %s", r.ProfileID, r.OwnerWorkerID, r.TaskID).
		With("profile_id", r.ProfileID).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).
		With("current_token", r.Token).With("lease_expires_at", r.ExpiresAt).With("decision", decision).With("next_check_seconds", next)
	p.RetryAfter = next
	return p
}

// busyHere refuses a profile whose record is free but which this launcher is
// still, or already, at work on.
func (l *Launcher) busyHere(r lease.Record, m api.Manifest) *api.Problem {
	if l.slots.Draining() {
		return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
	}
	var s *session
	for _, living := range l.living() {
		if living.profile == r.ProfileID && (s == nil || living.token < s.token) {
			s = living
		}
	}
	if s != nil {
		r.OwnerWorkerID, r.TaskID, r.Token = s.manifest.WorkerID, s.manifest.TaskID, s.token
		r.ExpiresAt = s.show().ExpiresAt
		return l.conflict(r, m)
	}
	p := l.conflict(r, m)
	p.Detail = fmt.Sprintf("profile %s is being opened or recovered here: ask again in a moment", r.ProfileID)
	p = p.With("next_check_seconds", 1)
	p.RetryAfter = 1
	return p
}

func (l *Launcher) announceConflict(ctx context.Context, m api.Manifest, p *api.Problem) {
	text := func(name string) string { s, _ := p.More[name].(string); return s }
	seconds, _ := p.More["next_check_seconds"].(int)
	token, _ := p.More["current_token"].(lease.Token)
	e := lease.Event{
		Event: lease.EventConflict, ProfileID: m.ProfileID, Token: token, At: time.Now().UTC(), LauncherID: l.o.ID,
		BlockedTaskID: m.TaskID, BlockedWorkerID: m.WorkerID,
		CurrentTaskID: text("current_task_id"), CurrentWorkerID: text("current_worker_id"),
		Decision: text("decision"), NextCheckSeconds: seconds,
	}
	l.announce(ctx, e)
	l.o.Log.Info().Str("profile", m.ProfileID).Str("worker", m.WorkerID).Str("task", m.TaskID).
		Str("current_worker", e.CurrentWorkerID).Str("current_task", e.CurrentTaskID).Str("decision", e.Decision).Msg("lease refused: the profile is held")
}

// announceTimeout bounds how long a refusal waits for its event.
const announceTimeout = 2 * time.Second

func (l *Launcher) announce(ctx context.Context, e lease.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	if err := l.o.Store.Announce(ctx, e); err != nil {
		l.o.Log.Warn().Err(err).Str("profile", e.ProfileID).Str("event", e.Event).Msg("event not published")
	}
}

// startTimeout bounds everything between the grant and the browser's first
// answer.
const startTimeout = 60 * time.Second

// request is what a grant to the manifest's task is made from.
func (l *Launcher) request(m api.Manifest, sessionID string, k *lease.Keeper, floor lease.Token) lease.Request {
	var byHand *lease.ByHand
	if m.ByHand != nil {
		byHand = &lease.ByHand{Holder: m.ByHand.Holder, Note: m.ByHand.Note}
	}
	return lease.Request{
		ByHand:    byHand,
		SessionID: sessionID, WorkerID: m.WorkerID, TaskID: m.TaskID, AccountID: m.AccountID, ProxyID: m.ProxyID,
		LauncherID: l.o.ID, BootID: l.bootID, PresenceEpoch: k.Epoch(), TTL: l.o.Timing.TTL, Floor: floor, Exclusive: m.Exclusive(),
	}
}

// grant takes the kernel's lock, then the lease, then starts the browser. The
// profile is occupied already.
func (l *Launcher) grant(ctx context.Context, m api.Manifest, entry lease.Entry, path string, o *slots.Slot, turn *slots.Waiter) (*session, error) {
	if p := o.TakePlace(turn); p != nil {
		return nil, p
	}
	k, err := l.presence.current()
	if err != nil {
		return nil, err
	}
	if p := l.presence.sharedReady(path); p != nil {
		return nil, p
	}
	server, err := l.chooseProxy(ctx, entry.Record, m, path)
	if err != nil {
		return nil, err
	}
	switch {
	case m.ByHand != nil:
		o.Cool(slots.WarmWanted, "")
	case o.IsWarm():
		if s, err := l.handOver(ctx, m, entry, path, o, k, server); s != nil || err != nil {
			return s, err
		}
	}
	o.UseProxy(server)
	lock, err := l.o.Root.Lock(m.ProfileID)
	if err != nil {
		return nil, l.lockProblem(err, entry.Record, m, path)
	}
	unlock := func(err error) error { return errors.Join(err, lock.Unlock()) }
	if users, err := profiledir.Processes(path); err != nil || len(users) > 0 {
		if err == nil {
			err = l.lockProblem(profiledir.ErrLocked, entry.Record, m, path)
		}
		return nil, unlock(err)
	}
	// One that was started on the directory by another name. What cannot be seen
	// of it, Chrome itself refuses.
	if u, err := profiledir.FindUser(path); err == nil && u != nil {
		return nil, unlock(l.lockProblem(profiledir.ErrLocked, entry.Record, m, path))
	}
	floor, err := l.o.Root.Floor(m.ProfileID)
	if err != nil {
		return nil, unlock(err)
	}
	next, err := entry.Record.Grant(l.request(m, id.New("ses"), k, floor), time.Now())
	if err != nil {
		return nil, unlock(l.notGranted(err, entry.Record, m))
	}
	o.Locked(lock)
	s := newSession(l, m, next, path, o, id.Secret())
	if entry.Record.State == lease.ResumePending {
		s.file.Resume = &api.Resume{From: entry.Record.ResumeFrom, Checkpoint: entry.Record.LastSafeCheckpoint}
		s.resume = s.file.Resume
	}
	if err := l.swapGrant(ctx, s, entry, next); err != nil {
		return nil, unlock(err)
	}
	// From here on a caller who goes away does not stop the start: the session
	// ends by its own rules.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	s.hold(k)
	// The store may have been lost while the grant was under way.
	if p := l.presence.sharedReady(path); p != nil {
		return nil, s.startFailed(ctx, p)
	}
	if err := s.start(ctx); err != nil {
		return nil, s.startFailed(ctx, err)
	}
	s.begin()
	l.enter(s)
	return s, nil
}

// swapGrant stores a grant. The case file stands before the grant can: whatever
// happens next, the next launcher knows what to recover.
func (l *Launcher) swapGrant(ctx context.Context, s *session, entry lease.Entry, next lease.Record) error {
	if err := s.persist(); err != nil {
		return notRecorded(err)
	}
	return l.storeGrant(ctx, s, entry, next)
}

func notRecorded(err error) *api.Problem {
	return api.Refuse(api.CodeBrowserStartFailed, "the session cannot be recorded, so it is not begun: %v", err)
}

// storeGrant is swapGrant for a session whose file stands.
func (l *Launcher) storeGrant(ctx context.Context, s *session, entry lease.Entry, next lease.Record) error {
	_, err := l.o.Store.Swap(ctx, entry, next)
	var moved *lease.MovedError
	switch {
	case errors.As(err, &moved):
		current := entry.Record
		if moved.Current != nil {
			current = moved.Current.Record
		}
		s.forget()
		if p := l.refusal(current, s.manifest, time.Now()); p != nil {
			return p
		}
		return l.conflict(current, s.manifest)
	case err != nil:
		// It may have been granted: whoever sees the record later recovers a
		// session that touched nothing.
		s.file.Reason = api.ReasonUnanswered
		return errors.Join(err, l.remember(s.file))
	}
	l.metrics.grants.Inc()
	s.log.Info().Str("worker", s.manifest.WorkerID).Str("task", s.manifest.TaskID).Msg("lease granted")
	return nil
}

// notGranted turns a refusal of the lease's own rules into one for the caller.
func (l *Launcher) notGranted(err error, r lease.Record, m api.Manifest) error {
	var runs *lease.RunsError
	var table *lease.TransitionError
	var floor *lease.FloorError // another session came and went since the record was read
	if errors.As(err, &runs) || errors.As(err, &table) || errors.As(err, &floor) {
		p := l.conflict(r, m)
		p.Detail = err.Error()
		return p
	}
	return err
}

// lockProblem names who is on the directory although the lease is free.
func (l *Launcher) lockProblem(err error, r lease.Record, m api.Manifest, path string) error {
	if !errors.Is(err, profiledir.ErrLocked) {
		return err
	}
	p := l.conflict(r, m)
	p.Detail = fmt.Sprintf("profile %s is locked by a process that holds no lease", r.ProfileID)
	if u, err := profiledir.FindUser(path); err == nil && u != nil {
		p.Detail = fmt.Sprintf("profile %s is in use by %s, without a lease: close it", r.ProfileID, u)
		return p.With("pid", u.PID).With("since", u.Since)
	}
	return p
}
