package lease

import (
	"fmt"
	"slices"
	"time"
)

// The decisions that end a recovery, as the record names them.
const (
	DecisionRelease      = "release"
	DecisionResume       = "resume"
	DecisionRetry        = "retry"
	DecisionManualReview = "manual_review"
)

// Suspect marks a held lease whose worker or launcher was lost. ev is the evidence
// that was stored before.
func (r Record) Suspect(reason string, ev Sealed, now time.Time) (Record, error) {
	r.Reason, r.SuspectedAt = reason, now.UTC()
	r = r.withEvidence(ev)
	return r.transition(Suspected, SuspectedStale, now, string(SuspectedStale))
}

// Reassert withdraws a suspicion: the holder is alive, and its deadline never passed. An event
// announces each run again.
func (r Record) Reassert(now time.Time) (Record, error) {
	r.Reason, r.SuspectedAt = "reasserted", time.Time{}
	r.HeartbeatAt = now.UTC()
	r, err := r.transition(Reasserted, Held, now)
	if err != nil {
		return r, err
	}
	for _, run := range r.Runs {
		r = r.emit(EventGranted, now).aboutRun(run, len(r.Runs) == 1)
	}
	return r, nil
}

// Quarantine closes the profile to everybody but its recovery, and raises the token above floor
// and above every token that the old holder could have. Each run gets an event that it has
// expired, because it ended without a release.
func (r Record) Quarantine(floor Token, now time.Time) (Record, error) {
	return r.quarantine(Fenced, r.Runs, floor, now)
}

// quarantine is Quarantine, by one of the two facts that lead to that state. runs are the runs
// that have ended with it.
func (r Record) quarantine(fact Fact, runs []Run, floor Token, now time.Time) (Record, error) {
	if err := r.raise(floor); err != nil {
		return r, err
	}
	r.RecoveryStartedAt, r.Runs = now.UTC(), nil
	if len(r.LostRuns)+len(runs) > 1 {
		r.LostRuns = slices.Concat(r.LostRuns, runs)
	}
	r, err := r.transition(fact, Quarantined, now, string(Quarantined))
	if err != nil {
		return r, err
	}
	for _, run := range runs {
		r = r.emit(EventExpired, now).aboutRun(run, len(runs)+len(r.LostRuns) <= 1)
	}
	return r, nil
}

// Inspect records that the inspection is complete. ev is the bundle that the
// inspection itself stored, if it did.
func (r Record) Inspect(ev Sealed, now time.Time) (Record, error) {
	r = r.withEvidence(ev)
	return r.transition(Examined, Inspected, now, string(Inspected))
}

// Verdict is the result of a recovery: the decision, and what comes with it.
type Verdict struct {
	Decision string
	Reasons  []string
	// Version is the version of the decision table that was used.
	Version int
	// ResumeFrom is the step from which a task may resume, and Checkpoint is the last safe
	// checkpoint. Both belong to the decision to resume.
	ResumeFrom, Checkpoint string
	// Cooldown is the time, counted from now, in which the profile is not granted again.
	Cooldown time.Duration
}

// Decide ends a recovery with the verdict's decision. The error names a decision that does not
// exist, or is a *TransitionError.
func (r Record) Decide(v Verdict, now time.Time) (Record, error) {
	r.Decision, r.Reasons, r.DecisionVersion = v.Decision, slices.Clone(v.Reasons), v.Version
	fact, to := FoundUnclear, ManualReview
	switch v.Decision {
	case DecisionRelease, DecisionRetry:
		fact, to = FoundSafe, Available
		r = r.letGo(v.Cooldown, now)
	case DecisionResume:
		fact, to, r.ResumeFrom = FoundResume, ResumePending, v.ResumeFrom
		r.LastSafeCheckpoint = v.Checkpoint
		r = r.letGo(v.Cooldown, now)
	case DecisionManualReview:
	default:
		return r, fmt.Errorf("decision %q: want release, resume, retry or manual_review", v.Decision)
	}
	return r.transition(fact, to, now, string(to))
}

// letGo says that the profile may be granted again after the cooldown. Nobody asks any more what was
// lost.
func (r Record) letGo(cooldown time.Duration, now time.Time) Record {
	r.ReleasedAt, r.AvailableAfter, r.LostRuns = now.UTC(), now.Add(cooldown).UTC(), nil
	return r
}

// Cooldown is how long the profile is granted to nobody after the write that let it go. Its end
// in the record is a time of that writer's clock, and is compared with no other clock: how much
// of the cooldown is left, each launcher counts by how old the write is.
func (r Record) Cooldown() time.Duration {
	if r.ReleasedAt.IsZero() {
		return 0
	}
	return max(r.AvailableAfter.Sub(r.ReleasedAt), 0)
}

// Abandon gives a profile in recovery to a person, because its home did not come back
// to inspect it. ev is the bundle that says what evidence is missing.
func (r Record) Abandon(reasons []string, ev Sealed, now time.Time) (Record, error) {
	r.Decision, r.Reasons, r.DecisionVersion = DecisionManualReview, slices.Clone(reasons), 0
	r = r.withEvidence(ev)
	return r.transition(Abandoned, ManualReview, now, string(ManualReview))
}
