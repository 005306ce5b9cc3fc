package profiles

import (
	"context"
	"slices"

	"leasehold/launcher/api"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Borrow occupies a profile that nobody uses, until done is called, and returns its record.
// Nobody is granted the profile meanwhile, since its home is here.
func (ps *Service) Borrow(ctx context.Context, profileID string) (_ lease.Record, done func(), _ error) {
	return ps.BorrowIn(ctx, profileID, lease.Available)
}

// BorrowIn is Borrow for a profile in one of the given states, in none of which it is in use.
func (ps *Service) BorrowIn(ctx context.Context, profileID string, states ...lease.State) (_ lease.Record, done func(), _ error) {
	r, slot, err := ps.Occupy(ctx, profileID, ps.host.Slots.OccupyCold, func(r lease.Record) error {
		if !slices.Contains(states, r.State) {
			return api.Refuse(api.CodeConflict, "profile %s is %s: want one that nobody uses", profileID, r.State).With("state", r.State).
				With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		}
		return nil
	})
	if err != nil {
		return r, nil, err
	}
	return r, slot.Vacate, nil
}

// Occupy occupies a profile whose home is here, and of whose record free is not an error.
func (ps *Service) Occupy(ctx context.Context, profileID string, how func(string) *slots.Slot, free func(lease.Record) error) (lease.Record, *slots.Slot, error) {
	usable := func(r lease.Record) error {
		if r.Home != "" && r.Home != ps.host.ID {
			return ps.host.Patrol.Home(r)
		}
		return free(r)
	}
	r, err := ps.current(ctx, profileID)
	if err == nil {
		err = usable(r)
	}
	if err != nil {
		return r, nil, err
	}
	slot := how(profileID)
	if slot == nil {
		return r, nil, ps.host.BusyHere(r, api.Manifest{ProfileID: profileID})
	}
	// It may have been granted and released again meanwhile.
	again, err := ps.stored(ctx, profileID)
	if r = again.Record; err == nil {
		err = usable(r)
	}
	if err == nil {
		err = ps.alone(profileID)
	}
	if err != nil {
		slot.Vacate()
		return r, nil, err
	}
	return r, slot, nil
}

// alone refuses a profile whose directory another host could have open, by the same checks as a
// grant.
func (ps *Service) alone(profileID string) error {
	if _, err := ps.host.Granting(); err != nil {
		return err
	}
	if p := ps.host.Presence.HomeReady(); p != nil {
		return p
	}
	if err := ps.host.Unusable(profileID); err != nil {
		return err
	}
	path, err := ps.host.Root.Path(profileID)
	if err != nil {
		return nil //nolint:nilerr // there is no directory
	}
	return ps.host.SharedReady(path)
}
