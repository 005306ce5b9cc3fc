package profiles

import (
	"context"
	"errors"

	"leasehold/lease"
)

// Healed returns the entry. If the store forgot it, the entry is restored from this host's own
// record: a token that was used before must not be granted again. If that record, or another
// file that this host keeps about the profile, cannot be trusted, the profile goes to a person.
func (ps *Service) Healed(ctx context.Context, e lease.Entry) (lease.Entry, error) {
	r := e.Record
	if r.Home != "" && r.Home != ps.host.ID {
		return e, nil
	}
	if ps.o.Snapshotter != nil {
		ps.o.Snapshotter.Learn(ctx, r.ProfileID)
	}
	forgotten, home, err := ps.host.Recoverer.Forgot(r)
	switch {
	case err != nil:
		return e, err
	case home != "": // another launcher shares this folder, and heals its own profiles
		return e, ps.host.Patrol.Home(lease.Record{ProfileID: r.ProfileID, Home: home})
	case !forgotten:
		return e, nil
	}
	// A session may have come and gone since the record was read.
	if again, err := ps.host.Store.Get(ctx, r.ProfileID); err == nil {
		if forgotten, _, err := ps.host.Recoverer.Forgot(again.Record); err == nil && !forgotten {
			return again, nil
		}
	}
	slot := ps.host.Slots.OccupyCold(r.ProfileID)
	if slot == nil {
		return e, nil // the caller refuses it as busy
	}
	defer slot.Vacate()
	if _, err := ps.host.Recoverer.Heal(ctx, r.ProfileID); err != nil {
		return e, err
	}
	return ps.host.Store.Get(ctx, r.ProfileID)
}

// HealFirst restores a record that the store forgot, before settings are written over it.
func (ps *Service) HealFirst(ctx context.Context, profileID string) error {
	entry, err := ps.host.Store.Get(ctx, profileID)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return err
	}
	entry.Record.ProfileID = profileID
	_, err = ps.Healed(ctx, entry)
	return err
}
