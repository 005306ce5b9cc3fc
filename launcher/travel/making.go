package travel

import (
	"context"
	"errors"
	"fmt"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/profiles"
	"leasehold/lease"
)

// PutProfile creates a profile or changes its settings. Account and proxy can be set only once:
// to change them would give the profile to another account. The record is stored first: if that
// is refused, there is no profile, and if this is interrupted, there is none that could go out
// without its proxy.
func (t *Service) PutProfile(ctx context.Context, profileID string, set api.ProfileSettings) (api.Profile, error) {
	if err := profiles.CheckSettings(profileID, set); err != nil {
		return api.Profile{}, err
	}
	if err := t.host.Root.There(); err != nil {
		return api.Profile{}, err
	}
	if _, err := t.host.Root.Place(profileID); err != nil && !errors.Is(err, profiledir.ErrMissing) {
		return api.Profile{}, api.Invalid("profile_id", "%v", err)
	}
	gone, err := t.gone(ctx, profileID)
	if err != nil {
		return api.Profile{}, err
	}
	if gone {
		if _, err := t.host.Place(profileID); err != nil {
			return api.Profile{}, err
		}
		r, err := t.makeProfile(ctx, profileID, origin{set: set, fill: profiledir.Empty})
		if _, missing := t.host.Root.Path(profileID); err == nil || missing != nil {
			return r, err
		} // otherwise somebody else has made it meanwhile
	}
	r, err := t.profiles.PutRecord(ctx, profileID, set, false)
	if err != nil {
		return api.Profile{}, err
	}
	err = t.host.Create(profileID)
	if p, is := api.ProblemIn(err); is && p.More["reason"] == api.ReasonDirectoryMissing {
		return api.Profile{}, fmt.Errorf("the settings are stored, and the directory is not made: %w", err)
	}
	if err != nil {
		return api.Profile{}, fmt.Errorf("the settings are stored, but the directory is not made: ask again: %w", err)
	}
	return t.host.Shown(r).Public(), nil
}

// gone tells whether a free profile whose home is here has no directory: it was archived or
// removed, or never made.
func (t *Service) gone(ctx context.Context, profileID string) (bool, error) {
	if _, err := t.host.Root.Path(profileID); !errors.Is(err, profiledir.ErrNoProfile) {
		return false, nil
	}
	if err := t.profiles.HealFirst(ctx, profileID); err != nil {
		return false, host.Problem(err)
	}
	e, err := t.host.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, host.Problem(err)
	}
	free := e.Record.State == lease.Available || e.Record.State == lease.ResumePending
	return free && e.Record.Home == t.host.ID, nil
}
