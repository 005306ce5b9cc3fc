package travel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// snapshotStore returns the profile store, or a refusal where there is none.
func (t *Service) snapshotStore() (*snapshots.Store, error) {
	if t.host.Snapshots == nil {
		return nil, api.Refuse(api.CodeNotFound, "this sidecar has no profile store: start it with --profile-store and --profile-key")
	}
	return t.host.Snapshots, nil
}

// SnapshotProblem turns an error of the profile store into a refusal.
func SnapshotProblem(err error) error {
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
		return host.OlderBrowser(err, newer.Ours, newer.Their)
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
func (t *Service) overtake(ctx context.Context, profile string, token lease.Token) {
	if t.host.Snapshots == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := t.host.Snapshots.Raise(ctx, profile, token); err != nil {
		t.host.Log.Warn().Err(err).Str("profile", profile).Uint64("token", uint64(token)).Msg("the profile store does not know of the profile's new token yet")
	}
}

// Snapshots lists a profile's snapshots, newest first.
func (t *Service) Snapshots(ctx context.Context, profileID string) ([]api.Snapshot, error) {
	store, err := t.snapshotStore()
	if err != nil {
		return nil, err
	}
	if _, err := t.profiles.Profile(ctx, profileID); err != nil {
		return nil, err
	}
	list, err := store.List(ctx, profileID)
	return list, SnapshotProblem(err)
}

// VerifySnapshots reads every byte of a profile's snapshots and checks it.
func (t *Service) VerifySnapshots(ctx context.Context, profileID string, req api.ProfileVerify) (api.SnapshotsChecked, error) {
	store, err := t.snapshotStore()
	if err != nil {
		return api.SnapshotsChecked{}, err
	}
	if _, err := t.profiles.Profile(ctx, profileID); err != nil {
		return api.SnapshotsChecked{}, err
	}
	found, err := store.Verify(ctx, profileID, req.SnapshotID)
	if err != nil {
		return api.SnapshotsChecked{}, SnapshotProblem(err)
	}
	if !found.Whole() {
		for _, s := range found.Snapshots {
			if len(s.Problems) > 0 {
				t.host.Log.Error().Str("profile", profileID).Str("snapshot", s.ID).Strs("problems", s.Problems).Msg("snapshot is damaged")
			}
		}
	}
	return found, nil
}

// RestoreProfile puts back a snapshot of a profile that nobody uses, because a person decided
// so. The present state goes to the archive, and the token rises.
func (t *Service) RestoreProfile(ctx context.Context, profileID string, req api.ProfileRestore) (_ api.Restored, err error) {
	store, err := t.snapshotStore()
	if err != nil {
		return api.Restored{}, err
	}
	if req.SnapshotID == "" {
		return api.Restored{}, api.Invalid("snapshot_id", "want the snapshot to bring back, or %s", api.NewestSnapshot)
	}
	if err := cmp.Or(api.CheckName("person", req.Person), api.CheckNote(req.Note)); err != nil {
		return api.Restored{}, err
	}
	r, done, err := t.profiles.BorrowIn(ctx, profileID, lease.Available, lease.ManualReview)
	if err != nil {
		return api.Restored{}, err
	}
	defer done()
	if req.Token != r.Token {
		return api.Restored{}, t.host.Announcer.Stale(ctx, profileID, r.SessionID, req.Token, r.Token, "restore")
	}
	if req.SnapshotID == api.NewestSnapshot {
		list, err := store.List(ctx, profileID)
		if err != nil {
			return api.Restored{}, SnapshotProblem(err)
		}
		newest, err := named(list, r, req.SnapshotID)
		if err != nil {
			return api.Restored{}, err
		}
		req.SnapshotID = newest.ID
	}
	lock, err := t.host.LockUnused(r)
	if err != nil {
		return api.Restored{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	cookies, err := t.host.Jar.Export(profileID)
	if err != nil {
		return api.Restored{}, err
	}
	exchanged, err := lock.Exchange(ctx, time.Now(), cookies, func(ctx context.Context, dir string) (map[string][]byte, error) {
		got, err := t.fetch(ctx, profileID, req.SnapshotID, dir)
		return got.Extra, err
	})
	if err != nil {
		return api.Restored{}, SnapshotProblem(err)
	}
	if err := t.host.Jar.Import(profileID, exchanged.Extras); err != nil {
		return api.Restored{}, t.undoRestore(profileID, exchanged, cookies, err)
	}
	by := principal.Of(ctx).Name
	entry, err := t.recordRestore(ctx, profileID, req.SnapshotID, lease.Review{Reviewer: req.Person, Principal: by, Note: req.Note, TokenSeen: req.Token})
	if errors.Is(err, errNotKnown) {
		return api.Restored{}, host.Problem(fmt.Errorf("profile %s has the snapshot, and what it had before is kept in %s: %w: it goes to a person, who restores the snapshot again or approves what is there", profileID, exchanged.Kept, err))
	}
	if err != nil {
		return api.Restored{}, t.undoRestore(profileID, exchanged, cookies, err)
	}
	if err := lock.BelieveDirectory(); err != nil {
		t.host.Log.Error().Err(err).Str("profile", profileID).Msg("the mark of the directory cannot be forgotten: a person is asked about the restore")
	}
	if err := lock.RaiseFloor(entry.Record); err != nil {
		t.host.Log.Error().Err(err).Str("profile", profileID).Msg("the floor does not have the token of the restore: the next grant raises it")
	}
	t.overtake(context.WithoutCancel(ctx), profileID, entry.Record.Token)
	t.host.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("snapshot", req.SnapshotID).Str("kept", exchanged.Kept).Str("person", req.Person).Str("principal", by).Msg("snapshot restored")
	return api.Restored{ProfileID: profileID, SnapshotID: req.SnapshotID, State: entry.Record.State, Token: entry.Record.Token, Kept: exchanged.Kept, At: time.Now().UTC()}, nil
}

var (
	// errRestored says that the record says already that it was restored.
	errRestored = errors.New("it was restored")
	errNotKnown = errors.New("it is not known whether its record says so")
)

// recordRestore writes into the record that the snapshot was restored. A store that did not answer is asked
// again, also if the caller has gone away, since it may have stored that. The error is errNotKnown if it
// may have to the end.
func (t *Service) recordRestore(ctx context.Context, profileID, snapshotID string, person lease.Review) (lease.Entry, error) {
	var sent lease.Record
	change := func(e lease.Entry) (lease.Record, error) {
		if now := e.Record; sent.Token != 0 && now.Token == sent.Token && now.Sequence == sent.Sequence && now.State == sent.State {
			return now, errRestored
		}
		next, err := e.Record.RestoreSnapshot(snapshotID, person, time.Now())
		if err == nil {
			sent = next
		}
		return next, err
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	for {
		entry, err := lease.Change(ctx, t.host.Store, profileID, change)
		switch {
		case errors.Is(err, errRestored):
			return entry, nil
		case !errors.Is(err, lease.ErrUnavailable):
			return entry, err
		}
		select {
		case <-time.After(giveUpPoll):
			ctx = again
		case <-again.Done():
			if sent.Token != 0 {
				err = fmt.Errorf("%w: %w", errNotKnown, err)
			}
			return entry, err
		}
	}
}

// undoRestore puts everything back as it was, after the record could not be changed.
func (t *Service) undoRestore(profileID string, exchanged *profiledir.Exchanged, cookies map[string][]byte, cause error) error {
	if err := errors.Join(exchanged.Undo(), t.host.Jar.Import(profileID, cookies)); err != nil {
		return errors.Join(host.Problem(cause), fmt.Errorf("profile %s: what was restored could not be taken back: %w", profileID, err))
	}
	return host.Problem(cause)
}
