package lease

import (
	"fmt"
	"slices"
	"time"
)

// Fact is something that happens to a lease, and moves it from state to state.
type Fact string

// The facts.
const (
	Created      Fact = "created"       // a profile got settings before its first lease
	Granted      Fact = "granted"       // to a task, or to one more task of a shared profile
	RunEnded     Fact = "run_ended"     // one of several runs was released
	RunLost      Fact = "run_lost"      // one of several runs was lost
	Released     Fact = "released"      // the last run ended in order
	Suspected    Fact = "suspected"     // its worker or its launcher was lost
	Reasserted   Fact = "reasserted"    // the holder lives after all
	Fenced       Fact = "fenced"        // the token was raised above the holder's
	Examined     Fact = "examined"      // the facts about the profile were gathered
	FoundSafe    Fact = "found_safe"    // decided: release or retry
	FoundResume  Fact = "found_resume"  // decided: resume
	FoundUnclear Fact = "found_unclear" // decided: a person has to look
	Abandoned    Fact = "abandoned"     // the home did not come back to inspect and decide
	Approved     Fact = "approved"      // by a person
	Kept         Fact = "kept"          // by a person, in review
	TakenByHand  Fact = "taken_by_hand" // by a person who uses the profile
	HandedBack   Fact = "handed_back"   // by that person, into the review that was open
	Restored     Fact = "restored"      // the store forgot: the home's own copy counts
	Forgotten    Fact = "forgotten"     // the store forgot, and the home cannot vouch for the profile
)

// Actor is who may state a fact.
type Actor string

// The actors.
const (
	Holder      Actor = "the launcher that holds the lease"
	AnyLauncher Actor = "any launcher"
	Home        Actor = "the launcher whose disk has the profile"
	Person      Actor = "a person"
)

// Transition is one row of the table.
type Transition struct {
	From State // empty: the profile has no record
	Fact Fact
	To   State
	By   Actor
}

// Table is the whole of it: what is not in it is refused. Renewals and settings
// leave the state as it is and are not transitions.
var Table = []Transition{
	{"", Created, Available, Home},
	{"", Granted, Held, Home},
	{Available, Granted, Held, Home},
	{ResumePending, Granted, Held, Home},
	{Held, Granted, Held, Holder},
	{Held, RunEnded, Held, Holder},
	{Held, RunLost, Held, Holder},
	{Held, Released, Available, Holder},

	{Held, Suspected, SuspectedStale, AnyLauncher},
	{SuspectedStale, Reasserted, Held, Holder},
	{SuspectedStale, Fenced, Quarantined, AnyLauncher},
	{Quarantined, Examined, Inspected, Home},
	{Quarantined, Abandoned, ManualReview, AnyLauncher},
	{Inspected, FoundSafe, Available, Home},
	{Inspected, FoundResume, ResumePending, Home},
	{Inspected, FoundUnclear, ManualReview, Home},
	{Inspected, Abandoned, ManualReview, AnyLauncher},
	{ManualReview, Approved, Available, Person},
	{ManualReview, Kept, ManualReview, Person},

	{"", TakenByHand, Held, Person},
	{Available, TakenByHand, Held, Person},
	{ManualReview, TakenByHand, Held, Person},
	{Held, HandedBack, ManualReview, Person},
}

// States lists them all, in the order of a recovery.
var States = []State{Held, SuspectedStale, Quarantined, Inspected, Available, ResumePending, ManualReview}

// A store that lost a record, or went back to an old one, says nothing reliable
// of the profile: its home may restate it from whatever the store now says.
func init() {
	for _, from := range append([]State{""}, States...) {
		for _, to := range []State{Available, ResumePending, ManualReview} {
			Table = append(Table, Transition{from, Restored, to, Home})
		}
		Table = append(Table, Transition{from, Forgotten, Quarantined, Home})
	}
}

// CanBecome tells whether some fact leads from the state to next.
func (s State) CanBecome(next State) bool {
	return slices.ContainsFunc(Table, func(t Transition) bool { return t.From == s && t.To == next })
}

// Free tells whether a profile in this state may be granted to somebody.
func (s State) Free() bool { return s == "" || s == Available || s == ResumePending }

