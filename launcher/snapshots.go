package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshotter"
	"leasehold/lease"
)

// snapshotStore returns the profile store, or a refusal where there is none.
func (r *rooms) snapshotStore() (*snapshots.Store, error) {
	if r.o.Snapshots == nil {
		return nil, api.Refuse(api.CodeNotFound, "this sidecar has no profile store: start it with --profile-store and --profile-key")
	}
	return r.o.Snapshots, nil
}

// snapshotProblem turns an error of the profile store into a refusal.
func snapshotProblem(err error) error {
	var newer *snapshots.NewerChromeError
	var space *snapshots.NoSpaceError
	if p, ok := api.ProblemIn(err); ok {
		return p
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, snapshots.ErrNoSnapshot):
		return api.Refuse(api.CodeNotFound, "%v", err)
	case errors.As(err, &newer):
		return olderBrowser(err, newer.Ours, newer.Their)
	case errors.Is(err, snapshots.ErrWrongKey), errors.Is(err, snapshots.ErrFormat):
		return api.Refuse(api.CodeSnapshotUnusable, "%v", err)
	case errors.Is(err, snapshots.ErrDamaged), errors.Is(err, snapshots.ErrIncomplete):
		return api.Refuse(api.CodeSnapshotDamaged, "%v", err)
	case errors.As(err, &space), durable.Full(err):
		return api.Refuse(api.CodeHostFull, "%v", err).With("reason", "disk")
	}
	return api.Refuse(api.CodeProfileStore, "%v: the profile is as it was", err)
}

// overtake tells the profile store to refuse snapshots of the profile that were sealed under an
// earlier token and may still be on their way.
func (r *rooms) overtake(ctx context.Context, profile string, token lease.Token) {
	if r.o.Snapshots == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := r.o.Snapshots.Raise(ctx, profile, token); err != nil {
		r.o.Log.Warn().Err(err).Str("profile", profile).Uint64("token", uint64(token)).Msg("the profile store does not know of the profile's new token yet")
	}
}

// Snapshots lists a profile's snapshots, newest first.
func (rs *records) Snapshots(ctx context.Context, profileID string) ([]api.Snapshot, error) {
	store, err := rs.snapshotStore()
	if err != nil {
		return nil, err
	}
	if _, err := rs.Profile(ctx, profileID); err != nil {
		return nil, err
	}
	list, err := store.List(ctx, profileID)
	return list, snapshotProblem(err)
}

// VerifySnapshots reads every byte of a profile's snapshots and checks it.
func (rs *records) VerifySnapshots(ctx context.Context, profileID string, req api.ProfileVerify) (api.SnapshotsChecked, error) {
	store, err := rs.snapshotStore()
	if err != nil {
		return api.SnapshotsChecked{}, err
	}
	if _, err := rs.Profile(ctx, profileID); err != nil {
		return api.SnapshotsChecked{}, err
	}
	found, err := store.Verify(ctx, profileID, req.SnapshotID)
	if err != nil {
		return api.SnapshotsChecked{}, snapshotProblem(err)
	}
	if !found.Whole() {
		for _, s := range found.Snapshots {
			if len(s.Problems) > 0 {
				rs.o.Log.Error().Str("profile", profileID).Str("snapshot", s.ID).Strs("problems", s.Problems).Msg("snapshot is damaged")
			}
		}
	}
	return found, nil
}

