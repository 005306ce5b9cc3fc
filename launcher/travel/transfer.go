package travel

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
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// ImportProfile makes a profile of a copy of a Chrome user-data-dir of this host.
func (t *Service) ImportProfile(ctx context.Context, profileID string, req api.ProfileImport) (api.Profile, error) {
	if err := lease.CheckProfileID(profileID); err != nil {
		return api.Profile{}, api.Invalid("profile_id", "%v", err)
	}
	from, err := t.source(ctx, req.From)
	if err != nil {
		return api.Profile{}, err
	}
	return t.copyProfile(ctx, profileID, from, "from", api.ProfileSettings{AccountID: req.AccountID, ProxyID: req.ProxyID}, "")
}

// importable returns the real path of a directory from which a profile may be made: one below
// an import root, or one that was archived here and that the principal manages.
func (t *Service) importable(by principal.Principal, path string) (string, error) {
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		// A caller who may not import a path is not told whether it exists.
		from = filepath.Clean(path)
	}
	if of, archived := t.host.Root.IsArchive(from); archived {
		if !by.May(principal.Manage, of) {
			return "", api.Refuse(api.CodeForbidden, "%s", by.Refusal(principal.Manage, of))
		}
		return from, nil
	}
	if len(t.o.ImportRoots) == 0 {
		return "", api.Refuse(api.CodeForbidden, "nothing is imported here: the sidecar has to be started with --import-root DIR, and the directory to import has to be below it")
	}
	for _, kept := range []string{t.host.DataDir, t.host.Root.Dir()} {
		if below(realPath(kept), from) || below(from, realPath(kept)) {
			return "", api.Refuse(api.CodeForbidden, "%s is the sidecar's own: want a directory that is not", path)
		}
	}
	if !slices.ContainsFunc(t.o.ImportRoots, func(root string) bool { return below(realPath(root), from) }) {
		return "", api.Refuse(api.CodeForbidden, "%s is below none of --import-root %s", path, strings.Join(t.o.ImportRoots, ", "))
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
func (t *Service) ArchiveProfile(ctx context.Context, profileID string, req api.ProfileArchive) (api.Archived, error) {
	r, done, err := t.profiles.Borrow(ctx, profileID)
	if err != nil {
		return api.Archived{}, err
	}
	defer done()
	if req.Token != 0 && req.Token != r.Token {
		return api.Archived{}, t.host.Announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "archive")
	}
	lock, err := t.host.LockUnused(r)
	if err != nil {
		return api.Archived{}, err
	}
	at := ""
	err = t.putAside(ctx, lock, func() error {
		cookies, err := t.host.Jar.Export(profileID)
		if err == nil {
			at, err = lock.Archive(time.Now(), cookies)
		}
		return err
	})
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, fs.ErrNotExist) {
		return api.Archived{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err != nil {
		return api.Archived{}, err
	}
	t.host.Log.Info().Str("profile", profileID).Str("path", at).Str("principal", principal.Of(ctx).Name).Msg("profile archived")
	return api.Archived{ProfileID: profileID, Path: at, At: time.Now().UTC()}, nil
}

// putAside archives or removes the directory of a profile, whose record names no snapshot from before that
// on: it may be interrupted. A snapshot that came to be named meanwhile is forgotten after it.
func (t *Service) putAside(ctx context.Context, lock *profiledir.Lock, do func() error) error {
	err := t.forgetSnapshot(ctx, lock)
	if err == nil {
		err = do()
	}
	if err == nil {
		err = t.forgetSnapshot(ctx, lock)
	}
	return err
}

// forgetSnapshot makes the record of a profile, whose directory is archived or removed, name
// no snapshot. Otherwise another launcher would take the profile over from it. It writes the record also
// where that names none: a write that names one may be under way, and cannot be stored after this.
func (t *Service) forgetSnapshot(ctx context.Context, lock *profiledir.Lock) error {
	named := false
	e, err := lease.ChangeExisting(ctx, t.host.Store, lock.Profile(), func(e lease.Entry) (lease.Record, error) {
		named = named || e.Record.SnapshotID != ""
		return e.Record.WithoutSnapshot(), nil
	})
	if err == nil && named {
		err = lock.RaiseFloor(e.Record)
	}
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("the record of profile %s may name a snapshot, from which another launcher may take it: do it again: %w", lock.Profile(), host.Problem(err))
	}
	return nil
}

