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
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// checkDir refuses a profile directory that belongs to neither the launcher's own user nor a
// browser user.
func (g *grants) checkDir(profile, path string) error {
	if err := g.o.Root.CheckOwner(path); err != nil {
		return api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", profile, err)
	}
	return nil
}

// ImportProfile makes a profile of a copy of a Chrome user-data-dir of this host.
func (ds *directories) ImportProfile(ctx context.Context, profileID string, req api.ProfileImport) (lease.Record, error) {
	if err := lease.CheckProfileID(profileID); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	from, err := ds.source(ctx, req.From)
	if err != nil {
		return lease.Record{}, err
	}
	return ds.copyProfile(ctx, profileID, from, "from", api.ProfileSettings{AccountID: req.AccountID, ProxyID: req.ProxyID}, "")
}

// importable returns the real path of a directory from which a profile may be made: one below
// an import root, or one that was archived here and that the principal manages.
func (ds *directories) importable(by principal.Principal, path string) (string, error) {
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		// A caller who may not import a path is not told whether it exists.
		from = filepath.Clean(path)
	}
	if of, archived := ds.o.Root.IsArchive(from); archived {
		if !by.May(principal.Manage, of) {
			return "", api.Refuse(api.CodeForbidden, "%s", by.Refusal(principal.Manage, of))
		}
		return from, nil
	}
	if len(ds.o.ImportRoots) == 0 {
		return "", api.Refuse(api.CodeForbidden, "nothing is imported here: the sidecar has to be started with --import-root DIR, and the directory to import has to be below it")
	}
	for _, kept := range []string{ds.o.DataDir, ds.o.Root.Dir()} {
		if below(realPath(kept), from) || below(from, realPath(kept)) {
			return "", api.Refuse(api.CodeForbidden, "%s is the sidecar's own: want a directory that is not", path)
		}
	}
	if !slices.ContainsFunc(ds.o.ImportRoots, func(root string) bool { return below(realPath(root), from) }) {
		return "", api.Refuse(api.CodeForbidden, "%s is below none of --import-root %s", path, strings.Join(ds.o.ImportRoots, ", "))
	}
	return from, err
}

// realPath is a path with its links resolved; if nothing is there, the path itself.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// below tells whether path is dir, or inside it. Neither may contain links.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// ArchiveProfile archives a profile that nobody uses.
func (ds *directories) ArchiveProfile(ctx context.Context, profileID string, req api.ProfileArchive) (api.Archived, error) {
	r, done, err := ds.borrow(ctx, profileID)
	if err != nil {
		return api.Archived{}, err
	}
	defer done()
	if req.Token != 0 && req.Token != r.Token {
		return api.Archived{}, ds.announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "archive")
	}
	lock, err := ds.lockUnused(r)
	if err != nil {
		return api.Archived{}, err
	}
	at, err := lock.Archive(time.Now())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(err, ds.forgetSnapshot(ctx, lock))
	}
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, fs.ErrNotExist) {
		return api.Archived{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err != nil {
		return api.Archived{}, err
	}
	ds.o.Log.Info().Str("profile", profileID).Str("path", at).Str("principal", principal.Of(ctx).Name).Msg("profile archived")
	return api.Archived{ProfileID: profileID, Path: at, At: time.Now().UTC()}, nil
}

// forgetSnapshot makes the record of a profile, whose directory was archived or removed, name
// no snapshot. Otherwise another launcher would take the profile over from it.
func (ds *directories) forgetSnapshot(ctx context.Context, lock *profiledir.Lock) error {
	e, err := ds.o.Store.Get(ctx, lock.Profile())
	if err == nil && e.Record.SnapshotID != "" {
		e, err = lease.Change(ctx, ds.o.Store, lock.Profile(), func(e lease.Entry) (lease.Record, error) {
			return e.Record.WithoutSnapshot(), nil
		})
		if err == nil {
			err = lock.RaiseFloor(e.Record)
		}
	}
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("the directory of profile %s is put aside or removed, but its record still names a snapshot, from which another launcher may take it: do it again: %w", lock.Profile(), problem(err))
	}
	return nil
}

// borrow occupies a profile that nobody uses, until done is called, and returns its record.
// Nobody is granted the profile meanwhile, since its home is here.
func (ds *directories) borrow(ctx context.Context, profileID string) (_ lease.Record, done func(), _ error) {
	return ds.borrowIn(ctx, profileID, lease.Available)
}

