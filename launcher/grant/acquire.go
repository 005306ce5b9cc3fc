package grant

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/profiles"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Acquire grants the manifest's profile to its task and starts the browser.
func (g *Service) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	if err := m.Check(); err != nil {
		return api.Session{}, err
	}
	if _, _, err := chrome.Arguments(chrome.Options{ProfileDir: g.host.DataDir, ExtraArgs: m.ChromeArgs}, os.Getuid()); err != nil {
		return api.Session{}, api.Invalid("chrome_args", "%v", err)
	}
	if err := profiles.CheckOrigins(m.FenceHeaderOrigins); err != nil {
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
	if r, _ := g.host.Catalog.Record(m.ProfileID); r.AccountID == "" && m.ProfileID != "" && m.AccountID != "" { // else none is given
		m.Opener.GivesAccount = m.Opener.Manages && g.profiles.MayGive(ctx, m.ProfileID, m.AccountID) == nil
	}
	begin := g.acquire
	if m.Ephemeral {
		begin = g.read
	}
	s, err := begin(ctx, m)
	if err != nil {
		err = host.Problem(err)
		if p, ok := errors.AsType[*api.Problem](err); ok {
			g.metrics.refusals.WithLabelValues(p.Code).Inc()
		}
		return api.Session{}, err
	}
	return s.Show(), nil
}

// waitable are the codes of refusals that may end by themselves. Those that are missing here end
// when the caller asks otherwise, asks elsewhere, or when a person does something: a review, a task
// that resumes, a browser or a proxy that is mended, servers of NATS that are not one store, a directory that
// is brought back.
var waitable = []string{
	api.CodeConflict, api.CodeQuarantined, api.CodeCoolingDown, api.CodeHostFull, api.CodeStoreUnavailable, api.CodeProfileStore,
	api.CodeEvidenceStore,
}

// pollEvery is how often a waiting request looks at a record that another
// launcher may have changed.
const pollEvery = 500 * time.Millisecond

// anyPause is the least time between two attempts of a waiting request for any profile.
const anyPause = 50 * time.Millisecond

// endingPatience is how long a request waits for a profile whose session is ending in order,
// even if it did not ask to wait: this lets the tasks of one worker follow each other.
const endingPatience = 15 * time.Second