// RestoreProfile puts back a snapshot of a profile that nobody uses, because a person decided
// so. The present state goes to the archive, and the token rises.
func (ds *directories) RestoreProfile(ctx context.Context, profileID string, req api.ProfileRestore) (_ api.Restored, err error) {
	store, err := ds.snapshotStore()
	if err != nil {
		return api.Restored{}, err
	}
	if req.SnapshotID == "" {
		return api.Restored{}, api.Invalid("snapshot_id", "want the snapshot to bring back, or %s", api.NewestSnapshot)
	}
	if err := cmp.Or(api.CheckName("person", req.Person), api.CheckNote(req.Note)); err != nil {
		return api.Restored{}, err
	}
	r, done, err := ds.borrowIn(ctx, profileID, lease.Available, lease.ManualReview)
	if err != nil {
		return api.Restored{}, err
	}
	defer done()
	if req.Token != r.Token {
		return api.Restored{}, ds.announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "restore")
	}
	if req.SnapshotID == api.NewestSnapshot {
		list, err := store.List(ctx, profileID)
		if err != nil {
			return api.Restored{}, snapshotProblem(err)
		}
		newest, err := named(list, r, req.SnapshotID)
		if err != nil {
			return api.Restored{}, err
		}
		req.SnapshotID = newest.ID
	}
	lock, err := ds.lockUnused(r)
	if err != nil {
		return api.Restored{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	var fetched snapshots.Fetched
	exchanged, err := lock.Exchange(ctx, time.Now(), func(ctx context.Context, dir string) (err error) {
		fetched, err = store.Fetch(ctx, profileID, req.SnapshotID, dir, snapshots.FetchOptions{Chrome: ds.chrome, KeepFree: ds.o.MinFreeDisk})
		return err
	})
	if err != nil {
		return api.Restored{}, snapshotProblem(err)
	}
	cookies, err := ds.jar.Export(profileID)
	if err != nil {
		return api.Restored{}, errors.Join(err, exchanged.Undo())
	}
	if err := ds.jar.Import(profileID, fetched.Extra); err != nil {
		return api.Restored{}, ds.undoRestore(profileID, exchanged, cookies, err)
	}
	by := principal.Of(ctx).Name
	entry, err := lease.Change(ctx, ds.o.Store, profileID, func(e lease.Entry) (lease.Record, error) {
		return e.Record.RestoreSnapshot(req.SnapshotID, lease.Review{Reviewer: req.Person, Principal: by, Note: req.Note, TokenSeen: req.Token}, time.Now())
	})
	if err != nil {
		return api.Restored{}, ds.undoRestore(profileID, exchanged, cookies, err)
	}
	if err := lock.RaiseFloor(entry.Record); err != nil {
		ds.o.Log.Error().Err(err).Str("profile", profileID).Msg("the floor does not have the token of the restore: the next grant raises it")
	}
	ds.overtake(ctx, profileID, entry.Record.Token)
	ds.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("snapshot", req.SnapshotID).Str("kept", exchanged.Kept).Str("person", req.Person).Str("principal", by).Msg("snapshot restored")
	return api.Restored{ProfileID: profileID, SnapshotID: req.SnapshotID, State: entry.Record.State, Token: entry.Record.Token, Kept: exchanged.Kept, At: time.Now().UTC()}, nil
}

// undoRestore puts everything back as it was, after the record could not be changed. If it is
// not known whether the record was changed, the token may have risen for nothing.
func (ds *directories) undoRestore(profileID string, exchanged *profiledir.Exchanged, cookies map[string][]byte, cause error) error {
	if err := errors.Join(exchanged.Undo(), ds.jar.Import(profileID, cookies)); err != nil {
		return errors.Join(problem(cause), fmt.Errorf("profile %s: what was restored could not be taken back: %w", profileID, err))
	}
	return problem(cause)
}

// snapshotsTimeout bounds how long a launcher that ends waits for the snapshots that are still
// to be made. The next launcher makes the rest.
const snapshotsTimeout = 20 * time.Second

// snapshotsDir is the name of the snapshotter's folder in the data directory.
const snapshotsDir = "snapshots"

// wireSnapshots makes the snapshotter, where there is a profile store.
func (l *Launcher) wireSnapshots() error {
	if l.o.Snapshots == nil {
		return nil
	}
	var err error
	l.snapshotter, err = snapshotter.New(snapshotter.Options{
		LauncherID: l.o.ID, Dir: filepath.Join(l.o.DataDir, snapshotsDir), Snapshots: l.o.Snapshots, Retention: l.o.Retention, Now: l.o.Now, KeepFree: l.o.MinFreeDisk, Leases: l.o.Store, MayAct: l.presence.MayAct,
		Known: func() []lease.Record {
			rows, _, _ := l.catalog.Rows()
			records := make([]lease.Record, len(rows))
			for i, row := range rows {
				records[i] = row.Record
			}
			return records
		},
		Slots: l.slots, Root: l.o.Root, Jar: l.jar, Chrome: l.chrome, Log: l.o.Log, Metrics: l.o.Metrics,
	})
	return err
}
