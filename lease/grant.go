package lease

import (
	"fmt"
	"time"
)

// Request is what a grant is made from.
type Request struct {
	SessionID, WorkerID, TaskID string
	AccountID, ProxyID          string
	LauncherID, BootID          string
	PresenceEpoch               uint64
	TTL                         time.Duration
	// Principal is the name of the caller.
	Principal string
	// Floor is the highest token ever used on the profile directory.
	Floor Token
	// Exclusive says that the task wants the profile to itself.
	Exclusive bool
	// ByHand is set if a person asks for the profile, and nil if a task does. A person may also
	// take a profile that is in manual review.
	ByHand *ByHand
}

// FloorError says that the next token, according to the stored record, was used before: the
// store lost records, or went back to an old copy. Record.Heal has to repair the record before
// the profile can be granted.
type FloorError struct {
	Profile        string
	Offered, Floor Token
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("lease of %s: the store offers token %d, but %d was used before: it forgot", e.Profile, e.Offered, e.Floor)
}

// Grant gives the profile to the task of the request under a new token. It clears what
// describes the end of the last session (reason, decision, step), and keeps that session's URL
// and evidence until others replace them. A profile that is held gets one more run. Errors:
// *FloorError, *RunsError, *TokenError, *TransitionError.
func (r Record) Grant(q Request, now time.Time) (Record, error) {
	if r.Token < q.Floor {
		return r, &FloorError{Profile: r.ProfileID, Offered: r.Token + 1, Floor: q.Floor}
	}
	switch {
	case r.State == Held && q.ByHand != nil:
		return r, &TransitionError{Profile: r.ProfileID, From: r.State, Fact: TakenByHand}
	case r.State == Held:
		return r.join(q, now)
	}
	fact, reason, byHand := Granted, "", (*ByHand)(nil)
	if q.ByHand != nil {
		fact, reason, byHand = TakenByHand, ReasonByHand, &ByHand{Holder: q.ByHand.Holder, Principal: q.Principal, Note: q.ByHand.Note, Since: now.UTC(), Review: r.openReview()}
	}
	resume := r.State == ResumePending
	if err := r.raise(0); err != nil {
		return r, err
	}
	r.SessionID, r.OwnerWorkerID, r.TaskID, r.Principal = q.SessionID, q.WorkerID, q.TaskID, q.Principal
	r.LauncherID, r.BootID, r.PresenceEpoch = q.LauncherID, q.BootID, q.PresenceEpoch
	if r.Home == "" {
		r.Home = q.LauncherID
	}
	if r.AccountID == "" {
		r.AccountID = q.AccountID
	}
	if r.ProxyID == "" {
		r.ProxyID = q.ProxyID
	}
	if r.MaxActiveRuns == 0 {
		r.MaxActiveRuns = 1
	}
	r.AcquiredAt, r.HeartbeatAt, r.ExpiresAt = now.UTC(), now.UTC(), now.Add(q.TTL).UTC()
	r.TTLSeconds = q.TTL.Seconds()
	r.SuspectedAt, r.RecoveryStartedAt, r.ReleasedAt, r.AvailableAfter = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.Reason, r.Decision, r.Reasons, r.DecisionVersion, r.Outcome, r.Review = reason, "", nil, 0, "", nil
	r.LastKnownStep, r.LostRuns, r.ByHand = "", nil, byHand
	if !resume {
		r.LastSafeCheckpoint, r.ResumeFrom = "", ""
	}
	r.Runs = []Run{q.run(r.Token, now)}
	return r.transition(fact, Held, now, EventGranted)
}

func (q Request) run(t Token, now time.Time) Run {
	return Run{SessionID: q.SessionID, Token: t, OwnerWorkerID: q.WorkerID, TaskID: q.TaskID, Principal: q.Principal, Exclusive: q.Exclusive, AcquiredAt: now.UTC()}
}

// Sealed names an evidence bundle that is stored, with the hash of its manifest. The zero
// Sealed means no bundle.
type Sealed struct {
	EvidenceID string
	SHA256     string
}

// Release ends a held lease in order. The caller has proved that Chrome is gone,
// and has stored the evidence. If a person took the profile out of a review, that
// review is open again afterwards. Errors: *RunsError while other runs are active or
// after one was lost, *TransitionError.
func (r Record) Release(reason, outcome string, ev Sealed, now time.Time) (Record, error) {
	return r.release(reason, outcome, false, ev, now)
}

// Unserved ends a held lease whose session never served, so that nothing was done on the profile. It is
// Release, but a profile that was kept for a task to resume is kept for it again, from the same checkpoint, and
// is not granted before the cooldown is over.
func (r Record) Unserved(reason string, ev Sealed, cooldown time.Duration, now time.Time) (Record, error) {
	putBack := r.ResumeFrom != ""
	r, err := r.release(reason, "", putBack, ev, now)
	if err == nil && putBack && r.State == ResumePending {
		r = r.letGo(cooldown, now)
	}
	return r, err
}

// release is Release. putBack says that the profile is to be kept for its task again.
func (r Record) release(reason, outcome string, putBack bool, ev Sealed, now time.Time) (Record, error) {
	if len(r.LostRuns) > 0 {
		return r, &RunsError{Profile: r.ProfileID, Why: "a run was lost: the profile has to be inspected, not released"}
	}
	if len(r.Runs) > 1 {
		return r, &RunsError{Profile: r.ProfileID, Why: fmt.Sprintf("%d runs are active: the last of them releases it", len(r.Runs))}
	}
	runs := r.Runs
	r.Reason, r.Outcome = reason, outcome
	r = r.withEvidence(ev)
	r.ReleasedAt, r.Runs = now.UTC(), nil
	reviewed := r.ByHand != nil && r.ByHand.Review != nil
	fact, to := Released, Available
	switch {
	case reviewed:
		fact, to = HandedBack, ManualReview
	case putBack:
		fact, to = PutBack, ResumePending
	}
	r, err := r.transition(fact, to, now, EventReleased)
	if err != nil {
		return r, err
	}
	if len(runs) == 1 {
		r = r.aboutRun(runs[0], true)
	}
	if reviewed {
		return r.reopen().emit(string(ManualReview), now), nil
	}
	r.ByHand = nil
	if putBack {
		r.Decision, r.Reasons = DecisionResume, []string{"the session that was to resume the task never served"}
		r = r.emit(string(ResumePending), now)
	}
	return r, nil
}

// withEvidence makes ev the newest bundle of the profile, if there is one.
func (r Record) withEvidence(ev Sealed) Record {
	if ev.EvidenceID != "" {
		r.EvidenceID, r.EvidenceSHA256 = ev.EvidenceID, ev.SHA256
	}
	return r
}
