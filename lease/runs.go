package lease

import (
	"fmt"
	"slices"
	"time"
)

// RunsError says that a request does not fit the runs of a held profile: the profile takes no
// further run, or cannot be released, or cannot go on without this run.
type RunsError struct {
	Profile string
	Why     string
}

func (e *RunsError) Error() string {
	return fmt.Sprintf("profile %s takes no further run: %s", e.Profile, e.Why)
}

// join adds a run to a profile that is held already. The error is a *RunsError if the profile
// takes no further run.
func (r Record) join(q Request, now time.Time) (Record, error) {
	if why := r.Shut(q.Exclusive); why != "" {
		return r, &RunsError{Profile: r.ProfileID, Why: why}
	}
	if q.LauncherID != r.LauncherID || q.PresenceEpoch != r.PresenceEpoch {
		return r, &RunsError{Profile: r.ProfileID, Why: "another stay of a launcher holds it"}
	}
	if err := r.raise(0); err != nil {
		return r, err
	}
	r.SessionID, r.OwnerWorkerID, r.TaskID, r.Principal = q.SessionID, q.WorkerID, q.TaskID, q.Principal
	r.HeartbeatAt, r.ExpiresAt = now.UTC(), now.Add(q.TTL).UTC()
	r.Runs = append(slices.Clone(r.Runs), q.run(r.Token, now))
	return r.transition(Granted, Held, now, EventGranted)
}

// Shut says why a held profile takes no further run; it is empty if one may join. exclusive
// says that the run wants the profile to itself.
func (r Record) Shut(exclusive bool) string {
	switch {
	case len(r.LostRuns) > 0:
		return "a run was lost, and the profile is inspected when the others end"
	case exclusive:
		return "the task wants it for itself, and it is in use"
	case slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Exclusive }):
		return "the task that has it wants it for itself"
	case len(r.Runs) >= max(r.MaxActiveRuns, 1):
		return fmt.Sprintf("%d of %d runs are active", len(r.Runs), max(r.MaxActiveRuns, 1))
	}
	return ""
}

// EndRun ends one of several runs, while the others go on. lost says that it did not end in
// order. The last run of a profile ends by Release or Suspect instead. Errors: *FencedError if
// no run has the token, *RunsError if it is the last one.
func (r Record) EndRun(t Token, lost bool, reason, outcome string, ev Sealed, now time.Time) (Record, error) {
	i := slices.IndexFunc(r.Runs, func(run Run) bool { return run.Token == t })
	if i < 0 {
		return r, &FencedError{Profile: r.ProfileID, Token: t, Current: r.Token}
	}
	if len(r.Runs) == 1 {
		return r, &RunsError{Profile: r.ProfileID, Why: "the last run ends the lease"}
	}
	r = r.Clone()
	run := r.Runs[i]
	run.Reason, run.EvidenceID = reason, ev.EvidenceID
	r.Runs = slices.Delete(r.Runs, i, i+1)
	r = r.withEvidence(ev)
	reasonOfLease := r.Reason
	r.Reason, r.Outcome = reason, outcome
	fact, event := RunEnded, EventReleased
	if lost {
		fact, event = RunLost, EventExpired
		r.LostRuns = append(r.LostRuns, run)
	}
	next, err := r.transition(fact, Held, now, event)
	if err != nil {
		return r, err
	}
	next = next.aboutRun(run, false)
	next.Outbox[len(next.Outbox)-1].Outcome = outcome
	// Reason and outcome were only for the event: the lease itself goes on.
	next.Reason, next.Outcome = reasonOfLease, ""
	if last := next.Runs[len(next.Runs)-1]; next.SessionID == run.SessionID {
		next.SessionID, next.OwnerWorkerID, next.TaskID, next.Principal = last.SessionID, last.OwnerWorkerID, last.TaskID, last.Principal
	}
	return next, nil
}
