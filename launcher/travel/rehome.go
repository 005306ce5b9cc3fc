package travel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// RehomeProfile makes this launcher the home of a profile because a person says so, with a
// directory that the person names. Nobody may hold the profile. Its home has to be gone, or is
// asked to give it up, or is this launcher, if that has no directory of it that may be opened.
func (t *Service) RehomeProfile(ctx context.Context, profileID string, req api.ProfileRehome) (api.Profile, error) {
	if err := t.checkRehome(req); err != nil {
		return api.Profile{}, err
	}
	if err := t.profiles.HealFirst(ctx, profileID); err != nil {
		return api.Profile{}, host.Problem(err)
	}
	entry, err := t.host.Store.Get(ctx, profileID)
	if errors.Is(err, lease.ErrNotFound) {
		return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s that could get another home", profileID)
	}
	if err != nil {
		return api.Profile{}, host.Problem(err)
	}
	r := entry.Record
	if req.Token != r.Token { // a profile that was never used has token 0
		return api.Profile{}, t.host.Announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "rehome")
	}
	if r.Home == t.host.ID && t.hasDirectory(profileID) {
		return api.Profile{}, api.Invalid("to", "launcher %s is the home of profile %s, and has its directory", t.host.ID, profileID)
	}
	m := move{entry: entry, ask: req.AskHome}
	m.q, m.fill, err = t.directoryOf(ctx, r, req)
	if err != nil {
		return api.Profile{}, err
	}
	if !req.AcceptLoss {
		return api.Profile{}, api.Invalid("accept_loss", "%s. If that is what you want, say so: accept_loss (--accept-loss)", t.loss(r, req, m.q.Move))
	}
	m.q.Move.Person, m.q.Move.Principal, m.q.Move.Note = req.Person, principal.Of(ctx).Name, req.Note
	moved, err := t.moveHere(ctx, m)
	if err != nil {
		return api.Profile{}, host.Problem(err)
	}
	t.host.Log.Warn().Str("profile", profileID).Uint64("token", uint64(moved.Token)).Str("old_home", r.Home).Str("directory", moved.Moved.Directory).
		Str("person", req.Person).Str("principal", principal.Of(ctx).Name).Msg("a person gave the profile another home")
	return t.host.Shown(moved).Public(), nil
}

// checkRehome refuses a request that is wrong in itself.
func (t *Service) checkRehome(req api.ProfileRehome) error {
	ways := 0
	for _, given := range []bool{req.From != "", req.Left, req.Empty, req.Snapshot != ""} {
		if given {
			ways++
		}
	}
	switch {
	case req.To != "" && req.To != t.host.ID:
		return t.toAsk(req.To)
	case ways != 1:
		return api.Invalid("from", "want one of snapshot (an id, or newest), from (a directory to copy), left (the one that the profile left on this host) and empty")
	case req.Note == "":
		return api.Invalid("note", "want why the profile gets another home: whoever looks for the account's session later reads it")
	}
	return cmp.Or(api.CheckPerson("person", req.Person, "who decides"), api.CheckNote(req.Note))
}

// hasDirectory tells whether this host has a directory of the profile that may be opened.
func (t *Service) hasDirectory(profileID string) bool {
	_, err := t.host.Root.Path(profileID)
	return err == nil && t.host.Root.MayOpen(profileID) == nil
}

// loss says in words what is left behind.
func (t *Service) loss(r lease.Record, req api.ProfileRehome, m lease.Move) string {
	last := "it was never used"
	if r.SessionID != "" {
		last = fmt.Sprintf("it was used last under token %d by worker %s for task %s", r.Token, r.OwnerWorkerID, r.TaskID)
		if r.LastKnownURL != "" {
			last += ", which was at " + r.LastKnownURL
		}
	}
	now := "The new directory is empty: its sites see another browser, which is signed in nowhere"
	switch {
	case req.Left:
		now = "The new directory is a copy of what the profile left on this host before: everything since is missing in it"
	case req.Snapshot != "":
		now = "The new directory is of " + snapshotWords(r, m)
	case req.From != "":
		now = "The new directory is a copy of " + req.From + ", as old as that is"
	}
	return fmt.Sprintf("What is only in the directory of launcher %s is not taken along, and that one is never opened again (%s). %s", r.Home, last, now)
}

