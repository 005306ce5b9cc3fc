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
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// grants decides who gets a profile, and grants it.
type grants struct {
	*rooms
	metrics metrics
	// roam brings a profile here, if it may move by itself.
	roam func(context.Context, lease.Entry, api.Manifest) (lease.Entry, error)
	// sharedReady refuses a directory that another host could have open.
	sharedReady func(path string) *api.Problem
}

// Acquire grants the manifest's profile to its task and starts the browser.
func (g *grants) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	if err := m.Check(); err != nil {
		return api.Session{}, err
	}
	if _, _, err := chrome.Arguments(chrome.Options{ProfileDir: g.o.DataDir, ExtraArgs: m.ChromeArgs}, os.Getuid()); err != nil {
		return api.Session{}, api.Invalid("chrome_args", "%v", err)
	}
	if err := checkOrigins(m.FenceHeaderOrigins); err != nil {
		return api.Session{}, err
	}
	if m.TaskID == "" {
		m.TaskID = strings.ToLower(id.New("adhoc")[:len("adhoc")+1]) + strings.ToLower(id.New("x")[14:])
	}
	if m.WorkerID == "" {
		m.WorkerID = "anonymous"
	}
	by := principal.Of(ctx)
	m.Opener = api.Opener{Name: by.Name, UID: by.UID, Manages: by.Role.Has(principal.Manage)}
	begin := g.acquire
	if m.Ephemeral {
		begin = g.read
	}
	s, err := begin(ctx, m)
	if err != nil {
		err = problem(err)
		if p, ok := errors.AsType[*api.Problem](err); ok {
			g.metrics.refusals.WithLabelValues(p.Code).Inc()
		}
		return api.Session{}, err
	}
	return s.Show(), nil
}

// waitable are the codes of refusals that may end by themselves. Those that are missing here end
// when the caller asks otherwise, asks elsewhere, or when a person does something: a review, a task
// that resumes, a browser or a proxy that is mended, servers of NATS that are not one store.
var waitable = []string{
	api.CodeConflict, api.CodeQuarantined, api.CodeCoolingDown, api.CodeHostFull, api.CodeStoreUnavailable, api.CodeProfileStore,
}

// pollEvery is how often a waiting request looks at a record that another
// launcher may have changed.
const pollEvery = 500 * time.Millisecond

// anyPause is the least time between two attempts of a waiting request for any profile.
const anyPause = 50 * time.Millisecond

// endingPatience is how long a request waits for a profile whose session is ending in order,
// even if it did not ask to wait: this lets the tasks of one worker follow each other.
const endingPatience = 15 * time.Second

// soon is the number of seconds after which a caller should ask again for a profile that is
// about to be free.
const soon = 1

