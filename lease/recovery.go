package lease

import (
	"fmt"
	"slices"
	"time"
)

// Decisions that end a recovery, as the record names them.
const (
	DecisionRelease      = "release"
	DecisionResume       = "resume"
	DecisionRetry        = "retry"
	DecisionManualReview = "manual_review"
)

// Suspect marks a held lease whose worker or holder was lost.
func (r Record) Suspect(reason string, ev Sealed, now time.Time) (Record, error) {
	r.Reason, r.SuspectedAt = reason, now.UTC()
	r = r.sealed(ev)
	return r.step(Suspected, SuspectedStale, now, string(SuspectedStale))
}

// Reassert takes a suspicion back: the holder is alive and was within its
// deadline all the time.
func (r Record) Reassert(now time.Time) (Record, error) {
	r.Reason, r.SuspectedAt = "reasserted", time.Time{}
	r.HeartbeatAt = now.UTC()
	r, err := r.step(Reasserted, Held, now)
	if err != nil {
		return r, err
	}
	for _, run := range r.Runs {
		r = r.emit(EventGranted, now).of(run)
	}
	return r, nil
}

// Quarantine closes the profile to everybody but its recovery, and raises the
// token above everything the old owner could hold. Every run of it is reported as
// expired too: it ended without a release.
func (r Record) Quarantine(floor Token, now time.Time) (Record, error) {
	return r.fence(Fenced, r.Runs, floor, now)
}

func (r Record) fence(fact Fact, runs []Run, floor Token, now time.Time) (Record, error) {
	r.Token = max(r.Token, floor) + 1
	r.RecoveryStartedAt, r.Runs = now.UTC(), nil
	if len(r.LostRuns)+len(runs) > 1 {
		r.LostRuns = slices.Concat(r.LostRuns, runs)
	}
	r, err := r.step(fact, Quarantined, now, string(Quarantined))
	if err != nil {
		return r, err
	}
	for _, run := range runs {
		r = r.emit(EventExpired, now).of(run)
	}
	return r, nil
}

// Inspect records that the facts were gathered. ev replaces the bundle where the
// inspection stored one of its own.
func (r Record) Inspect(ev Sealed, now time.Time) (Record, error) {
	r = r.sealed(ev)
	return r.step(Examined, Inspected, now, string(Inspected))
}

// Verdict is the end of a recovery.
type Verdict struct {
	Decision string
	Reasons  []string
	// Version is that of the table that decided.
	Version int
	// Of a resume: the step to go on from, and the last safe checkpoint.
	ResumeFrom, Checkpoint string
	// Cooldown is how long nobody gets the profile, from now.
	Cooldown time.Duration
}

// Settle ends a recovery with the verdict's decision.
func (r Record) Settle(v Verdict, now time.Time) (Record, error) {
	r.Decision, r.Reasons, r.DecisionVersion = v.Decision, slices.Clone(v.Reasons), v.Version
	fact, to := FoundUnclear, ManualReview
	switch v.Decision {
	case DecisionRelease, DecisionRetry:
		fact, to, r.ReleasedAt = FoundSafe, Available, now.UTC()
		r.AvailableAfter = now.Add(v.Cooldown).UTC()
	case DecisionResume:
		fact, to, r.ResumeFrom = FoundResume, ResumePending, v.ResumeFrom
		r.LastSafeCheckpoint = v.Checkpoint
		r.AvailableAfter = now.Add(v.Cooldown).UTC()
	case DecisionManualReview:
	default:
		return r, fmt.Errorf("decision %q: want release, resume, retry or manual_review", v.Decision)
	}
	r.LostRuns = nil
	return r.step(fact, to, now, string(to))
}

// Abandon hands a profile in recovery whose home did not come back to a person.
// ev is the bundle that says what could not be had.
func (r Record) Abandon(reasons []string, ev Sealed, now time.Time) (Record, error) {
	r.Decision, r.Reasons, r.DecisionVersion = DecisionManualReview, slices.Clone(reasons), 0
	r = r.sealed(ev)
	return r.step(Abandoned, ManualReview, now, string(ManualReview))
}