// snapshotWords says how old a snapshot is, and what came after it.
func snapshotWords(r lease.Record, m lease.Move) string {
	switch {
	case m.SnapshotID == r.SnapshotID && r.HasSnapshot():
		return fmt.Sprintf("snapshot %s, which was made after everything that was done under token %d", m.SnapshotID, r.Token)
	case m.SnapshotToken == r.Token:
		return fmt.Sprintf("snapshot %s of token %d; the account was checked since, and what sites answered then is not in it: they may have replaced its login", m.SnapshotID, r.Token)
	}
	return fmt.Sprintf("snapshot %s of token %d; what was done since, up to token %d, is not in it: the journal and the pictures of that are in the evidence (leasehold show %s, leasehold evidence %s)", m.SnapshotID, m.SnapshotToken, r.Token, r.ProfileID, r.ProfileID)
}

// directoryOf says how the directory that the person names is made.
func (t *Service) directoryOf(ctx context.Context, r lease.Record, req api.ProfileRehome) (q lease.MoveRequest, _ profiledir.Fill, err error) {
	if req.Empty {
		return t.newMove(lease.DirectoryEmpty), profiledir.Empty, nil
	}
	if req.Snapshot != "" {
		return t.ofSnapshot(ctx, r, req.Snapshot)
	}
	from, left := "", req.Left
	if left {
		if from, err = t.host.Root.Path(r.ProfileID); err != nil {
			return q, nil, api.Invalid("left", "this host has no directory of profile %s: %v", r.ProfileID, err)
		}
		switch _, departed, err := t.host.Root.Departed(r.ProfileID); {
		case err != nil:
			return q, nil, api.Invalid("left", "it cannot be known whether profile %s left a directory on this host: %v", r.ProfileID, err)
		case !departed:
			return q, nil, api.Invalid("left", "profile %s left no directory on this host", r.ProfileID)
		}
	} else if from, err = t.source(ctx, req.From); err != nil {
		return q, nil, err
	}
	size, err := profiledir.Measure(from)
	if err != nil {
		return q, nil, api.Invalid("from", "%v", err)
	}
	if err := t.host.BrowserFits(ctx, from); err != nil {
		return q, nil, err
	}
	if p := t.roomFor(from, size); p != nil {
		return q, nil, p
	}
	if left { // the lock of the profile covers it
		return t.newMove(lease.DirectoryCopied), func(ctx context.Context, dir string) (map[string][]byte, error) {
			if err := profiledir.Copy(ctx, from, dir); err != nil {
				return nil, err
			}
			return t.cookiesLeft(r.ProfileID)
		}, nil
	}
	cookies, _, err := t.cookiesBeside(from)
	if err != nil {
		return q, nil, err
	}
	return t.newMove(lease.DirectoryCopied), func(ctx context.Context, dir string) (map[string][]byte, error) {
		source, err := t.lockSource(ctx, from, r.ProfileID)
		if err != nil {
			return nil, err
		}
		if u, used := profiledir.FindUser(from); used != nil || u != nil {
			err = api.Refuse(api.CodeConflict, "%s is in use by %v: close it first, a copy of what is being written would be damaged (%v)", from, u, used)
		} else {
			err = copied(profiledir.CopyUnused(ctx, from, dir))
		}
		return cookies, errors.Join(err, source.Release())
	}, nil
}

// cookiesLeft are the cookies that the jar has for the directory that the profile left here. Those that
// this launcher has not written are set aside, as they are when a profile is opened.
func (t *Service) cookiesLeft(profile string) (map[string][]byte, error) {
	cookies, err := t.host.Jar.Export(profile)
	if errors.Is(err, signed.ErrNotAuthentic) {
		t.host.Log.Warn().Err(err).Str("profile", profile).Msg("session cookies are set aside")
		if err = t.host.Jar.SetAside(profile); err == nil {
			cookies, err = t.host.Jar.Export(profile)
		}
	}
	return cookies, err
}

// copied refuses a copy of a directory that has changed meanwhile.
func copied(err error) error {
	if changed, ok := errors.AsType[*profiledir.ChangedError](err); ok {
		return api.Refuse(api.CodeConflict, "%v", changed)
	}
	return err
}