// acquire grants the manifest's profile, and waits for it as long as the manifest says.
func (g *grants) acquire(ctx context.Context, m api.Manifest) (_ *session.Session, err error) {
	deadline := time.Now().Add(time.Duration(m.Wait))
	patience := time.Now().Add(endingPatience)
	announced := false
	var ending lease.Token // of the session whose end the request waits for
	a := g.asks(ctx, m)
	defer func() { a.leave(ctx, g.slots, err) }()
	for {
		changed := g.slots.Changed()
		version, _ := g.catalog.Version(m.ProfileID)
		if g.slots.Draining() {
			return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
		}
		if m.OneShot {
			if s := g.sessions.Of(principal.Of(ctx), m.ProfileID, m.WorkerID, m.TaskID, false); s != nil && g.isOf(s, m) {
				return s, s.Limits().Narrow(m)
			}
		}
		s, err := g.tryInTurn(ctx, m, a)
		if err == nil {
			return s, nil
		}
		var p *api.Problem
		if !errors.As(err, &p) && !errors.As(problem(err), &p) {
			return nil, err
		}
		var held *heldError
		isHeld := errors.As(err, &held)
		if m.Wait > 0 && canEnd(p) && !a.ticket.Enter() {
			return nil, a.tooMany(p)
		}
		if isHeld && held.ending {
			ending = held.conflict.Holder.Token
		}
		if isHeld && ending != 0 && ending == held.conflict.Holder.Token && time.Now().Before(patience) {
			if err := g.waitFor(ctx, m.ProfileID, version, changed, patience); err != nil {
				return nil, err
			}
			continue
		}
		if isHeld && !announced {
			announced = true
			g.announcer.Conflict(ctx, m, held.conflict)
		}
		left := time.Until(deadline)
		if m.Wait == 0 || !canEnd(p) {
			return nil, err
		}
		if left <= 0 {
			timeout := api.Refuse(api.CodeWaitTimeout, "waited %v, and still: %s", time.Duration(m.Wait), p.Detail).With("last_code", p.Code).With("turn", a.ticket.ID())
			for k, v := range p.More {
				timeout = timeout.With(k, v)
			}
			return nil, timeout
		}
		if p := g.slots.QueueUp(&a.place, p); p != nil {
			return nil, p
		}
		if m.AnyProfile() { // it looks at many records each time
			if err := wait(ctx, nil, time.Now().Add(anyPause)); err != nil {
				return nil, err
			}
		}
		if err := g.waitFor(ctx, m.ProfileID, version, changed, deadline); err != nil {
			return nil, err
		}
	}
}

// canEnd tells whether the cause of a refusal may go away by itself.
func canEnd(p *api.Problem) bool {
	return slices.Contains(waitable, p.Code) && p.More["reason"] != api.ReasonServers
}

