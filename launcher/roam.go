package launcher

import (
	"cmp"
	"context"
	"errors"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// MoveProfile makes this launcher the home of a profile that nobody uses, at the request of
// somebody who manages it. It uses the newest snapshot, so that nothing is lost.
func (ms *moves) MoveProfile(ctx context.Context, profileID string, req api.ProfileMove) (lease.Record, error) {
	if req.To != "" && req.To != ms.o.ID {
		return lease.Record{}, ms.toAsk(req.To)
	}
	if err := cmp.Or(api.CheckPerson("person", req.Person, "who decides"), api.CheckNote(req.Note)); err != nil {
		return lease.Record{}, err
	}
	if err := ms.records.healFirst(ctx, profileID); err != nil {
		return lease.Record{}, problem(err)
	}
	entry, err := ms.o.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s that could move", profileID)
	}
	if err != nil {
		return lease.Record{}, problem(err)
	}
	r := entry.Record
	if req.Token != r.Token {
		return lease.Record{}, ms.announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "move")
	}
	if r.Home == ms.o.ID {
		return lease.Record{}, api.Invalid("to", "launcher %s is the home of profile %s already", ms.o.ID, profileID)
	}
	free := r
	free.Mobility = lease.MobilityFree // an explicit request moves a pinned profile, too
	if err := free.MayMove(); err != nil {
		return lease.Record{}, api.Refuse(api.CodeConflict, "%v; what is lost otherwise, a person decides with leasehold profiles rehome %s", err, profileID).
			With("profile_id", profileID).With("state", r.State).With("home_launcher", r.Home)
	}
	m := move{entry: entry, ask: true}
	if m.q, m.fill, err = ms.ofSnapshot(ctx, r, r.SnapshotID); err != nil {
		return lease.Record{}, err
	}
	m.q.Move.Person, m.q.Move.Principal, m.q.Move.Note = req.Person, principal.Of(ctx).Name, req.Note
	moved, err := ms.moveHere(ctx, m)
	return moved, problem(err)
}

// toAsk refuses what only another launcher can do: the one that would get the directory.
func (ms *moves) toAsk(launcherID string) *api.Problem {
	p := api.Refuse(api.CodeWrongHome, "launcher %s has to be asked, since it gets the directory", launcherID).With("home_launcher", launcherID)
	if to := ms.patrol.Other(launcherID); to.AdvertiseURL != "" {
		p.Detail += ": " + to.AdvertiseURL
		p = p.With("location", to.AdvertiseURL)
	}
	return p
}

// roam brings a profile here for a task, if its owner lets it move by itself, its home is gone
// or has no place for it, and this host has a place. It returns the entry after that; it
// returns the entry unchanged if nothing is to be moved, or if the home keeps the profile.
func (ms *moves) roam(ctx context.Context, entry lease.Entry, m api.Manifest) (lease.Entry, error) {
	r := entry.Record
	if r.Home == "" || r.Home == ms.o.ID || ms.o.Snapshots == nil || m.ByHand != nil || r.MayMove() != nil || ms.homeHasPlace(r) || !ms.hasPlace() {
		return entry, nil
	}
	here := entry
	here.Record.Home = ms.o.ID
	if ms.grants.refusal(here, m, time.Now()) != nil {
		return entry, nil // the task would be refused at the home, too
	}
	q, fill, err := ms.ofSnapshot(ctx, r, r.SnapshotID)
	if err != nil {
		return entry, err
	}
	_, err = ms.moveHere(ctx, move{entry: entry, q: q, ask: true, fill: fill})
	if kept, ok := errors.AsType[*api.Problem](err); ok && kept.Code == api.CodeConflict {
		ms.o.Log.Info().Err(err).Str("profile", r.ProfileID).Str("home", r.Home).Msg("a profile that is free to move stays with its home")
		return entry, nil
	}
	if err != nil {
		return entry, err
	}
	return ms.o.Store.Get(ctx, r.ProfileID)
}

// homeHasPlace tells whether the profile's home is running and, by its last report, may start
// another browser.
func (ms *moves) homeHasPlace(r lease.Record) bool {
	if _, _, silent := ms.patrol.Silent(r.Home); silent {
		return false
	}
	home := ms.patrol.Other(r.Home)
	// A home that has just shut down may be back in a moment.
	return home.Closed || home.Host.Places == 0 || home.Host.Browsers-home.Host.Warm < home.Host.Places
}

// hasPlace tells whether this host may start another browser.
func (h *rooms) hasPlace() bool {
	use := h.slots.Use()
	return h.o.MaxBrowsers == 0 || use.Places-use.Warm < h.o.MaxBrowsers
}
