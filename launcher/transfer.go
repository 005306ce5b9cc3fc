package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// checkDir refuses a profile directory that is neither this launcher's own nor a browser
// user's.
func (g *grants) checkDir(profile, path string) error {
	if err := g.o.Root.CheckOwner(path); err != nil {
		return api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", profile, err)
	}
	return nil
}

// ImportProfile makes a profile of a copy of a Chrome user-data-dir of this host.
func (ps *profiles) ImportProfile(ctx context.Context, profileID string, req api.ProfileImport) (lease.Record, error) {
	if err := lease.CheckProfileID(profileID); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	from, err := ps.source(ctx, req.From)
	if err != nil {
		return lease.Record{}, err
	}
	return ps.copyProfile(ctx, profileID, from, "from", api.ProfileSettings{AccountID: req.AccountID, ProxyID: req.ProxyID}, nil)
}

// importable returns the real path of a directory that a profile may be made of: one below
// an import root, or one that was archived here and that the principal manages.
func (ps *profiles) importable(by principal.Principal, path string) (string, error) {
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		// Whether a path exists is nobody's business who may not import it.
		from = filepath.Clean(path)
	}
	if of, archived := ps.o.Root.IsArchive(from); archived {
		if !by.May(principal.Manage, of) {
			return "", api.Refuse(api.CodeForbidden, "%s", by.Refusal(principal.Manage, of))
		}
		return from, nil
	}
	if len(ps.o.ImportRoots) == 0 {
		return "", api.Refuse(api.CodeForbidden, "nothing is imported here: the sidecar has to be started with --import-root DIR, and the directory to import has to be below it")
	}
	for _, kept := range []string{ps.o.DataDir, ps.o.Root.Dir()} {
		if below(realPath(kept), from) || below(from, realPath(kept)) {
			return "", api.Refuse(api.CodeForbidden, "%s is the sidecar's own: want a directory that is not", path)
		}
	}
	if !slices.ContainsFunc(ps.o.ImportRoots, func(root string) bool { return below(realPath(root), from) }) {
		return "", api.Refuse(api.CodeForbidden, "%s is below none of --import-root %s", path, strings.Join(ps.o.ImportRoots, ", "))
	}
	return from, err
}

// realPath is a path without links; the path itself where there is nothing at it.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// below tells whether a path is dir, or in it. Both are without links.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// CloneProfile makes another profile of a copy of one that nobody uses.
func (ps *profiles) CloneProfile(ctx context.Context, profileID string, req api.ProfileClone) (lease.Record, error) {
	if err := lease.CheckProfileID(req.To); err != nil {
		return lease.Record{}, api.Invalid("to", "%v", err)
	}
	r, done, err := ps.borrow(ctx, profileID)
	if err != nil {
		return lease.Record{}, err
	}
	defer done()
	path, err := ps.o.Root.Path(profileID)
	if err != nil {
		return lease.Record{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	set := api.ProfileSettings{
		AccountID: &r.AccountID, ProxyID: &r.ProxyID, ExpectedDomains: &r.ExpectedDomains, SensitiveURLs: &r.SensitiveURLs,
		SensitiveWords: &r.SensitiveWords, HarmlessRequests: &r.HarmlessRequests, BrowserMemory: &r.BrowserMemory,
		ReadOnly: &r.ReadOnly, Mobility: &r.Mobility, FenceHeaderOrigins: &r.FenceHeaderOrigins, SessionCheck: r.SessionCheck,
	}
	return ps.copyProfile(ctx, req.To, path, "profile_id", set, &profileID)
}

// RemoveClone deletes a profile that was made by cloning another and that nobody uses:
// a person asked for it. Its record stays, so that its tokens only grow, and so does
// its evidence.
func (ps *profiles) RemoveClone(ctx context.Context, profileID string, req api.ProfileRemove) (api.Removed, error) {
	r, done, err := ps.borrow(ctx, profileID)
	if err != nil {
		return api.Removed{}, err
	}
	defer done()
	if req.Token != r.Token {
		return api.Removed{}, ps.announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "remove-clone")
	}
	lock, err := ps.lockUnused(profileID)
	if err != nil {
		return api.Removed{}, err
	}
	of, err := lock.RemoveClone()
	if err == nil {
		err = ps.jar.Drop(profileID)
	}
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, profiledir.ErrNoClone) {
		return api.Removed{}, api.Refuse(api.CodeConflict, "profile %s was not made by cloning another, and only such profiles are removed: archive it", profileID).With("profile_id", profileID)
	}
	if err != nil {
		return api.Removed{}, err
	}
	ps.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(r.Token)).Str("clone_of", of).Str("principal", principal.Of(ctx).Name).Msg("clone removed")
	return api.Removed{ProfileID: profileID, CloneOf: of, At: time.Now().UTC()}, nil
}

