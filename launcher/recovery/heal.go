package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/lease"
)

// Forgot tells whether the store knows less of a profile than this host does. Another
// launcher on the same folder answers for its own profiles.
func (r *Recoverer) Forgot(rec lease.Record) (bool, error) {
	floor, own, err := r.o.Root.Kept(rec.ProfileID)
	return rec.Token < floor && (own.Home == "" || own.Home == r.o.LauncherID), err
}

// Heal restates a profile that the store forgot, from the record that this host kept
// beside it, and returns the record as it is then. The caller occupies the profile.
func (r *Recoverer) Heal(ctx context.Context, profile string) (lease.Record, error) {
	floor, own, err := r.o.Root.Kept(profile)
	if err != nil {
		return lease.Record{}, err
	}
	entry, err := lease.Change(ctx, r.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		rec := e.Record
		if rec.Token >= floor {
			return rec, errAlready
		}
		rec.Home = r.o.LauncherID
		return rec.Heal(own, floor, time.Now())
	})
	if errors.Is(err, errAlready) {
		return entry.Record, nil
	}
	if err != nil {
		return entry.Record, fmt.Errorf("the lease store forgot profile %s, token %d: %w", profile, floor, err)
	}
	r.heals.Inc()
	r.o.Log.Warn().Str("profile", profile).Uint64("floor", uint64(floor)).Uint64("token", uint64(entry.Record.Token)).Str("state", string(entry.Record.State)).
		Msg("the lease store had forgotten the profile: it is restored from this host's own record")
	return entry.Record, nil
}