// TransitionError says that a step is not in the table.
type TransitionError struct {
	Profile string
	From    State
	Fact    Fact
}

func (e *TransitionError) Error() string {
	from := e.From
	if from == "" {
		from = "no lease"
	}
	return fmt.Sprintf("lease of %s: %s cannot be %s", e.Profile, from, e.Fact)
}

// Decisions that end a recovery, as the record names them.
const (
	DecisionRelease      = "release"
	DecisionResume       = "resume"
	DecisionRetry        = "retry"
	DecisionManualReview = "manual_review"
)

// step makes the transition of the table that the fact stands for, and writes its
// events into the outbox.
func (r Record) step(fact Fact, to State, now time.Time, events ...string) (Record, error) {
	if !slices.ContainsFunc(Table, func(t Transition) bool { return t.From == r.State && t.Fact == fact && t.To == to }) {
		return r, &TransitionError{Profile: r.ProfileID, From: r.State, Fact: fact}
	}
	r = r.Clone()
	r.State = to
	for _, name := range events {
		r = r.emit(name, now)
	}
	return r, nil
}

func (r Record) emit(name string, now time.Time) Record {
	r.Sequence++
	e := Event{
		Event: name, ProfileID: r.ProfileID, Token: r.Token, Sequence: r.Sequence,
		At: now.UTC(), State: r.State, Reason: r.Reason, Decision: r.Decision, Reasons: r.Reasons,
		EvidenceID: r.EvidenceID, SessionID: r.SessionID, OwnerWorkerID: r.OwnerWorkerID,
		TaskID: r.TaskID, LauncherID: r.LauncherID, LastKnownURL: r.LastKnownURL,
		LastKnownStep: r.LastKnownStep, ResumeFrom: r.ResumeFrom, Outcome: r.Outcome, DecisionVersion: r.DecisionVersion,
	}
	if r.State == ResumePending {
		e.LastSafeCheckpoint = r.LastSafeCheckpoint
	}
	if r.Review != nil {
		e.Reviewer = r.Review.Reviewer
	}
	r.Outbox = append(r.Outbox, e)
	return r
}

// of makes the last event in the outbox one of the run, and not of the profile's
// latest.
func (r Record) of(run Run) Record {
	e := &r.Outbox[len(r.Outbox)-1]
	e.SessionID, e.OwnerWorkerID, e.TaskID = run.SessionID, run.OwnerWorkerID, run.TaskID
	if run.Token != e.Token {
		e.RunToken = run.Token
	}
	return r
}

// Request is what a grant is made from.
type Request struct {
	SessionID, WorkerID, TaskID string
	AccountID, ProxyID          string
	LauncherID, BootID          string
	PresenceEpoch               uint64
	TTL                         time.Duration
	// Floor is the highest token ever used on the profile directory.
	Floor Token
	// Exclusive says that the task shares the profile with nobody.
	Exclusive bool
	// ByHand is set where it is a person who asks, who may have a profile in
	// review too.
	ByHand *ByHand
}

// FloorError says that the store offers a token that was used before: it lost
// records, or went back to an old copy. The floor has to heal the record first.
type FloorError struct {
	Profile        string
	Offered, Floor Token
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("lease of %s: the store offers token %d, but %d was used before: it forgot", e.Profile, e.Offered, e.Floor)
}

// RunsError says that a held profile takes no further run.
type RunsError struct {
	Profile string
	Why     string
}

func (e *RunsError) Error() string {
	return fmt.Sprintf("profile %s takes no further run: %s", e.Profile, e.Why)
}

// Grant gives the profile to the request's task under a new token. What the last
// session left in the record (reason, decision, step) makes room; its URL and
// evidence stay until they are replaced. A FloorError where the store forgot.
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
		fact, reason, byHand = TakenByHand, ReasonByHand, &ByHand{Holder: q.ByHand.Holder, Note: q.ByHand.Note, Since: now.UTC(), Review: r.openReview()}
	}
	resume := r.State == ResumePending
	r.Token++
	r.SessionID, r.OwnerWorkerID, r.TaskID = q.SessionID, q.WorkerID, q.TaskID
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
	return r.step(fact, Held, now, EventGranted)
}

