package grant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/id"
	"leasehold/internal/tracing"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/queue"
	"leasehold/launcher/session"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// startTimeout bounds everything between the grant and the browser's first answer.
const startTimeout = 60 * time.Second

// grant grants the entry's profile to the manifest's task. A cold, a warm and a joined grant
// differ only in how they get the browser, which is what start does.
func (g *Service) grant(ctx context.Context, m api.Manifest, entry lease.Entry, path string, slot *slots.Slot, start session.Start, a *asking) (_ *session.Session, err error) {
	span := g.o.Tracer.Start(ctx, "grant", tracing.About{Profile: m.ProfileID, Worker: m.WorkerID, Task: m.TaskID})
	defer func() { span.End(err) }()
	span.Set("start", nameOf(start))
	// 1. The presence that the lease hangs on.
	k, err := g.host.Granting()
	if err != nil {
		return nil, err
	}
	// 2. The floor: the highest token ever used on the directory. If it did not follow the
	// record's token before, it does now: see lease.Record.ExplainsFloor.
	span.Step("floor")
	floor, err := g.host.Root.Floor(m.ProfileID)
	if err == nil && floor < entry.Record.Token {
		err = slot.Lock().RaiseFloor(entry.Record)
	}
	if err != nil {
		return nil, err
	}
	// 3. The rule: may the record be granted, and with which token.
	sessionID := id.New("ses")
	next, err := entry.Record.Grant(g.host.Sessions.Request(m, sessionID, k, floor), time.Now())
	if err != nil {
		return nil, g.notGranted(err, entry.Record, m)
	}
	span.About(tracing.About{Session: sessionID, Token: uint64(next.Token)})
	var resumed checkpoint.Entry
	if entry.Record.State == lease.ResumePending {
		if resumed, err = g.resumed(ctx, entry.Record); err != nil {
			return nil, err
		}
	}
	// 4. The session file: from it the next launcher knows what to recover.
	span.Step("session file")
	s := g.host.Sessions.New(m, next, path, slot, id.Secret())
	if entry.Record.State == lease.ResumePending {
		s.SetResume(entry.Record.ResumeFrom, resumed)
	}
	if err := start.Prepare(ctx, s); err != nil {
		s.Unmade()
		return nil, err
	}
	// 5. The swap: one compare-and-swap on the revision that was read.
	span.Step("lease store")
	// From here on a caller who goes away does not stop the start: the session ends by
	// its own rules. A swap that was broken off might be stored, and nobody would serve what it granted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := g.swap(ctx, s, entry, next); err != nil {
		return nil, err
	}
	a.ticket.Leave(queue.Granted)
	// 6. The renewals.
	s.Hold(k)
	// 7. The browser, and the floor raised to the token.
	span.Step("browser")
	err = g.host.SharedReady(path)
	if err == nil {
		err = start.Open(ctx, s)
	}
	// 8. The fence: the deadline has not passed, and the store was not lost meanwhile.
	if err = errors.Join(err, g.host.SharedReady(path), s.Fence().Check()); err != nil {
		return nil, &startError{s, err}
	}
	// 9. Serve.
	s.Begin()
	g.host.Sessions.Enter(s)
	return s, nil
}

func nameOf(s session.Start) string {
	switch s.(type) {
	case *session.Warm:
		return "warm"
	case session.Join:
		return "join"
	}
	return "cold"
}

// startError says that a lease was granted, but its session could not begin.
type startError struct {
	session *session.Session
	cause   error
}

func (e *startError) Error() string { return e.cause.Error() }

func (e *startError) Unwrap() error { return e.cause }

func (g *Service) swap(ctx context.Context, s *session.Session, entry lease.Entry, next lease.Record) error {
	kept := make(chan struct{})
	defer close(kept)
	entry.Dropped = func() {
		<-kept
		s.NeverGranted()
	}
	_, err := g.host.Store.Swap(ctx, entry, next)
	var moved *lease.MovedError
	switch {
	case errors.As(err, &moved):
		current := entry
		if moved.Current != nil {
			current = *moved.Current
		}
		s.Unmade()
		return cmp.Or(g.refusal(current, s.Manifest(), time.Now()), errRecordMoved)
	case err != nil: // it may have been granted
		return errors.Join(err, s.Unanswered())
	}
	g.metrics.grants.Inc()
	s.Granted()
	return nil
}

// open grants an occupied profile, with the slot's warm browser or with a new one.
func (g *Service) open(ctx context.Context, m api.Manifest, entry lease.Entry, path string, slot *slots.Slot, a *asking) (*session.Session, error) {
	if p := slot.TakePlace(&a.place); p != nil {
		return nil, p
	}
	if _, err := g.host.Granting(); err != nil {
		return nil, err
	}
	where := path
	if _, err := os.Lstat(path); err != nil { // it is made later
		where = g.host.Root.Dir()
	}
	if err := g.host.SharedReady(where); err != nil {
		return nil, err
	}
	proxy, err := g.chooseProxy(ctx, entry.Record, m, path)
	if err != nil {
		return nil, err
	}
	if m.ByHand != nil {
		slot.CloseWarm(slots.WarmWanted, "")
	}
	if slot.IsWarm() {
		// The previous session may not have left the browser yet, and nobody may join
		// meanwhile.
		slot.LockRuns()
		s, err := g.grant(ctx, m, entry, path, slot, session.NewWarm(entry.Record, proxy), a)
		slot.UnlockRuns()
		var unfit *session.UnfitError
		if !errors.As(err, &unfit) {
			return s, undo(err)
		}
		slot.CloseWarm(unfit.Why, unfit.Detail)
	}
	slot.UseProxy(proxy)
	lock, err := g.lockFree(ctx, m, entry.Record, path)
	if err != nil {
		return nil, err
	}
	entry, made, err := g.makeProfile(ctx, m, entry)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	var s *session.Session
	if err = lock.Chown(); err != nil {
		err = api.Refuse(api.CodeInvalidRequest, "%v", err)
	} else {
		slot.Locked(lock)
		s, err = g.grant(ctx, m, entry, path, slot, session.Cold{}, a)
	}
	var failed *startError
	if err != nil && !errors.As(err, &failed) {
		if made {
			err = errors.Join(err, g.host.Root.RemoveEmpty(m.ProfileID))
		}
		return nil, errors.Join(err, lock.Unlock())
	}
	return s, undo(err)
}

