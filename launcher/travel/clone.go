package travel

import (
	"context"
	"errors"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// CloneProfile makes another profile of a copy: of a profile's directory, which has to be here
// and unused, or of one of its snapshots.
func (t *Service) CloneProfile(ctx context.Context, profileID string, req api.ProfileClone) (api.Profile, error) {
	if err := lease.CheckProfileID(req.To); err != nil {
		return api.Profile{}, api.Invalid("to", "%v", err)
	}
	if req.SnapshotID != "" {
		return t.cloneSnapshot(ctx, profileID, req)
	}
	r, done, err := t.profiles.Borrow(ctx, profileID)
	if err != nil {
		return api.Profile{}, err
	}
	defer done()
	path, err := t.host.Root.Path(profileID)
	if err != nil {
		return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	lock, err := t.host.LockUnused(r)
	if err == nil {
		err = lock.Unlock() // the copy locks it in its own way
	}
	if err != nil {
		return api.Profile{}, err
	}
	return t.copyProfile(ctx, req.To, path, "profile_id", cloned(r), profileID)
}

// cloned are the settings of a profile that its clone gets. The labels are not among them, so
// that a task that asks by labels does not get a clone by chance.
func cloned(r lease.Record) api.ProfileSettings {
	return api.ProfileSettings{
		AccountID: &r.AccountID, ProxyID: &r.ProxyID, ExpectedDomains: &r.ExpectedDomains, SensitiveURLs: &r.SensitiveURLs,
		SensitiveWords: &r.SensitiveWords, HarmlessRequests: &r.HarmlessRequests, BrowserMemory: &r.BrowserMemory,
		ReadOnly: &r.ReadOnly, Mobility: &r.Mobility, FenceHeaderOrigins: &r.FenceHeaderOrigins, SessionCheck: r.SessionCheck,
		Timezone: &r.Timezone, Locale: &r.Locale, Viewport: &r.Viewport, Geolocation: &r.Geolocation,
	}
}

// cloneSnapshot makes another profile of a snapshot, with its home here. It takes no lease of
// the cloned profile and needs no directory of it, so it works on any launcher that reaches the
// profile store, even while the profile is in use.
func (t *Service) cloneSnapshot(ctx context.Context, profileID string, req api.ProfileClone) (api.Profile, error) {
	store, err := t.snapshotStore()
	if err != nil {
		return api.Profile{}, err
	}
	if req.To == profileID {
		return api.Profile{}, api.Invalid("to", "%q: want another profile than the one that is cloned", req.To)
	}
	if _, err := t.host.Granting(); err != nil {
		return api.Profile{}, err
	}
	r, err := t.toClone(ctx, profileID)
	if err != nil {
		return api.Profile{}, err
	}
	if err := t.checkNew(ctx, req.To, cloned(r)); err != nil {
		return api.Profile{}, err
	}
	list, err := store.List(ctx, profileID)
	if err != nil {
		return api.Profile{}, SnapshotProblem(err)
	}
	wanted, err := named(list, r, req.SnapshotID)
	if err != nil {
		return api.Profile{}, err
	}
	made, err := t.makeProfile(ctx, req.To, origin{
		set: cloned(r), cloneOf: profileID,
		fill: func(ctx context.Context, dir string) (map[string][]byte, error) {
			extras, err := t.fetched(wanted)(ctx, dir)
			if err != nil {
				return nil, err
			}
			_, err = t.toClone(ctx, profileID) // by now the account may have to stand still
			return extras, err
		},
	})
	if err != nil {
		return api.Profile{}, err
	}
	t.host.Log.Info().Str("profile", req.To).Uint64("token", uint64(made.Token)).Str("clone_of", profileID).Str("snapshot", wanted.ID).Uint64("snapshot_token", uint64(wanted.Token)).
		Str("principal", principal.Of(ctx).Name).Msg("profile made of a snapshot")
	return made, nil
}

// toClone is the record of a profile from whose snapshots a clone may be made. While the
// account has to stand still there is none: what a clone did in the same account would be
// unknown to the person who decides about the profile.
func (t *Service) toClone(ctx context.Context, profileID string) (lease.Record, error) {
	e, err := t.host.Store.Get(ctx, profileID)
	switch {
	case errors.Is(err, lease.ErrNotFound) || err == nil && e.Record.State == "":
		return lease.Record{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", profileID)
	case err != nil:
		return lease.Record{}, host.Problem(err)
	}
	if p := host.StandsStill(e.Record, "no clone of it is made that could act beside it until that is decided"); p != nil {
		return lease.Record{}, p
	}
	return e.Record, nil
}

// RemoveClone deletes a cloned profile that nobody uses, because a person asked for it. The
// record stays, so that its tokens only grow, and the evidence stays too.
func (t *Service) RemoveClone(ctx context.Context, profileID string, req api.ProfileRemove) (api.Removed, error) {
	r, done, err := t.profiles.Borrow(ctx, profileID)
	if err != nil {
		return api.Removed{}, err
	}
	defer done()
	if req.Token != r.Token {
		return api.Removed{}, t.host.Announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "remove-clone")
	}
	lock, err := t.host.LockUnused(r)
	if err != nil {
		return api.Removed{}, err
	}
	of, err := lock.CloneOf()
	if err == nil {
		err = t.putAside(ctx, lock, func() error {
			if _, err := lock.RemoveClone(); err != nil {
				return err
			}
			return t.host.Jar.Drop(profileID)
		})
	}
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, profiledir.ErrNoClone) {
		return api.Removed{}, api.Refuse(api.CodeConflict, "profile %s was not made by cloning another, and only such profiles are removed: archive it", profileID).With("profile_id", profileID)
	}
	if err != nil {
		return api.Removed{}, err
	}
	t.host.Log.Info().Str("profile", profileID).Uint64("token", uint64(r.Token)).Str("clone_of", of).Str("principal", principal.Of(ctx).Name).Msg("clone removed")
	return api.Removed{ProfileID: profileID, CloneOf: of, At: time.Now().UTC()}, nil
}
