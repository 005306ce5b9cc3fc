package host

import (
	"errors"
	"fmt"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Soon is the number of seconds after which a caller should ask again for a profile that is
// about to be free.
const Soon = 1

// HeldError refuses a profile that is in use, and says who has it.
type HeldError struct {
	*api.Problem
	Conflict session.Conflict
	Ending   bool // the session that has it is ending in order
}

func (e *HeldError) Unwrap() error { return e.Problem }

// Conflict refuses a profile that is in use according to its record.
func (h *Host) Conflict(r lease.Record, m api.Manifest) *HeldError {
	decision := "rescheduled"
	switch {
	case m.HumanReviewOnLockConflict:
		decision = "human_review"
	case m.Wait > 0:
		decision = "waiting"
	}
	r = h.Shown(r).Record
	left := min(time.Until(r.ExpiresAt), time.Duration(r.TTLSeconds*float64(time.Second))) // whoever wrote it may have another clock
	next := max(Soon, int(left.Seconds())+1)
	by := h.Sessions.OnProfile(r.ProfileID)
	ending := by != nil && by.Token() == r.Token && by.EndsInOrder()
	how := ""
	if ending {
		next, how = Soon, ", whose session is ending: ask again in a second"
	}
	p := api.Refuse(api.CodeConflict, "profile %s is held by worker %s for task %s%s", r.ProfileID, r.OwnerWorkerID, r.TaskID, how).
		With("profile_id", r.ProfileID).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).
		With("current_token", r.Token).With("lease_expires_at", r.ExpiresAt).With("decision", decision).With("next_check_seconds", next)
	if r.OwnerWorkerID == m.WorkerID && r.TaskID == m.TaskID && m.OneShot {
		p.Detail += ", in a session that another principal opened, or that is ending: the names alone do not join it"
	}
	p.RetryAfter = next
	return &HeldError{p, session.Conflict{Holder: r, Decision: decision, NextCheckSeconds: next}, ending}
}

// BusyHere refuses a profile whose record is free, but whose slot on this launcher is still, or
// already, occupied.
func (h *Host) BusyHere(r lease.Record, m api.Manifest) error {
	if h.Slots.Draining() {
		return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
	}
	if s := h.Sessions.OnProfile(r.ProfileID); s != nil {
		shown := s.Show()
		r.OwnerWorkerID, r.TaskID, r.Token, r.ExpiresAt = shown.WorkerID, shown.TaskID, shown.Token, shown.ExpiresAt
		return h.Conflict(r, m)
	}
	held := h.Conflict(r, m)
	held.Detail = fmt.Sprintf("profile %s is being opened or recovered here: ask again in a moment", r.ProfileID)
	held.Problem = held.With("next_check_seconds", Soon)
	held.RetryAfter, held.Conflict.NextCheckSeconds = Soon, Soon
	return held
}

// LockProblem says who uses the directory although the lease is free.
func (h *Host) LockProblem(err error, r lease.Record, m api.Manifest, path string) error {
	if !errors.Is(err, profiledir.ErrLocked) {
		return err
	}
	held := h.Conflict(r, m)
	held.Detail = fmt.Sprintf("profile %s is locked by a process that holds no lease", r.ProfileID)
	if u, err := profiledir.FindUser(path); err == nil && u != nil {
		held.Detail = fmt.Sprintf("profile %s is in use by %s, without a lease: close it", r.ProfileID, u)
		held.Problem = held.With("pid", u.PID).With("since", u.Since)
	}
	return held
}

// StandsStill refuses a caller that could act in the account, beside the session in question,
// while the account has to stand still. then says what the caller may do instead. A session
// that only reads can send nothing that matters here.
func StandsStill(r lease.Record, then string) *api.Problem {
	code := StillCode(r)
	if code == "" {
		return nil
	}
	return api.Refuse(code, "profile %s is %s: its account stands still, and %s", r.ProfileID, r.State, then).
		With("state", r.State).With("reason", r.Reason).With("lease_token", r.Token)
}

// StillCode is the code with which the profile is refused while its account has to stand still,
// because its last worker was lost and nobody has decided about that yet. It is empty if the
// account need not stand still.
func StillCode(r lease.Record) string {
	switch r.State {
	case lease.SuspectedStale, lease.Quarantined, lease.Inspected:
		return api.CodeQuarantined
	case lease.ManualReview:
		return api.CodeInReview
	case lease.Held: // by a person who looks at it before deciding
		if r.ByHand != nil && r.ByHand.Review != nil {
			return api.CodeInReview
		}
	case lease.ResumePending:
		return api.CodeResumePending
	}
	return ""
}