// borrowIn is borrow for a profile in one of the given states, in none of which it is in use.
func (ds *directories) borrowIn(ctx context.Context, profileID string, states ...lease.State) (_ lease.Record, done func(), _ error) {
	r, slot, err := ds.occupy(ctx, profileID, ds.slots.OccupyCold, func(r lease.Record) error {
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

// occupy occupies a profile whose home is here, and of whose record free is not an error.
func (ds *directories) occupy(ctx context.Context, profileID string, how func(string) *slots.Slot, free func(lease.Record) error) (lease.Record, *slots.Slot, error) {
	usable := func(r lease.Record) error {
		if r.Home != "" && r.Home != ds.o.ID {
			return ds.patrol.Home(r)
		}
		return free(r)
	}
	r, err := ds.records.current(ctx, profileID)
	if err == nil {
		err = usable(r)
	}
	if err != nil {
		return r, nil, err
	}
	slot := how(profileID)
	if slot == nil {
		return r, nil, ds.grants.busyHere(r, api.Manifest{ProfileID: profileID})
	}
	// It may have been granted and released again meanwhile.
	if r, err = ds.records.stored(ctx, profileID); err == nil {
		err = usable(r)
	}
	if err == nil {
		err = ds.alone(profileID)
	}
	if err != nil {
		slot.Vacate()
		return r, nil, err
	}
	return r, slot, nil
}

// alone refuses a profile whose directory another host could have open, by the same checks as a
// grant.
func (ds *directories) alone(profileID string) error {
	if _, err := ds.granting(); err != nil {
		return err
	}
	if p := ds.presence.HomeReady(); p != nil {
		return p
	}
	if err := ds.unusable(profileID); err != nil {
		return err
	}
	path, err := ds.o.Root.Path(profileID)
	if err != nil {
		return nil //nolint:nilerr // there is no directory
	}
	return ds.grants.stillReady(path)
}

// lockSource locks a directory that is to be copied. It refuses the directory of a profile that
// is not free, whichever launcher it belongs to: one that is in use or in review must not be
// copied. Only a directory of the profile to, about which a person has decided, may be in any
// state.
func (ds *directories) lockSource(ctx context.Context, from, to string) (*profiledir.Source, error) {
	source, err := profiledir.LockSource(from)
	if errors.Is(err, profiledir.ErrLocked) {
		return nil, api.Refuse(api.CodeConflict, "%s is a profile that a launcher has open: %v", from, err)
	}
	if err != nil {
		return nil, err
	}
	profileID, home := source.Kept.ProfileID, source.Kept.Home
	if of, archived := ds.o.Root.IsArchive(from); archived {
		profileID, home = of, ds.o.ID
	}
	if profileID != "" && profileID == to {
		return source, nil
	}
	state := source.Kept.State
	if profileID != "" {
		// The store knows what came after the home kept its copy of the record, for example a
		// review.
		if e, err := ds.o.Store.Get(ctx, profileID); err == nil && e.Record.Home == home {
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

// lockUnused takes the lock of a profile that no browser uses.
func (ds *directories) lockUnused(r lease.Record) (*profiledir.Lock, error) {
	path := filepath.Join(ds.o.Root.Dir(), r.ProfileID)
	lock, err := ds.o.Root.Lock(r.ProfileID)
	if err != nil {
		return nil, ds.grants.lockProblem(err, lease.Record{ProfileID: r.ProfileID}, api.Manifest{}, path)
	}
	if err = ds.settleLock(lock, r); err == nil {
		err = ds.inUse(r.ProfileID, path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// inUse names a browser that has the directory open without a lease.
func (ds *directories) inUse(profileID, path string) error {
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

// copyProfile makes a new profile from a directory. field is the field of the request that
// names the directory. For a clone, cloneOf names the profile to which the directory belongs.
func (ds *directories) copyProfile(ctx context.Context, profileID, from, field string, set api.ProfileSettings, cloneOf string) (_ lease.Record, err error) {
	if err := ds.checkNew(ctx, profileID, set); err != nil {
		return lease.Record{}, err
	}
	source, err := ds.lockSource(ctx, from, "")
	if err != nil {
		return lease.Record{}, err
	}
	defer func() { err = errors.Join(err, source.Release()) }()
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
	if err := ds.browserFits(ctx, from); err != nil {
		return lease.Record{}, err
	}
	folder, err := profiledir.Folder(from)
	if err != nil {
		return lease.Record{}, api.Invalid(field, "%s: %v", from, err)
	}
	if free, err := durable.FreeSpace(ds.o.Root.Dir()); err == nil && free.Bytes < size+ds.o.MinFreeDisk {
		return lease.Record{}, api.Refuse(api.CodeHostFull, "a copy of %s takes %s, and %s has %s left (--min-free-disk %s): make room", from,
			humanize.IBytes(size), ds.o.Root.Dir(), humanize.IBytes(free.Bytes), humanize.IBytes(ds.o.MinFreeDisk)).
			With("reason", "disk").With("disk_free_bytes", free.Bytes).With("disk_min_bytes", ds.o.MinFreeDisk+size)
	}
	r, err := ds.makeProfile(ctx, profileID, origin{
		set: set, cloneOf: cloneOf,
		fill: func(dir string) error {
			if err := profiledir.Copy(ctx, from, dir); err != nil {
				return fmt.Errorf("profile %s: copying %s: %w", profileID, from, err)
			}
			return nil
		},
		cookies: func() error {
			if was, archived := ds.o.Root.IsArchive(from); archived && was == profileID {
				return nil // the session cookies are the profile's own
			}
			err := ds.jar.Drop(profileID)
			if err == nil && cloneOf != "" {
				err = ds.jar.Copy(cloneOf, profileID)
			}
			return err
		},
	})
	if err != nil {
		return lease.Record{}, err
	}
	ds.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(r.Token)).Str("path", from).Str("chrome_profile", folder).Str("size", humanize.IBytes(size)).Str("principal", principal.Of(ctx).Name).Msg("profile copied")
	return r, nil
}

// checkNew refuses a profile that cannot be made here, before anything is copied.
func (ds *directories) checkNew(ctx context.Context, profileID string, set api.ProfileSettings) error {
	if err := ds.grants.checkProxySetting(lease.Record{ProfileID: profileID, State: lease.Available}, set.ProxyID); err != nil {
		return err
	}
	e, err := ds.o.Store.Get(ctx, profileID)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		_, err = ds.mayMake(ctx, profileID)
	case err != nil:
		err = problem(err)
	case e.Record.Home != "" && e.Record.Home != ds.o.ID:
		err = ds.patrol.Home(e.Record)
	default:
		err = resumes(e.Record)
	}
	return err
}

// resumes refuses another directory for a profile whose task is to resume: the decision that it
// is safe to go on was made about the directory in which the task stopped.
func resumes(r lease.Record) error {
	if r.State != lease.ResumePending {
		return nil
	}
	return api.Refuse(api.CodeConflict, "profile %s is %s: task %s is to resume in the directory that it had; a person gives it another one: leasehold profiles rehome %s", r.ProfileID, r.State, r.TaskID, r.ProfileID).
		With("state", r.State).With("current_task_id", r.TaskID)
}

// origin says how a new profile is made.
type origin struct {
	set api.ProfileSettings
	// cloneOf is the profile of which it is a clone; empty: it is no clone.
	cloneOf string
	// fill durably makes the directory at a path where nothing is yet.
	fill func(dir string) error
	// cookies makes the jar keep the session cookies that belong to the directory, and no
	// earlier ones.
	cookies func() error
}

// makeProfile makes a new profile. Its record is stored before its directory appears: even if
// this is interrupted, nobody can get a profile that is not as it was asked for.
func (ds *directories) makeProfile(ctx context.Context, profileID string, of origin) (_ lease.Record, err error) {
	slot := ds.slots.OccupyCold(profileID)
	if slot == nil {
		return lease.Record{}, ds.grants.busyHere(lease.Record{ProfileID: profileID}, api.Manifest{ProfileID: profileID})
	}
	defer slot.Vacate()
	lock, err := ds.lockUnused(lease.Record{ProfileID: profileID})
	if err != nil {
		return lease.Record{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := ds.unusable(profileID); err != nil {
		return lease.Record{}, err
	}
	var r lease.Record
	_, err = lock.Make(of.fill, func(dir string) error {
		if of.cloneOf != "" {
			if err := profiledir.MarkClone(dir, of.cloneOf); err != nil {
				return err
			}
		}
		if err := ds.catchUp(ctx, lock); err != nil {
			return err
		}
		var err error
		if r, err = ds.records.putRecord(ctx, profileID, of.set, true); err != nil {
			return err
		}
		if err := ds.followToken(ctx, lock, r); err != nil {
			return err
		}
		return of.cookies()
	})
	if errors.Is(err, profiledir.ErrExists) {
		return lease.Record{}, api.Invalid("profile_id", "%v: a profile is not replaced", err)
	}
	if err != nil {
		return lease.Record{}, err
	}
	return ds.shown(r).Public(), nil // the directory is there now
}

// catchUp raises the floor to a token that an earlier, interrupted call of makeProfile raised:
// the floor is behind by one at most.
func (ds *directories) catchUp(ctx context.Context, lock *profiledir.Lock) error {
	if err := ds.records.healFirst(ctx, lock.Profile()); err != nil {
		return problem(err)
	}
	e, err := ds.o.Store.Get(ctx, lock.Profile())
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return nil
	case err != nil:
		return problem(err)
	case e.Record.State != lease.Available || e.Record.Home != ds.o.ID: // makeProfile did not raise its token
		return nil
	}
	return ds.followToken(ctx, lock, e.Record)
}

// followToken tells the floor of a profile, and the profile store, about a token that was
// raised without a grant.
func (ds *directories) followToken(ctx context.Context, lock *profiledir.Lock, r lease.Record) error {
	floor, err := ds.o.Root.Floor(r.ProfileID)
	if err != nil || r.Token == floor {
		return err
	}
	if err := lock.RaiseFloor(r); err != nil {
		return err
	}
	ds.overtake(ctx, r.ProfileID, r.Token)
	return nil
}