// acquire grants the manifest's profile, and waits for it as long as the manifest says.
func (g *Service) acquire(ctx context.Context, m api.Manifest) (_ *session.Session, err error) {
	deadline := time.Now().Add(time.Duration(m.Wait))
	patience := time.Now().Add(endingPatience)
	announced := false
	var ending lease.Token // of the session whose end the request waits for
	a := g.asks(ctx, m)
	defer func() { a.leave(ctx, g.host.Slots, err) }()
	for {
		changed := g.host.Slots.Changed()
		version, _ := g.host.Catalog.Version(m.ProfileID)
		if g.host.Slots.Draining() {
			return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
		}
		if m.OneShot {
			if s := g.host.Sessions.Of(principal.Of(ctx), m.ProfileID, m.WorkerID, m.TaskID, false); s != nil && g.isOf(s, m) {
				return s, s.Limits().Narrow(m)
			}
		}
		s, err := g.tryInTurn(ctx, m, a)
		if err == nil {
			return s, nil
		}
		var p *api.Problem
		if !errors.As(err, &p) && !errors.As(host.Problem(err), &p) {
			return nil, err
		}
		var held *host.HeldError
		isHeld := errors.As(err, &held)
		if m.Wait > 0 && canEnd(p) && !a.ticket.Enter() {
			return nil, a.tooMany(p)
		}
		if isHeld && held.Ending {
			ending = held.Conflict.Holder.Token
		}
		if isHeld && ending != 0 && ending == held.Conflict.Holder.Token && time.Now().Before(patience) {
			if err := g.waitFor(ctx, m.ProfileID, version, changed, patience); err != nil {
				return nil, err
			}
			continue
		}
		if isHeld && !announced {
			announced = true
			g.host.Announcer.Conflict(ctx, m, held.Conflict)
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
		if p := g.host.Slots.QueueUp(&a.place, p); p != nil {
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
	reason := p.More["reason"]
	return slices.Contains(waitable, p.Code) && reason != api.ReasonServers && reason != api.ReasonDirectoryMissing
}

// waitFor is wait for a request whose refusal also ends with a change of the profile's record, or
// of any record if the profile is empty. Changes of other records ask the store nothing: there are
// as many as all hosts write. version is that of the record before the request was refused.
func (g *Service) waitFor(ctx context.Context, profile string, version uint64, changed <-chan struct{}, deadline time.Time) error {
	look := time.NewTimer(min(time.Until(deadline), pollEvery))
	defer look.Stop()
	for {
		now, records := g.host.Catalog.Version(profile)
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
func (g *Service) try(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	for {
		s, err := g.tryOnce(ctx, m, a)
		if !errors.Is(err, errRecordMoved) || ctx.Err() != nil {
			return s, err
		}
	}
}

// tryOnce is try with the record as it is read first. It returns errRecordMoved if another would be
// granted by now.
func (g *Service) tryOnce(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	entry, err := g.host.Store.Get(ctx, m.ProfileID)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		entry = lease.Entry{Record: lease.Record{ProfileID: m.ProfileID}}
	case err != nil:
		return nil, err
	}
	if entry, err = g.profiles.Healed(ctx, entry); err != nil {
		return nil, err
	}
	if p := g.host.Elsewhere(entry.Record); p != nil {
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
	path, err := g.host.Root.Path(m.ProfileID)
	missing := errors.Is(err, profiledir.ErrNoProfile)
	if missing { // the profile is made once nothing can refuse the task any more
		path, err = g.host.Place(m.ProfileID)
	}
	switch refused := (*api.Problem)(nil); {
	case missing && errors.As(err, &refused):
		return nil, err
	case missing && !m.Create:
		return nil, api.Refuse(api.CodeUnknownProfile, "there is no profile %s: ask with create=true, or PUT /v1/profiles/%s, to make it", m.ProfileID, m.ProfileID)
	}
	if errors.Is(err, profiledir.ErrArchived) {
		return nil, api.Refuse(api.CodeUnknownProfile, "profile %s: %v", m.ProfileID, err)
	}
	if err != nil {
		return nil, api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", m.ProfileID, err)
	}
	if !missing {
		err = g.host.CheckDir(m.ProfileID, path)
	}
	if err == nil && entry.Record.State == "" {
		entry.Number, err = g.host.MayMake(ctx, m.ProfileID)
	}
	if err != nil {
		return nil, err
	}
	if g.joinable(entry.Record, m) {
		return g.join(ctx, m, entry, path, a)
	}
	slot := g.host.Slots.OccupyNext(ctx, m.ProfileID, &a.place)
	if slot == nil {
		return nil, g.host.BusyHere(entry.Record, m)
	}
	s, err := g.open(ctx, m, entry, path, slot, a)
	if err != nil {
		slot.Vacate()
		return nil, err
	}
	return s, nil
}

// roam brings a profile here for a task, if it may come and the task would not be refused at its home,
// too. It returns the entry after that; it returns the entry unchanged if nothing is to be moved, or if
// the home keeps the profile.
func (g *Service) roam(ctx context.Context, entry lease.Entry, m api.Manifest) (lease.Entry, error) {
	if m.ByHand != nil || !g.travel.MayCome(entry.Record) {
		return entry, nil
	}
	here := entry
	here.Record.Home = g.host.ID
	if g.refusal(here, m, time.Now()) != nil {
		return entry, nil
	}
	return g.travel.Bring(ctx, entry)
}

// atHome refuses a profile of this host that may have another home by now, or whose directory
// here may not be opened.
func (g *Service) atHome(r lease.Record) error {
	if err := g.host.Unusable(r.ProfileID); err != nil {
		return err
	}
	if r.State != "" && r.State.Free() || r.State == lease.ManualReview {
		if p := g.host.Presence.HomeReady(); p != nil {
			return p
		}
	}
	return nil
}

// refusal refuses a task that may not have the profile in the state that its record says.
func (g *Service) refusal(e lease.Entry, m api.Manifest, now time.Time) error {
	r, until := e.Record, g.host.Catalog.CoolUntil(e)
	state := func(code, format string, args ...any) *api.Problem {
		p := api.Refuse(code, format, args...).With("state", r.State).With("reason", r.Reason).With("lease_token", r.Token)
		if !until.IsZero() {
			p = p.With("available_after", until.UTC())
		}
		return p
	}
	if r.Home != "" && r.Home != g.host.ID {
		return g.host.Patrol.Home(r)
	}
	switch r.State {
	case lease.Held, lease.SuspectedStale:
		if !g.joinable(r, m) {
			return g.host.Conflict(r, m)
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
	return r.SignedOut() && !signsIn(m)
}

// signsIn tells whether a task, or a person, gets also a profile whose account is signed out.
func signsIn(m api.Manifest) bool { return m.SignIn || m.ByHand != nil }

// outdated refuses a person who saw a token that is not the record's any more.
func (g *Service) outdated(ctx context.Context, r lease.Record, m api.Manifest) error {
	if m.ByHand == nil || m.ByHand.TokenSeen == r.Token {
		return nil
	}
	if m.ByHand.TokenSeen == 0 {
		return api.Invalid("lease_token", "want the token that the person saw: it is %d now", r.Token)
	}
	return g.host.Announcer.Stale(ctx, r.ProfileID, r.SessionID, m.ByHand.TokenSeen, r.Token, "hold")
}
