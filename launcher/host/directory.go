package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// Elsewhere refuses a profile whose record is missing, or names another home than the one this
// launcher remembers: then the store has forgotten the profile.
func (h *Host) Elsewhere(rec lease.Record) *api.Problem {
	k := h.Recoverer.Remembers(rec.ProfileID)
	switch judged := k.Judge(rec); {
	case judged == lease.Agrees, k.Home == h.ID && judged == lease.Forgets:
		return nil
	case judged == lease.Contradicts:
		return api.Refuse(api.CodeQuarantined, "profile %s is known as one of launcher %s, with token %d, and the lease store says %s, with token %d: a person decides which of them is its home", rec.ProfileID, k.Home, k.Token, rec.Home, rec.Token).
			With("state", lease.Quarantined).With("reason", lease.ReasonContested).With("lease_token", rec.Token)
	}
	p := h.Patrol.Home(k.Record())
	p.Detail += fmt.Sprintf("; the lease store has forgotten it, and this launcher has not (token %d): it is not made anew here until that launcher is back, or a person gives it another home", k.Token)
	return p
}

// MayMake refuses to make a profile that has no record here but may be known elsewhere: one
// that this launcher remembers under another home, or any profile while the store is young or may
// not be the only one. The refusal ends when that home is back, or when a person decides. number is
// the number of the store in which the record may be made: see lease.Entry.
func (h *Host) MayMake(ctx context.Context, profile string) (number uint64, _ error) {
	if p := h.Elsewhere(lease.Record{ProfileID: profile}); p != nil {
		return 0, p
	}
	if err := h.Presence.Doubt(); err != nil {
		return 0, err
	}
	return h.Presence.MakeReady(ctx)
}

// Unusable refuses a profile whose home this is, but whose directory here must not be opened.
func (h *Host) Unusable(profile string) error { return NotOpened(profile, h.Root.MayOpen(profile)) }

// NotOpened turns the reason why a profile's directory must not be opened or replaced into a refusal.
func NotOpened(profile string, err error) error {
	var departed *profiledir.DepartedError
	var arriving *profiledir.ArrivingError
	switch {
	case errors.As(err, &departed):
		return api.Refuse(api.CodeConflict, "%v; a person gives it a directory: leasehold profiles rehome %s", err, profile).With("profile_id", profile).With("reason", api.ReasonDirectoryLeft)
	case errors.As(err, &arriving):
		p := api.Refuse(api.CodeConflict, "%v: ask again in a moment", err).With("profile_id", profile).With("reason", api.ReasonArriving)
		p.RetryAfter = Soon
		return p
	}
	return err
}

// CheckDir refuses a profile directory that belongs to neither the launcher's own user nor a
// browser user.
func (h *Host) CheckDir(profile, path string) error {
	if err := h.Root.CheckOwner(path); err != nil {
		return api.Refuse(api.CodeInvalidRequest, "profile %s cannot be used: %v", profile, err)
	}
	return nil
}

// BrowserFits refuses a directory that was written by a newer Chrome than that of this host. No
// browser is started on it; what asks for one is refused before anything is changed.
func (h *Host) BrowserFits(ctx context.Context, path string) error {
	err := h.Driver.MayOpen(ctx, path)
	if older, ok := errors.AsType[*browser.OlderError](err); ok {
		return OlderBrowser(err, older.Browser, older.Profile)
	}
	return err
}

// SettleLock sets Chrome's own lock aside if its browser is gone, by proof or by the word of the
// person who approved the record. It refuses the profile if nobody can tell.
func (h *Host) SettleLock(lock *profiledir.Lock, rec lease.Record) error {
	aside, err := lock.SetAsideSingleton(h.Recoverer.ApprovedLock(rec))
	if _, ok := errors.AsType[*profiledir.ForeignLockError](err); ok {
		return api.Refuse(api.CodeConflict, "%v", err).With("profile_id", lock.Profile())
	}
	aside.Log(h.Log)
	return err
}

// LockUnused takes the lock of a profile that no browser uses.
func (h *Host) LockUnused(r lease.Record) (*profiledir.Lock, error) {
	path := filepath.Join(h.Root.Dir(), r.ProfileID)
	lock, err := h.Root.Lock(r.ProfileID)
	if err != nil {
		return nil, h.LockProblem(err, lease.Record{ProfileID: r.ProfileID}, api.Manifest{}, path)
	}
	if err = h.SettleLock(lock, r); err == nil {
		err = h.inUse(r.ProfileID, path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// inUse names a browser that has the directory open without a lease.
func (h *Host) inUse(profileID, path string) error {
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

// Place is where the profile's directory is, or would be made. It refuses a profile whose directory is missing:
// to the account's sites, an empty one would look like another browser.
func (h *Host) Place(profile string) (string, error) {
	path, err := h.Root.Place(profile)
	if errors.Is(err, profiledir.ErrMissing) {
		err = api.Refuse(api.CodeConflict, "profile %s had a directory here, and %v: bring it back, or import a copy of it; if it is gone, or was put aside by a version that did not note that, a person gives it another one: leasehold profiles rehome %s --empty, or --snapshot newest", profile, err, profile).
			With("profile_id", profile).With("reason", api.ReasonDirectoryMissing)
	}
	return path, err
}

// Create makes the profile's directory, if it is missing. Session cookies that were kept of an
// earlier directory do not belong to it, and are dropped; those of an archived one stay, since its
// profile gets none.
func (h *Host) Create(profile string) error {
	if _, err := h.Place(profile); err != nil {
		return err
	}
	if _, err := h.Root.Path(profile); errors.Is(err, profiledir.ErrNoProfile) {
		if err := h.Jar.Drop(profile); err != nil {
			return err
		}
	}
	_, err := h.Root.Create(profile)
	return err
}

// Resumes refuses another directory for a profile whose task is to resume: the decision that it
// is safe to go on was made about the directory in which the task stopped.
func Resumes(r lease.Record) error {
	if r.State != lease.ResumePending {
		return nil
	}
	return api.Refuse(api.CodeConflict, "profile %s is %s: task %s is to resume in the directory that it had; a person gives it another one: leasehold profiles rehome %s", r.ProfileID, r.State, r.TaskID, r.ProfileID).
		With("state", r.State).With("current_task_id", r.TaskID)
}
