package launcher

import (
	"context"
	"errors"
	"fmt"

	"leasehold/launcher/api"
	"leasehold/launcher/cluster"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// mayMake refuses a profile without a record that somebody else may know: one that this
// launcher remembers under another home, or, where it would have to be made, any while the
// store is young. Both end when its home is back, or a person decides. number is that of
// the store in which it may be made: see lease.Entry.
func (r *rooms) mayMake(ctx context.Context, profile string) (number uint64, _ error) {
	if p := r.elsewhere(lease.Record{ProfileID: profile}); p != nil {
		return 0, p
	}
	return r.presence.MakeReady(ctx)
}

// create makes the profile's directory, if it is missing. The session cookies that are kept
// of one that was there before do not belong to it.
func (r *rooms) create(profile string) error {
	if _, err := r.o.Root.Path(profile); errors.Is(err, profiledir.ErrNoProfile) {
		if err := r.jar.Drop(profile); err != nil {
			return err
		}
	}
	_, err := r.o.Root.Create(profile)
	return err
}

// gone tells whether a profile that is free has no directory, although its home is here: it was
// put aside or removed, or never came to be.
func (ps *profiles) gone(ctx context.Context, profileID string) (bool, error) {
	if _, err := ps.o.Root.Path(profileID); !errors.Is(err, profiledir.ErrNoProfile) {
		return false, nil
	}
	if err := ps.healFirst(ctx, profileID); err != nil {
		return false, problem(err)
	}
	e, err := ps.o.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem(err)
	}
	free := e.Record.State == lease.Available || e.Record.State == lease.ResumePending
	return free && e.Record.Home == ps.o.ID, nil
}

// numbered is a lease store in which records are made as mayMake said last.
type numbered struct {
	lease.Store
	number uint64
}

func (n *numbered) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	prev.Number = n.number
	return n.Store.Swap(ctx, prev, next)
}

// elsewhere refuses a profile whose record is not there, or is of another home than this
// launcher remembers: the store forgot the profile.
func (r *rooms) elsewhere(rec lease.Record) *api.Problem {
	k := r.recoverer.Remembers(rec.ProfileID)
	switch judged := k.Judge(rec); {
	case judged == lease.Agrees, k.Home == r.o.ID && judged == lease.Forgets:
		return nil
	case judged == lease.Contradicts:
		return api.Refuse(api.CodeQuarantined, "profile %s is known as one of launcher %s, with token %d, and the lease store says %s, with token %d: a person decides which of them is its home", rec.ProfileID, k.Home, k.Token, rec.Home, rec.Token).
			With("state", lease.Quarantined).With("reason", lease.ReasonContested).With("lease_token", rec.Token)
	}
	p := r.patrol.Home(k.Record())
	p.Detail += fmt.Sprintf("; the lease store has forgotten it, and this launcher has not (token %d): it is not made anew here until that launcher is back, or a person gives it another home", k.Token)
	return p
}

// isYoung tells whether the refusal ends when the store is no longer young.
func isYoung(p *api.Problem) bool { return p.More["reason"] == cluster.ReasonYoung }

// isAway tells whether the refusal ends when it is known that the home is still here.
func isAway(p *api.Problem) bool { return p.More["reason"] == cluster.ReasonAway }

// forgotten is what a profile is shown as that the store does not have: as its home would
// restate it. ok is false for a profile that never had a record.
func (ps *profiles) forgotten(profile string) (_ lease.Record, ok bool) {
	healed, ok := ps.recoverer.Forgotten(lease.Record{ProfileID: profile})
	return ps.shown(healed).Public(), ok
}

// noRecord returns the record of a profile that the store has none of: what is known of it
// here, or a blank one where only its directory is there.
func (ps *profiles) noRecord(profile string) (lease.Record, error) {
	if r, ok := ps.forgotten(profile); ok {
		return r, nil
	}
	return ps.blank(profile)
}

// current returns the record of a profile for somebody who wants to use or copy it. One
// that the store forgot is restated first.
func (ps *profiles) current(ctx context.Context, profile string) (lease.Record, error) {
	if err := lease.CheckProfileID(profile); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	if err := ps.healFirst(ctx, profile); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, problem(err)
	}
	return ps.stored(ctx, profile)
}