// ArchiveProfile puts a profile that nobody uses aside.
func (ps *profiles) ArchiveProfile(ctx context.Context, profileID string, req api.ProfileArchive) (api.Archived, error) {
	r, done, err := ps.borrow(ctx, profileID)
	if err != nil {
		return api.Archived{}, err
	}
	defer done()
	if req.Token != 0 && req.Token != r.Token {
		return api.Archived{}, ps.announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "archive")
	}
	lock, err := ps.lockUnused(profileID)
	if err != nil {
		return api.Archived{}, err
	}
	at, err := lock.Archive(time.Now())
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, fs.ErrNotExist) {
		return api.Archived{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err != nil {
		return api.Archived{}, err
	}
	ps.o.Log.Info().Str("profile", profileID).Str("path", at).Str("principal", principal.Of(ctx).Name).Msg("profile archived")
	return api.Archived{ProfileID: profileID, Path: at, At: time.Now().UTC()}, nil
}

// borrow occupies a profile that nobody uses, until done is called, and returns its record.
// Nobody is granted the profile meanwhile, since its home is here.
func (ps *profiles) borrow(ctx context.Context, profileID string) (_ lease.Record, done func(), _ error) {
	return ps.borrowIn(ctx, profileID, lease.Available)
}

// borrowIn is borrow for a profile in one of the states, in none of which anybody uses it.
func (ps *profiles) borrowIn(ctx context.Context, profileID string, states ...lease.State) (_ lease.Record, done func(), _ error) {
	r, err := ps.current(ctx, profileID)
	if err != nil {
		return r, nil, err
	}
	free := func(r lease.Record) error {
		switch {
		case r.Home != "" && r.Home != ps.o.ID:
			return ps.patrol.Home(r)
		case !slices.Contains(states, r.State):
			return api.Refuse(api.CodeConflict, "profile %s is %s: want one that nobody uses", profileID, r.State).With("state", r.State).
				With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		}
		return nil
	}
	if err := free(r); err != nil {
		return r, nil, err
	}
	slot := ps.slots.OccupyCold(profileID)
	if slot == nil {
		return r, nil, ps.grants.busyHere(r, api.Manifest{ProfileID: profileID})
	}
	done = slot.Vacate
	// It may have been granted, and be over again, meanwhile.
	if r, err = ps.stored(ctx, profileID); err == nil {
		err = free(r)
	}
	if err == nil {
		err = ps.alone(profileID)
	}
	if err != nil {
		done()
		return r, nil, err
	}
	return r, done, nil
}

// alone refuses to do anything to a profile whose directory another host could have open: no
// more is known of that than at a grant.
func (ps *profiles) alone(profileID string) error {
	if _, err := ps.presence.Current(); err != nil {
		return err
	}
	if p := ps.presence.HomeReady(); p != nil {
		return p
	}
	if err := ps.unusable(profileID); err != nil {
		return err
	}
	path, err := ps.o.Root.Path(profileID)
	if err != nil {
		return nil //nolint:nilerr // there is no directory
	}
	return ps.grants.stillReady(path)
}

// lockSource locks a directory that is to be copied, and refuses a profile that is not
// free, of whichever launcher it is: what somebody else has, or a person has to judge, is
// nothing to copy.
func (ps *profiles) lockSource(ctx context.Context, from string) (*profiledir.Source, error) {
	source, err := profiledir.LockSource(from)
	if errors.Is(err, profiledir.ErrLocked) {
		return nil, api.Refuse(api.CodeConflict, "%s is a profile that a launcher has open: %v", from, err)
	}
	if err != nil {
		return nil, err
	}
	profileID, home := source.Kept.ProfileID, source.Kept.Home
	if of, archived := ps.o.Root.IsArchive(from); archived {
		profileID, home = of, ps.o.ID
	}
	state := source.Kept.State
	if profileID != "" {
		// The store knows of what came after the home kept its record, a review for example.
		if e, err := ps.o.Store.Get(ctx, profileID); err == nil && e.Record.Home == home {
			state = e.Record.State
		} else if err != nil && !errors.Is(err, lease.ErrNotFound) {
			return nil, errors.Join(problem(err), source.Release())
		}
	}
	if state != "" && state != lease.Available {
		refused := api.Refuse(api.CodeConflict, "%s is the directory of profile %s, which is %s: want one that is available", from, profileID, state).With("state", state)
		return nil, errors.Join(refused, source.Release())
	}
	return source, nil
}

// lockUnused takes the lock of a profile, which no browser may use.
func (ps *profiles) lockUnused(profileID string) (*profiledir.Lock, error) {
	lock, err := ps.o.Root.Lock(profileID)
	if err != nil {
		return nil, ps.grants.lockProblem(err, lease.Record{ProfileID: profileID}, api.Manifest{}, filepath.Join(ps.o.Root.Dir(), profileID))
	}
	if p := ps.inUse(profileID, filepath.Join(ps.o.Root.Dir(), profileID)); p != nil {
		return nil, errors.Join(p, lock.Unlock())
	}
	return lock, nil
}

// inUse names a browser that has the directory open without a lease.
func (ps *profiles) inUse(profileID, path string) *api.Problem {
	u, err := profiledir.FindUser(path)
	if err != nil {
		return api.Refuse(api.CodeConflict, "%v", err).With("profile_id", profileID)
	}
	if u == nil {
		return nil
	}
	return api.Refuse(api.CodeConflict, "profile %s is in use by %s, without a lease: close it", profileID, u).
		With("profile_id", profileID).With("pid", u.PID).With("since", u.Since)
}

// copyProfile makes a new profile of a directory. field is the member of the request that
// names the directory; cloneOf names the profile whose directory it is, for a clone. The
// profile's record is stored before its directory appears: nobody can have a profile
// that is not as it was asked for, whenever this ends.
func (ps *profiles) copyProfile(ctx context.Context, profileID, from, field string, set api.ProfileSettings, cloneOf *string) (_ lease.Record, err error) {
	if err := ps.grants.checkProxySetting(lease.Record{ProfileID: profileID, State: lease.Available}, set.ProxyID); err != nil {
		return lease.Record{}, err
	}
	source, err := ps.lockSource(ctx, from)
	if err != nil {
		return lease.Record{}, err
	}
	defer func() { err = errors.Join(err, source.Release()) }()
	if _, unknown := ps.o.Store.Get(ctx, profileID); errors.Is(unknown, lease.ErrNotFound) { // before all is copied
		if _, err := ps.mayMake(ctx, profileID); err != nil {
			return lease.Record{}, err
		}
	}
	if u, err := profiledir.FindUser(from); err != nil || u != nil {
		if err == nil {
			err = fmt.Errorf("%s is in use by %s: close it first, a copy of what is being written would be damaged", from, u)
		}
		return lease.Record{}, api.Refuse(api.CodeConflict, "%v", err)
	}
	size, err := profiledir.Measure(from)
	if err != nil {
		return lease.Record{}, api.Invalid(field, "%v", err)
	}
	if free, err := durable.FreeSpace(ps.o.Root.Dir()); err == nil && free < size+ps.o.MinFreeDisk {
		return lease.Record{}, api.Refuse(api.CodeHostFull, "a copy of %s takes %s, and %s has %s left (--min-free-disk %s): make room", from,
			humanize.IBytes(size), ps.o.Root.Dir(), humanize.IBytes(free), humanize.IBytes(ps.o.MinFreeDisk)).
			With("reason", "disk").With("disk_free_bytes", free).With("disk_min_bytes", ps.o.MinFreeDisk+size)
	}
	slot := ps.slots.OccupyCold(profileID)
	if slot == nil {
		return lease.Record{}, ps.grants.busyHere(lease.Record{ProfileID: profileID}, api.Manifest{ProfileID: profileID})
	}
	defer slot.Vacate()
	lock, err := ps.lockUnused(profileID)
	if err != nil {
		return lease.Record{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	var r lease.Record
	_, err = lock.Import(ctx, from, func(dir string) error {
		if cloneOf != nil {
			if err := profiledir.MarkClone(dir, *cloneOf); err != nil {
				return err
			}
		}
		var err error
		if r, err = ps.putRecord(ctx, profileID, set); err != nil {
			return err
		}
		// What is kept of a directory that was there before belongs to that one.
		if of, archived := ps.o.Root.IsArchive(from); !archived || of != profileID {
			err = ps.jar.Drop(profileID)
		}
		if err == nil && cloneOf != nil {
			err = ps.jar.Copy(*cloneOf, profileID)
		}
		return err
	})
	if errors.Is(err, profiledir.ErrExists) {
		return lease.Record{}, api.Invalid("profile_id", "%v: a profile is not replaced", err)
	}
	if err != nil {
		return lease.Record{}, err
	}
	r = ps.shown(r).Public() // with its directory, now
	ps.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(r.Token)).Str("path", from).Str("size", humanize.IBytes(size)).Str("principal", principal.Of(ctx).Name).Msg("profile copied")
	return r, nil
}
