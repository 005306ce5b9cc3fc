package travel

import (
	"cmp"
	"context"
	"errors"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// MoveProfile makes this launcher the home of a profile that nobody uses, at the request of
// somebody who manages it. It uses the newest snapshot, so that nothing is lost.
func (t *Service) MoveProfile(ctx context.Context, profileID string, req api.ProfileMove) (api.Profile, error) {
	if req.To != "" && req.To != t.host.ID {
		return api.Profile{}, t.toAsk(req.To)
	}
	if err := cmp.Or(api.CheckPerson("person", req.Person, "who decides"), api.CheckNote(req.Note)); err != nil {
		return api.Profile{}, err
	}
	if err := t.profiles.HealFirst(ctx, profileID); err != nil {
		return api.Profile{}, host.Problem(err)
	}
	entry, err := t.host.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s that could move", profileID)
	}
	if err != nil {
		return api.Profile{}, host.Problem(err)
	}
	if req.Token == entry.Record.Token {
		entry = t.withSnapshot(ctx, entry)
	}
	r := entry.Record
	if req.Token != r.Token {
		return api.Profile{}, t.host.Announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "move")
	}
	if r.Home == t.host.ID {
		return api.Profile{}, api.Invalid("to", "launcher %s is the home of profile %s already", t.host.ID, profileID)
	}
	free := r
	free.Mobility = lease.MobilityFree // an explicit request moves a pinned profile, too
	if err := free.MayMove(); err != nil {
		return api.Profile{}, api.Refuse(api.CodeConflict, "%v; what is lost otherwise, a person decides with leasehold profiles rehome %s", err, profileID).
			With("profile_id", profileID).With("state", r.State).With("home_launcher", r.Home)
	}
	m := move{entry: entry, ask: true}
	if m.q, m.fill, err = t.ofSnapshot(ctx, r, r.SnapshotID); err != nil {
		return api.Profile{}, err
	}
	m.q.Move.Person, m.q.Move.Principal, m.q.Move.Note = req.Person, principal.Of(ctx).Name, req.Note
	moved, err := t.moveHere(ctx, m)
	if err != nil {
		return api.Profile{}, host.Problem(err)
	}
	return t.host.Shown(moved).Public(), nil
}

// withSnapshot waits for the snapshot that the profile's home makes after a check of its account, if
// that is all that is missing, for as long as a home may take to give a profile up.
func (t *Service) withSnapshot(ctx context.Context, entry lease.Entry) lease.Entry {
	for end := time.Now().Add(giveUpTimeout); time.Now().Before(end); {
		r := entry.Record
		if _, _, silent := t.host.Patrol.Silent(r.Home); silent || r.SnapshotID == "" || r.SnapshotToken != r.Token || r.HasSnapshot() {
			break
		}
		select {
		case <-time.After(giveUpPoll):
		case <-ctx.Done():
			return entry
		}
		if e, err := t.host.Store.Get(ctx, r.ProfileID); err == nil {
			entry = e
		}
	}
	return entry
}

// toAsk refuses what only another launcher can do: the one that would get the directory.
func (t *Service) toAsk(launcherID string) *api.Problem {
	p := api.Refuse(api.CodeWrongHome, "launcher %s has to be asked, since it gets the directory", launcherID).With("home_launcher", launcherID)
	if to := t.host.Patrol.Other(launcherID); to.AdvertiseURL != "" {
		p.Detail += ": " + to.AdvertiseURL
		p = p.With("location", to.AdvertiseURL)
	}
	return p
}

// MayCome tells whether a profile may be brought here for a task: its owner lets it move by itself, its
// home is gone or has no place for it, and this host has a place.
func (t *Service) MayCome(r lease.Record) bool {
	return r.Home != "" && r.Home != t.host.ID && t.host.Snapshots != nil && r.MayMove() == nil && !t.homeHasPlace(r) && t.hasPlace()
}

// Bring brings a profile here that MayCome. It returns the entry after that, or unchanged if the home
// keeps the profile.
func (t *Service) Bring(ctx context.Context, entry lease.Entry) (lease.Entry, error) {
	r := entry.Record
	q, fill, err := t.ofSnapshot(ctx, r, r.SnapshotID)
	if err != nil {
		return entry, err
	}
	_, err = t.moveHere(ctx, move{entry: entry, q: q, ask: true, fill: fill})
	if kept, ok := errors.AsType[*api.Problem](err); ok && kept.Code == api.CodeConflict {
		t.host.Log.Info().Err(err).Str("profile", r.ProfileID).Str("home", r.Home).Msg("a profile that is free to move stays with its home")
		return entry, nil
	}
	if err != nil {
		return entry, err
	}
	return t.host.Store.Get(ctx, r.ProfileID)
}

// homeHasPlace tells whether the profile's home is running and, by its last report, may start
// another browser.
func (t *Service) homeHasPlace(r lease.Record) bool {
	if _, _, silent := t.host.Patrol.Silent(r.Home); silent {
		return false
	}
	home := t.host.Patrol.Other(r.Home)
	// A home that has just shut down may be back in a moment.
	return home.Closed || !host.IsFull(home.Host.Places, home.Host.Browsers, home.Host.Warm)
}

// hasPlace tells whether this host may start another browser.
func (t *Service) hasPlace() bool {
	use := t.host.Slots.Use()
	return !host.IsFull(t.host.MaxBrowsers, use.Places, use.Warm)
}