// ReasonByHand is the reason of a lease that a person has.
const ReasonByHand = "held_by_hand"

// openReview is the review that waits for a person, or was open before a person
// took the profile by hand; nil where there is none.
func (r Record) openReview() *OpenReview {
	if r.State != ManualReview {
		return nil
	}
	return &OpenReview{
		SessionID: r.SessionID, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID,
		Reason: r.Reason, Decision: r.Decision, Reasons: r.Reasons, DecisionVersion: r.DecisionVersion, EvidenceID: r.incident(),
		LastKnownURL: r.LastKnownURL, LastKnownStep: r.LastKnownStep, LastSafeCheckpoint: r.LastSafeCheckpoint,
		SuspectedAt: r.SuspectedAt, RecoveryStartedAt: r.RecoveryStartedAt, Review: r.Review,
	}
}

// incident is the bundle that a review is about.
func (r Record) incident() string {
	if r.ByHand != nil && r.ByHand.Review != nil {
		return r.ByHand.Review.EvidenceID
	}
	return r.EvidenceID
}

// reopen puts the review back that a person left open. The profile's evidence
// stays the newest, and names the incident's as one before it.
func (r Record) reopen() Record {
	v := r.ByHand.Review
	r.SessionID, r.OwnerWorkerID, r.TaskID = v.SessionID, v.OwnerWorkerID, v.TaskID
	r.Reason, r.Decision, r.Reasons, r.DecisionVersion = v.Reason, v.Decision, v.Reasons, v.DecisionVersion
	r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint = v.LastKnownURL, v.LastKnownStep, v.LastSafeCheckpoint
	r.SuspectedAt, r.RecoveryStartedAt, r.ReleasedAt, r.Review = v.SuspectedAt, v.RecoveryStartedAt, time.Time{}, v.Review
	r.Outcome = ""
	return r
}

func (q Request) run(t Token, now time.Time) Run {
	return Run{SessionID: q.SessionID, Token: t, OwnerWorkerID: q.WorkerID, TaskID: q.TaskID, Exclusive: q.Exclusive, AcquiredAt: now.UTC()}
}

// join adds a run to a profile that is held already.
func (r Record) join(q Request, now time.Time) (Record, error) {
	if why := r.Shut(q.Exclusive); why != "" {
		return r, &RunsError{Profile: r.ProfileID, Why: why}
	}
	if q.LauncherID != r.LauncherID || q.PresenceEpoch != r.PresenceEpoch {
		return r, &RunsError{Profile: r.ProfileID, Why: "another stay of a launcher holds it"}
	}
	r.Token++
	r.SessionID, r.OwnerWorkerID, r.TaskID = q.SessionID, q.WorkerID, q.TaskID
	r.HeartbeatAt, r.ExpiresAt = now.UTC(), now.Add(q.TTL).UTC()
	r.Runs = append(slices.Clone(r.Runs), q.run(r.Token, now))
	return r.step(Granted, Held, now, EventGranted)
}

// Shut says why a held profile takes no further run, or is empty.
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

// Standing is what a record says of the lease that a token stands for.
type Standing int

// The standings.
const (
	Current Standing = iota
	Doubted          // suspected: the holder may reassert it
	Behind           // the record is older than the token: the store forgot
	Over             // ended, or superseded
)

// Standing tells how the lease with the token stands.
func (r Record) Standing(t Token) Standing {
	switch {
	case r.Token < t:
		return Behind
	case r.MaxActiveRuns <= 1 && r.Token > t:
		return Over // whatever the one run says
	case !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Token == t }):
		return Over
	case r.State == Held:
		return Current
	case r.State == SuspectedStale:
		return Doubted
	}
	return Over
}

// Sealed names a bundle that was stored.
type Sealed struct {
	EvidenceID string
	SHA256     string
}

