package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// directories makes, copies and archives the directories of profiles.
type directories struct {
	*rooms
	grants  *grants
	records *records
}

// mayMake refuses to make a profile that has no record here but may be known elsewhere: one
// that this launcher remembers under another home, or any profile while the store is young or may
// not be the only one. The
// refusal ends when that home is back, or when a person decides. number is the number of the
// store in which the record may be made: see lease.Entry.
func (r *rooms) mayMake(ctx context.Context, profile string) (number uint64, _ error) {
	if p := r.elsewhere(lease.Record{ProfileID: profile}); p != nil {
		return 0, p
	}
	if err := r.presence.Doubt(); err != nil {
		return 0, err
	}
	return r.presence.MakeReady(ctx)
}

// create makes the profile's directory, if it is missing. Session cookies that were kept of an
// earlier directory do not belong to it, and are dropped.
func (r *rooms) create(profile string) error {
	if _, err := r.o.Root.Path(profile); errors.Is(err, profiledir.ErrNoProfile) {
		if err := r.jar.Drop(profile); err != nil {
			return err
		}
	}
	_, err := r.o.Root.Create(profile)
	return err
}

// PutProfile creates a profile or changes its settings. Account and proxy can be set only once:
// to change them would give the profile to another account. The record is stored first: if that
// is refused, there is no profile, and if this is interrupted, there is none that could go out
// without its proxy.
func (ds *directories) PutProfile(ctx context.Context, profileID string, set api.ProfileSettings) (lease.Record, error) {
	if err := checkSettings(profileID, set); err != nil {
		return lease.Record{}, err
	}
	if err := ds.o.Root.There(); err != nil {
		return lease.Record{}, err
	}
	if _, err := ds.o.Root.Place(profileID); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	gone, err := ds.gone(ctx, profileID)
	if err != nil {
		return lease.Record{}, err
	}
	if gone {
		r, err := ds.makeProfile(ctx, profileID, origin{
			set:     set,
			fill:    func(dir string) error { return os.Mkdir(dir, 0o700) },
			cookies: func() error { return ds.jar.Drop(profileID) },
		})
		if _, missing := ds.o.Root.Path(profileID); err == nil || missing != nil {
			return r, err
		} // otherwise somebody else has made it meanwhile
	}
	r, err := ds.records.putRecord(ctx, profileID, set, false)
	if err != nil {
		return lease.Record{}, err
	}
	if err := ds.create(profileID); err != nil {
		return lease.Record{}, fmt.Errorf("the settings are stored, but the directory is not made: ask again: %w", err)
	}
	return ds.shown(r).Public(), nil
}

// gone tells whether a free profile whose home is here has no directory: it was archived or
// removed, or never made.
func (ds *directories) gone(ctx context.Context, profileID string) (bool, error) {
	if _, err := ds.o.Root.Path(profileID); !errors.Is(err, profiledir.ErrNoProfile) {
		return false, nil
	}
	if err := ds.records.healFirst(ctx, profileID); err != nil {
		return false, problem(err)
	}
	e, err := ds.o.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem(err)
	}
	free := e.Record.State == lease.Available || e.Record.State == lease.ResumePending
	return free && e.Record.Home == ds.o.ID, nil
}

// numbered is a lease store that makes records only in the store whose number mayMake returned.
type numbered struct {
	lease.Store
	number uint64
}

func (n *numbered) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	prev.Number = n.number
	return n.Store.Swap(ctx, prev, next)
}

// elsewhere refuses a profile whose record is missing, or names another home than the one this
// launcher remembers: then the store has forgotten the profile.
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

// forgotten is what is shown of a profile that the store has forgotten: the record as its home
// would restate it. ok is false for a profile that never had a record.
func (rs *records) forgotten(profile string) (_ lease.Record, ok bool) {
	healed, ok := rs.recoverer.Forgotten(lease.Record{ProfileID: profile})
	return rs.shown(healed).Public(), ok
}

// noRecord returns the record to show of a profile that has none in the store: what is known of
// it here, or a blank one if there is only its directory.
func (rs *records) noRecord(profile string) (lease.Record, error) {
	if r, ok := rs.forgotten(profile); ok {
		return r, nil
	}
	return rs.blank(profile)
}

// current returns the record of a profile that is to be used or copied. If the store forgot it,
// it is restated first.
func (rs *records) current(ctx context.Context, profile string) (lease.Record, error) {
	if err := lease.CheckProfileID(profile); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	if err := rs.healFirst(ctx, profile); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, problem(err)
	}
	return rs.stored(ctx, profile)
}