// makeProfile makes the profile that a manifest with create asks for, if it is missing, and
// returns the record as it is then. The account and the proxy are stored before the directory
// exists: even if this is interrupted, no profile can go out without them. The caller has the
// profile's lock.
func (g *Service) makeProfile(ctx context.Context, m api.Manifest, entry lease.Entry) (_ lease.Entry, made bool, _ error) {
	if _, err := g.host.Root.Path(m.ProfileID); !errors.Is(err, profiledir.ErrNoProfile) {
		return entry, false, err
	}
	if err := host.Resumes(entry.Record); err != nil {
		return entry, false, err
	}
	if entry.Record.AccountID == "" {
		if err := g.profiles.MayGive(ctx, m.ProfileID, cmp.Or(m.AccountID, m.ProfileID)); err != nil {
			return entry, false, err
		}
	}
	if r := entry.Record; r.AccountID == "" && m.AccountID != "" || r.ProxyID == "" && m.ProxyID != "" {
		r = r.Clone()
		if r.State == "" {
			floor, err := g.host.Root.Floor(m.ProfileID)
			if err != nil {
				return entry, false, err
			}
			r.State, r.Home, r.Token, r.MaxActiveRuns = lease.Available, g.host.ID, floor, 1
		}
		r.AccountID, r.ProxyID = cmp.Or(r.AccountID, m.AccountID), cmp.Or(r.ProxyID, m.ProxyID)
		stored, err := g.host.Store.Swap(ctx, entry, r)
		if _, ok := errors.AsType[*lease.MovedError](err); ok {
			return entry, false, errRecordMoved
		}
		if err != nil {
			return entry, false, err
		}
		entry = stored
	}
	err := g.host.Create(m.ProfileID)
	return entry, err == nil, err
}

// undo undoes a grant whose session could not begin.
func undo(err error) error {
	if failed, ok := errors.AsType[*startError](err); ok {
		return failed.session.UndoGrant(failed.cause)
	}
	return err
}

// joinTimeout bounds how long a run that wants to join waits for another run that is ending.
const joinTimeout = time.Second

// joinable tells whether the task may share the profile's browser on this launcher. It may not while somebody has a
// session there by a sign-in link: they see and drive all pages of the browser.
func (g *Service) joinable(r lease.Record, m api.Manifest) bool {
	if r.State != lease.Held || r.LauncherID != g.host.ID || r.MaxActiveRuns <= 1 || r.Shut(m.Exclusive()) != "" {
		return false
	}
	_, byLink := g.host.Sessions.Runs(r.ProfileID)
	return !byLink
}

// join grants one more run on a profile whose browser is open on this launcher.
func (g *Service) join(ctx context.Context, m api.Manifest, entry lease.Entry, path string, a *asking) (*session.Session, error) {
	slot := g.host.Slots.Find(m.ProfileID)
	if slot == nil || !slot.TryLockRuns(joinTimeout) {
		return nil, g.host.Conflict(entry.Record, m)
	}
	defer slot.UnlockRuns()
	if !slot.Joinable() || !g.joinable(entry.Record, m) { // a sign-in link may have been used meanwhile
		return nil, g.host.Conflict(entry.Record, m)
	}
	s, err := g.grant(ctx, m, entry, path, slot, session.Join{Begun: time.Now()}, a)
	if failed, ok := errors.AsType[*startError](err); ok {
		failed.session.UndoRun(failed.cause)
		return nil, fmt.Errorf("joining profile %s: %w", m.ProfileID, failed.cause)
	}
	return s, err
}

// lockFree takes the kernel's lock of a profile on which no browser runs.
func (g *Service) lockFree(ctx context.Context, m api.Manifest, r lease.Record, path string) (*profiledir.Lock, error) {
	lock, err := g.host.Root.Lock(m.ProfileID)
	if err != nil {
		return nil, g.host.LockProblem(err, r, m, path)
	}
	users, err := profiledir.Processes(path)
	if err == nil && len(users) > 0 {
		err = g.host.LockProblem(profiledir.ErrLocked, r, m, path)
	}
	if err == nil {
		err = g.host.SettleLock(lock, r)
	}
	if err == nil {
		// A browser that was started on the directory by another path. If it cannot be seen
		// from here, Chrome itself refuses to start.
		if u, unseen := profiledir.FindOtherUser(path); unseen == nil && u != nil {
			err = g.host.LockProblem(profiledir.ErrLocked, r, m, path)
		}
	}
	if err == nil {
		err = g.host.BrowserFits(ctx, path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// notGranted turns a refusal of the lease package's rules into one for the caller.
func (g *Service) notGranted(err error, r lease.Record, m api.Manifest) error {
	var runs *lease.RunsError
	var table *lease.TransitionError
	var floor *lease.FloorError // another session came and went since the record was read
	var token *lease.TokenError
	if errors.As(err, &runs) || errors.As(err, &table) || errors.As(err, &floor) || errors.As(err, &token) {
		held := g.host.Conflict(r, m)
		held.Detail = err.Error()
		return held
	}
	return err
}