// ofSnapshot makes the directory of a snapshot of the profile.
func (t *Service) ofSnapshot(ctx context.Context, r lease.Record, id string) (q lease.MoveRequest, _ profiledir.Fill, err error) {
	store, err := t.snapshotStore()
	if err != nil {
		return q, nil, err
	}
	q = t.newMove(lease.DirectorySnapshot)
	list, err := store.List(ctx, r.ProfileID)
	if err != nil {
		return q, nil, SnapshotProblem(err)
	}
	wanted, err := named(list, r, id)
	if err != nil {
		return q, nil, err
	}
	q.Move.SnapshotID, q.Move.SnapshotToken = wanted.ID, wanted.Token
	return q, t.fetched(wanted), nil
}

// fetched is the directory of a snapshot, as the profile store listed it.
func (t *Service) fetched(wanted api.Snapshot) profiledir.Fill {
	return func(ctx context.Context, dir string) (map[string][]byte, error) {
		got, err := t.fetch(ctx, wanted.ProfileID, wanted.ID, dir)
		if err == nil && got.Token != wanted.Token {
			err = fmt.Errorf("snapshot %s is of token %d, and the profile store lists it with %d", wanted.ID, got.Token, wanted.Token)
		}
		return got.Extra, SnapshotProblem(err)
	}
}

// fetch downloads a snapshot to a path where nothing is yet.
func (t *Service) fetch(ctx context.Context, profile, id, dir string) (snapshots.Fetched, error) {
	ours, err := t.o.Chrome(ctx)
	if err != nil {
		return snapshots.Fetched{}, err
	}
	return t.host.Snapshots.Fetch(ctx, profile, id, dir, snapshots.FetchOptions{Chrome: ours, KeepFree: t.o.MinFreeDisk})
}

// named returns the snapshot of that id from the list of a profile's snapshots, newest first. A
// list without the snapshot that the record names is outdated or incomplete: then nobody knows
// which one is the newest, and a person has to name one by its id. One that was made while the account
// was signed out is not the newest if there is one from before.
func named(list []api.Snapshot, r lease.Record, id string) (api.Snapshot, error) {
	at := func(id string) int { return slices.IndexFunc(list, func(s api.Snapshot) bool { return s.ID == id }) }
	switch i := at(id); {
	case id == api.NewestSnapshot && r.SnapshotID != "" && at(r.SnapshotID) < 0:
		return api.Snapshot{}, api.Refuse(api.CodeSnapshotDamaged, "the newest snapshot of profile %s is %s of token %d, and the profile store does not list it: it shows an old list, or lost it; an older one has to be named by its id (leasehold profiles snapshots %s)",
			r.ProfileID, r.SnapshotID, r.SnapshotToken, r.ProfileID)
	case id == api.NewestSnapshot && r.UsualSnapshot() != r.SnapshotID:
		return named(list, r, r.UsualSnapshot())
	case id == api.NewestSnapshot && len(list) > 0:
		return list[0], nil
	case id == api.NewestSnapshot:
		return api.Snapshot{}, api.Refuse(api.CodeNotFound, "profile %s has no snapshot", r.ProfileID)
	case i < 0:
		return api.Snapshot{}, api.Refuse(api.CodeNotFound, "profile %s has no snapshot %s: leasehold profiles snapshots %s", r.ProfileID, id, r.ProfileID)
	default:
		return list[i], nil
	}
}

// source is the directory to copy, as for an import.
func (t *Service) source(ctx context.Context, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", api.Invalid("from", "%q: want the absolute path of a Chrome user-data-dir on this host", dir)
	}
	from, err := t.importable(principal.Of(ctx), dir)
	if err != nil {
		return "", err
	}
	return from, t.checkSource(dir, from)
}

// checkSource refuses a directory that somebody else could have prepared. from is dir with its
// links resolved.
func (t *Service) checkSource(dir, from string) error {
	check := profiledir.CheckMine
	if _, archived := t.host.Root.IsArchive(from); archived {
		check = t.host.Root.CheckOwner
	}
	for _, path := range []string{filepath.Clean(dir), from} { // the first one may be a link
		if err := check(path); err != nil {
			return api.Invalid("from", "%v", err)
		}
	}
	return nil
}