// lockSource locks a directory that is to be copied. It refuses the directory of a profile that
// is not free, whichever launcher it belongs to: one that is in use or in review must not be
// copied. Only a directory of the profile to, about which a person has decided, may be in any
// state.
func (t *Service) lockSource(ctx context.Context, from, to string) (*profiledir.Source, error) {
	source, err := profiledir.LockSource(from)
	if errors.Is(err, profiledir.ErrLocked) {
		return nil, api.Refuse(api.CodeConflict, "%s is a profile that a launcher has open: %v", from, err)
	}
	if err != nil {
		return nil, err
	}
	profileID, home := source.Kept.ProfileID, source.Kept.Home
	if of, archived := t.host.Root.IsArchive(from); archived {
		profileID, home = of, t.host.ID
	}
	if profileID != "" && profileID == to {
		return source, nil
	}
	state := source.Kept.State
	if profileID != "" {
		// The store knows what came after the home kept its copy of the record, for example a
		// review.
		if e, err := t.host.Store.Get(ctx, profileID); err == nil && e.Record.Home == home {
			state = e.Record.State
		} else if err != nil && !errors.Is(err, lease.ErrNotFound) {
			return nil, errors.Join(host.Problem(err), source.Release())
		}
	}
	if state != "" && state != lease.Available {
		refused := api.Refuse(api.CodeConflict, "%s is the directory of profile %s, which is %s: want one that is available", from, profileID, state).With("state", state)
		return nil, errors.Join(refused, source.Release())
	}
	return source, nil
}

// copyProfile makes a new profile from a directory. field is the field of the request that
// names the directory. For a clone, cloneOf names the profile to which the directory belongs.
func (t *Service) copyProfile(ctx context.Context, profileID, from, field string, set api.ProfileSettings, cloneOf string) (_ api.Profile, err error) {
	if err := t.checkNew(ctx, profileID, set); err != nil {
		return api.Profile{}, err
	}
	source, err := t.lockSource(ctx, from, "")
	if err != nil {
		return api.Profile{}, err
	}
	defer func() { err = errors.Join(err, source.Release()) }()
	if u, err := profiledir.FindUser(from); err != nil || u != nil {
		if err == nil {
			err = fmt.Errorf("%s is in use by %s: close it first, a copy of what is being written would be damaged", from, u)
		}
		return api.Profile{}, api.Refuse(api.CodeConflict, "%v", err)
	}
	size, err := profiledir.Measure(from)
	if err != nil {
		return api.Profile{}, api.Invalid(field, "%v", err)
	}
	if err := t.host.BrowserFits(ctx, from); err != nil {
		return api.Profile{}, err
	}
	folder, err := profiledir.Folder(from)
	if err != nil {
		return api.Profile{}, api.Invalid(field, "%s: %v", from, err)
	}
	if p := t.roomFor(from, size); p != nil {
		return api.Profile{}, p
	}
	cookies, beside, err := t.cookiesBeside(from)
	if err != nil {
		return api.Profile{}, err
	}
	was, archived := t.host.Root.IsArchive(from)
	r, err := t.makeProfile(ctx, profileID, origin{
		set: set, cloneOf: cloneOf, sameCookies: archived && was == profileID && !beside,
		fill: func(ctx context.Context, dir string) (map[string][]byte, error) {
			err := copied(profiledir.CopyUnused(ctx, from, dir))
			if err != nil {
				err = fmt.Errorf("profile %s: copying %s: %w", profileID, from, err)
			}
			if err != nil || cloneOf == "" {
				return cookies, err
			}
			return t.host.Jar.Export(cloneOf)
		},
	})
	if err != nil {
		return api.Profile{}, err
	}
	t.host.Log.Info().Str("profile", profileID).Uint64("token", uint64(r.Token)).Str("path", from).Str("chrome_profile", folder).Str("size", humanize.IBytes(size)).Str("principal", principal.Of(ctx).Name).Msg("profile copied")
	return r, nil
}

// cookiesBeside are the session cookies that belong to a directory in the archive; none if it is elsewhere.
// kept is false if none were kept beside it.
func (t *Service) cookiesBeside(from string) (cookies map[string][]byte, kept bool, err error) {
	if _, archived := t.host.Root.IsArchive(from); !archived {
		return nil, false, nil
	}
	cookies, kept, err = t.host.Root.Beside(from)
	if errors.Is(err, signed.ErrNotAuthentic) {
		err = api.Invalid("from", "%v: move that file away if the directory may come without the session cookies that it had", err)
	}
	return cookies, kept, err
}

// roomFor refuses a copy of a directory for which there is no room on this host's disk.
func (t *Service) roomFor(from string, size uint64) *api.Problem {
	free, err := durable.FreeSpace(t.host.Root.Dir())
	if err != nil || free.Bytes >= size+t.o.MinFreeDisk {
		return nil
	}
	return api.Refuse(api.CodeHostFull, "a copy of %s takes %s, and %s has %s left (--min-free-disk %s): make room", from,
		humanize.IBytes(size), t.host.Root.Dir(), humanize.IBytes(free.Bytes), humanize.IBytes(t.o.MinFreeDisk)).
		With("reason", "disk").With("disk_free_bytes", free.Bytes).With("disk_min_bytes", t.o.MinFreeDisk+size)
}