// waitFor is wait for a request whose refusal also ends with a change of the profile's record, or
// of any record if the profile is empty. Changes of other records ask the store nothing: there are
// as many as all hosts write. version is that of the record before the request was refused.
func (g *grants) waitFor(ctx context.Context, profile string, version uint64, changed <-chan struct{}, deadline time.Time) error {
	look := time.NewTimer(min(time.Until(deadline), pollEvery))
	defer look.Stop()
	for {
		now, records := g.catalog.Version(profile)
		if now != version {
			return nil
		}
		select {
		case <-records:
		case <-changed:
			return nil
		case <-look.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait returns when something has changed, or when it is time to look again.
func wait(ctx context.Context, changed <-chan struct{}, deadline time.Time) error {
	select {
	case <-changed:
	case <-time.After(min(time.Until(deadline), pollEvery)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// errRecordMoved says that a profile's record was changed by somebody who does not hold the profile,
// between the read and the swap: its settings were put, or its snapshot was written down.
var errRecordMoved = errors.New("the profile's record was changed meanwhile")

// try makes one attempt, with the record as it is at the swap. If it returns no session, everything
// is as it was before.
func (g *grants) try(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	for {
		s, err := g.tryOnce(ctx, m, a)
		if !errors.Is(err, errRecordMoved) || ctx.Err() != nil {
			return s, err
		}
	}
}

// tryOnce is try with the record as it is read first. It returns errRecordMoved if another would be
// granted by now.
func (g *grants) tryOnce(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	entry, err := g.o.Store.Get(ctx, m.ProfileID)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		entry = lease.Entry{Record: lease.Record{ProfileID: m.ProfileID}}
	case err != nil:
		return nil, err
	}
	if entry, err = g.healed(ctx, entry); err != nil {
		return nil, err
	}
	if p := g.elsewhere(entry.Record); p != nil {
		return nil, p
	}
	if err := g.outdated(ctx, entry.Record, m); err != nil {
		return nil, err
	}
	if entry, err = g.roam(ctx, entry, m); err != nil {
		return nil, err
	}
	if err := g.refusal(entry, m, time.Now()); err != nil {
		return nil, err
	}
	if err := g.atHome(entry.Record); err != nil {
		return nil, err
	}
	if p := g.behind(entry.Record, m, a); p != nil {
		return nil, p
	}
	path, err := g.o.Root.Path(m.ProfileID)
	missing := errors.Is(err, profiledir.ErrNoProfile)
	switch {
	case missing && m.Create: // the profile is made once nothing can refuse the task any more
		path, err = g.o.Root.Place(m.ProfileID)
	case missing:
		return nil, api.Refuse(api.CodeUnknownProfile, "there is no profile %s: ask with create=true, or PUT /v1/profiles/%s, to make it", m.ProfileID, m.ProfileID)
	}
	if errors.Is(err, profiledir.ErrArchived) {
		return nil, api.Refuse(api.CodeUnknownProfile, "profile %s: %v", m.ProfileID, err)
	}
	if err != nil {
		return nil, api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", m.ProfileID, err)
	}
	if !missing {
		err = g.checkDir(m.ProfileID, path)
	}
	if err == nil && entry.Record.State == "" {
		entry.Number, err = g.mayMake(ctx, m.ProfileID)
	}
	if err != nil {
		return nil, err
	}
	if g.joinable(entry.Record, m) {
		return g.join(ctx, m, entry, path, a)
	}
	slot := g.slots.OccupyNext(ctx, m.ProfileID)
	if slot == nil {
		return nil, g.busyHere(entry.Record, m)
	}
	s, err := g.open(ctx, m, entry, path, slot, a)
	if err != nil {
		slot.Vacate()
		return nil, err
	}
	return s, nil
}

// atHome refuses a profile of this host that may have another home by now, or whose directory
// here may not be opened.
func (g *grants) atHome(r lease.Record) error {
	if err := g.unusable(r.ProfileID); err != nil {
		return err
	}
	if r.State != "" && r.State.Free() || r.State == lease.ManualReview {
		if p := g.presence.HomeReady(); p != nil {
			return p
		}
	}
	return nil
}

// healed returns the entry. If the store forgot it, the entry is restored from this host's own
// record: a token that was used before must not be granted again. If that record, or another
// file that this host keeps about the profile, cannot be trusted, the profile goes to a person.
func (g *grants) healed(ctx context.Context, e lease.Entry) (lease.Entry, error) {
	r := e.Record
	if r.Home != "" && r.Home != g.o.ID {
		return e, nil
	}
	if g.snapshotter != nil {
		g.snapshotter.Learn(ctx, r.ProfileID)
	}
	forgotten, home, err := g.recoverer.Forgot(r)
	switch {
	case err != nil:
		return e, err
	case home != "": // another launcher shares this folder, and heals its own profiles
		return e, g.patrol.Home(lease.Record{ProfileID: r.ProfileID, Home: home})
	case !forgotten:
		return e, nil
	}
	// A session may have come and gone since the record was read.
	if again, err := g.o.Store.Get(ctx, r.ProfileID); err == nil {
		if forgotten, _, err := g.recoverer.Forgot(again.Record); err == nil && !forgotten {
			return again, nil
		}
	}
	slot := g.slots.OccupyCold(r.ProfileID)
	if slot == nil {
		return e, nil // the caller refuses it as busy
	}
	defer slot.Vacate()
	if _, err := g.recoverer.Heal(ctx, r.ProfileID); err != nil {
		return e, err
	}
	return g.o.Store.Get(ctx, r.ProfileID)
}

// refusal refuses a task that may not have the profile in the state that its record says.
func (g *grants) refusal(e lease.Entry, m api.Manifest, now time.Time) error {
	r, until := e.Record, g.catalog.CoolUntil(e)
	state := func(code, format string, args ...any) *api.Problem {
		p := api.Refuse(code, format, args...).With("state", r.State).With("reason", r.Reason).With("lease_token", r.Token)
		if !until.IsZero() {
			p = p.With("available_after", until.UTC())
		}
		return p
	}
	if r.Home != "" && r.Home != g.o.ID {
		return g.patrol.Home(r)
	}
	switch r.State {
	case lease.Held, lease.SuspectedStale:
		if !g.joinable(r, m) {
			return g.conflict(r, m)
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
	if p := mappingRefusal(r, m); p != nil {
		return p
	}
	if now.Before(until) {
		p := state(api.CodeCoolingDown, "profile %s cools down after its recovery until %s", r.ProfileID, until.UTC().Format(time.RFC3339))
		p.RetryAfter = int(until.Sub(now).Seconds()) + 1
		return p
	}
	if keepsOut(r, m) {
		return state(api.CodeSignedOut, "the account of profile %s is not signed in at %s since %s (%s): sign it in by hand (leasehold hold %s), have a person do it by a link (leasehold sign-in %s), or with a task that says sign_in: true",
			r.ProfileID, r.SignInAt, r.SignedInSince.UTC().Format(time.RFC3339), r.SignedInHow, r.ProfileID, r.ProfileID).
			With("signed_in_since", r.SignedInSince.UTC()).With("signed_in_checked_at", r.SignedInCheckedAt.UTC()).With("signed_in_how", r.SignedInHow).
			With("sign_in_at", r.SignInAt).With("another_account", r.AnotherAccount)
	}
	return nil
}

// keepsOut tells whether a task does not get the profile since its account is known to be signed out:
// many tasks would try it in vain, one after the other.
func keepsOut(r lease.Record, m api.Manifest) bool {
	return r.SignedOut() && !m.SignIn && m.ByHand == nil
}

// heldError refuses a profile that is in use, and says who has it.
type heldError struct {
	*api.Problem
	conflict session.Conflict
	ending   bool // the session that has it is ending in order
}

func (e *heldError) Unwrap() error { return e.Problem }

// conflict refuses a profile that is in use according to its record.
func (g *grants) conflict(r lease.Record, m api.Manifest) *heldError {
	decision := "rescheduled"
	switch {
	case m.HumanReviewOnLockConflict:
		decision = "human_review"
	case m.Wait > 0:
		decision = "waiting"
	}
	r = g.shown(r)
	left := min(time.Until(r.ExpiresAt), time.Duration(r.TTLSeconds*float64(time.Second))) // whoever wrote it may have another clock
	next := max(soon, int(left.Seconds())+1)
	by := g.sessions.OnProfile(r.ProfileID)
	ending := by != nil && by.Token() == r.Token && by.EndsInOrder()
	how := ""
	if ending {
		next, how = soon, ", whose session is ending: ask again in a second"
	}
	p := api.Refuse(api.CodeConflict, "profile %s is held by worker %s for task %s%s", r.ProfileID, r.OwnerWorkerID, r.TaskID, how).
		With("profile_id", r.ProfileID).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).
		With("current_token", r.Token).With("lease_expires_at", r.ExpiresAt).With("decision", decision).With("next_check_seconds", next)
	if r.OwnerWorkerID == m.WorkerID && r.TaskID == m.TaskID && m.OneShot {
		p.Detail += ", in a session that another principal opened, or that is ending: the names alone do not join it"
	}
	p.RetryAfter = next
	return &heldError{p, session.Conflict{Holder: r, Decision: decision, NextCheckSeconds: next}, ending}
}

// busyHere refuses a profile whose record is free, but whose slot on this launcher is still, or
// already, occupied.
func (g *grants) busyHere(r lease.Record, m api.Manifest) error {
	if g.slots.Draining() {
		return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
	}
	if s := g.sessions.OnProfile(r.ProfileID); s != nil {
		shown := s.Show()
		r.OwnerWorkerID, r.TaskID, r.Token, r.ExpiresAt = shown.WorkerID, shown.TaskID, shown.Token, shown.ExpiresAt
		return g.conflict(r, m)
	}
	held := g.conflict(r, m)
	held.Detail = fmt.Sprintf("profile %s is being opened or recovered here: ask again in a moment", r.ProfileID)
	held.Problem = held.With("next_check_seconds", soon)
	held.RetryAfter, held.conflict.NextCheckSeconds = soon, soon
	return held
}