// Release ends a held lease in order. The caller has proved that Chrome is gone
// and has stored the evidence. A review that was open before a person took the
// profile by hand is open again.
func (r Record) Release(reason, outcome string, ev Sealed, now time.Time) (Record, error) {
	if len(r.LostRuns) > 0 {
		return r, &RunsError{Profile: r.ProfileID, Why: "a run was lost: the profile has to be inspected, not released"}
	}
	if len(r.Runs) > 1 {
		return r, &RunsError{Profile: r.ProfileID, Why: fmt.Sprintf("%d runs are active: the last of them releases it", len(r.Runs))}
	}
	runs := r.Runs
	r.Reason, r.Outcome = reason, outcome
	r = r.sealed(ev)
	r.ReleasedAt, r.Runs = now.UTC(), nil
	reviewed := r.ByHand != nil && r.ByHand.Review != nil
	fact, to := Released, Available
	if reviewed {
		fact, to = HandedBack, ManualReview
	}
	r, err := r.step(fact, to, now, EventReleased)
	if err != nil {
		return r, err
	}
	if len(runs) == 1 {
		r = r.of(runs[0])
	}
	if !reviewed {
		r.ByHand = nil
		return r, nil
	}
	return r.reopen().emit(string(ManualReview), now), nil
}

// EndRun takes one of several runs out of a profile that goes on: released, or
// lost with its evidence. The last run ends by Release or Suspect.
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
	r = r.sealed(ev)
	kept := r.Reason
	r.Reason, r.Outcome = reason, outcome
	fact, event := RunEnded, EventReleased
	if lost {
		fact, event = RunLost, EventExpired
		r.LostRuns = append(r.LostRuns, run)
	}
	next, err := r.step(fact, Held, now, event)
	if err != nil {
		return r, err
	}
	next = next.of(run)
	next.Reason, next.Outcome = kept, ""
	if last := next.Runs[len(next.Runs)-1]; next.SessionID == run.SessionID {
		next.SessionID, next.OwnerWorkerID, next.TaskID = last.SessionID, last.OwnerWorkerID, last.TaskID
	}
	return next, nil
}

func (r Record) sealed(ev Sealed) Record {
	if ev.EvidenceID != "" {
		r.EvidenceID, r.EvidenceSHA256 = ev.EvidenceID, ev.SHA256
	}
	return r
}

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

// Reviews that a person may give.
const (
	ReviewApprove = "approve"
	ReviewKeep    = "keep"
)

// Reviewed applies a person's decision: approve makes the profile available
// after the cooldown, keep leaves it where it is, with the note. A decision made
// on a token that moved on is refused with a FencedError.
func (r Record) Reviewed(v Review, cooldown time.Duration, now time.Time) (Record, error) {
	if v.TokenSeen != r.Token {
		return r, &FencedError{Profile: r.ProfileID, Token: v.TokenSeen, Current: r.Token}
	}
	v.At = now.UTC()
	r.Review = &v
	switch v.Decision {
	case ReviewApprove:
		r.Reason, r.Decision, r.Reasons = "review_approved", DecisionRelease, []string{"approved by " + v.Reviewer}
		r.DecisionVersion, r.ByHand = 0, nil
		r.ReleasedAt, r.AvailableAfter = now.UTC(), now.Add(cooldown).UTC()
		return r.step(Approved, Available, now, string(Available))
	case ReviewKeep:
		return r.step(Kept, ManualReview, now, string(ManualReview))
	default:
		return r, fmt.Errorf("review decision %q: want approve or keep", v.Decision)
	}
}

// ReasonRecordLost is the reason of a profile whose record the store forgot while
// it was in use or in recovery.
const ReasonRecordLost = "record_lost"

// Heal replaces a record that the store forgot, or has only an old copy of, by
// what the profile's home knows: own is the last record that the home wrote, and
// floor the highest token that it used. Where own stands at the floor and was
// free or with a person, that is restored; else nobody can say what happened
// since, and the profile goes through recovery.
func (r Record) Heal(own Record, floor Token, now time.Time) (Record, error) {
	if r.Token >= floor {
		return r, nil
	}
	sequence := max(r.Sequence, own.Sequence)
	if own.ProfileID == r.ProfileID && own.Token >= r.Token {
		was := r.State
		r = own.Clone()
		r.State = was
	}
	r.Sequence = sequence
	if own.Token == floor {
		switch own.State {
		case Available, ResumePending, ManualReview:
			return r.step(Restored, own.State, now, string(own.State))
		}
	}
	r.Reason = ReasonRecordLost
	return r.fence(Forgotten, r.Runs, floor, now)
}