// checkNew refuses a profile that cannot be made here, before anything is copied.
func (t *Service) checkNew(ctx context.Context, profileID string, set api.ProfileSettings) error {
	if err := t.profiles.CheckProxy(lease.Record{ProfileID: profileID, State: lease.Available}, set.ProxyID); err != nil {
		return err
	}
	e, err := t.host.Store.Get(ctx, profileID)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		_, err = t.host.MayMake(ctx, profileID)
	case err != nil:
		err = host.Problem(err)
	case e.Record.Home != "" && e.Record.Home != t.host.ID:
		err = t.host.Patrol.Home(e.Record)
	default:
		err = host.Resumes(e.Record)
	}
	return err
}

// origin says how a new profile is made.
type origin struct {
	set api.ProfileSettings
	// cloneOf is the profile of which it is a clone; empty: it is no clone.
	cloneOf string
	fill    profiledir.Fill // makes the directory, and returns the session cookies that belong to it
	// sameCookies says that nobody knows which session cookies belong to the directory, and that the jar
	// keeps those that it has: a version that kept none beside it archived it.
	sameCookies bool
}

// makeProfile makes a new profile. Its record is stored before its directory appears: even if
// this is interrupted, nobody can get a profile that is not as it was asked for.
func (t *Service) makeProfile(ctx context.Context, profileID string, of origin) (_ api.Profile, err error) {
	slot := t.host.Slots.OccupyCold(profileID)
	if slot == nil {
		return api.Profile{}, t.host.BusyHere(lease.Record{ProfileID: profileID}, api.Manifest{ProfileID: profileID})
	}
	defer slot.Vacate()
	lock, err := t.host.LockUnused(lease.Record{ProfileID: profileID})
	if err != nil {
		return api.Profile{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := t.host.Unusable(profileID); err != nil {
		return api.Profile{}, err
	}
	if of.cloneOf != "" { // it is the directory of another account, which takes no place that is only empty for a while
		if _, err := t.host.Place(profileID); err != nil && !errors.Is(err, profiledir.ErrArchived) {
			return api.Profile{}, err
		}
	}
	var r lease.Record
	_, err = lock.Make(ctx, of.fill, func(dir string, extras map[string][]byte) error {
		if of.cloneOf != "" {
			if err := profiledir.MarkClone(dir, of.cloneOf); err != nil {
				return err
			}
		}
		if err := t.catchUp(ctx, lock); err != nil {
			return err
		}
		var err error
		if r, err = t.profiles.PutRecord(ctx, profileID, of.set, true); err != nil {
			return err
		}
		if err := t.followToken(ctx, lock, r); err != nil {
			return err
		}
		if of.sameCookies {
			t.host.Log.Warn().Str("profile", profileID).Msg("the directory was archived without its session cookies: the profile has those that were kept of it last")
			return nil
		}
		return t.host.Jar.Import(profileID, extras)
	})
	if errors.Is(err, profiledir.ErrExists) {
		return api.Profile{}, api.Invalid("profile_id", "%v: a profile is not replaced", err)
	}
	if err != nil {
		return api.Profile{}, err
	}
	return t.host.Shown(r).Public(), nil // the directory is there now
}

// catchUp raises the floor to a token that an earlier, interrupted call of makeProfile raised:
// the floor is behind by one at most.
func (t *Service) catchUp(ctx context.Context, lock *profiledir.Lock) error {
	if err := t.profiles.HealFirst(ctx, lock.Profile()); err != nil {
		return host.Problem(err)
	}
	e, err := t.host.Store.Get(ctx, lock.Profile())
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return nil
	case err != nil:
		return host.Problem(err)
	case e.Record.State != lease.Available || e.Record.Home != t.host.ID: // makeProfile did not raise its token
		return nil
	}
	return t.followToken(ctx, lock, e.Record)
}

// followToken tells the floor of a profile, and the profile store, about a token that was
// raised without a grant. The record is kept with the floor also where there is no token yet: it
// says whose home this was, should the profile get another one.
func (t *Service) followToken(ctx context.Context, lock *profiledir.Lock, r lease.Record) error {
	floor, err := t.host.Root.Floor(r.ProfileID)
	if err != nil {
		return err
	}
	if err := lock.RaiseFloor(r); err != nil || r.Token == floor {
		return err
	}
	t.overtake(ctx, r.ProfileID, r.Token)
	return nil
}
