package lease

import (
	"fmt"
	"slices"
	"time"
)

// Fact is an event in the life of a lease that takes it from one state to another.
type Fact string

// The facts.
const (
	Created          Fact = "created"           // the profile got settings before its first lease
	Granted          Fact = "granted"           // a task got the profile, alone or beside others
	RunEnded         Fact = "run_ended"         // one of several runs was released
	RunLost          Fact = "run_lost"          // one of several runs was lost
	Released         Fact = "released"          // the last run ended in order
	PutBack          Fact = "put_back"          // the session that was to resume a task never served
	Suspected        Fact = "suspected"         // the worker or the launcher was lost
	Reasserted       Fact = "reasserted"        // the holder was suspected and is alive
	Fenced           Fact = "fenced"            // the token was raised above the holder's
	Examined         Fact = "examined"          // the inspection of the profile is complete
	FoundSafe        Fact = "found_safe"        // decision: release or retry
	FoundResume      Fact = "found_resume"      // decision: resume
	FoundUnclear     Fact = "found_unclear"     // decision: a person has to look
	Abandoned        Fact = "abandoned"         // the home did not come back to inspect and decide
	Approved         Fact = "approved"          // a person made the profile available
	Kept             Fact = "kept"              // a person left the profile in review
	TakenByHand      Fact = "taken_by_hand"     // a person began to use the profile
	HandedBack       Fact = "handed_back"       // that person is done, and the earlier review is open again
	SnapshotRestored Fact = "snapshot_restored" // a person restored a snapshot of the profile
	Remade           Fact = "remade"            // the profile gets a directory to replace one that is gone
	Moved            Fact = "moved"             // another launcher became the home
	MovedByHand      Fact = "moved_by_hand"     // a person made another launcher the home
	Restored         Fact = "restored"          // the store forgot the record; the home's own copy replaces it
	Forgotten        Fact = "forgotten"         // the store forgot the record, and the home cannot vouch for the profile
	Recalled         Fact = "recalled"          // the store forgot the record, and a launcher that is not the home remembers it
	Contested        Fact = "contested"         // the record names another home than a launcher remembers
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

// Transition is one row of the table of transitions.
type Transition struct {
	From State // empty: the profile has no record
	Fact Fact
	To   State
	By   Actor
}

// Table returns the whole table of transitions: one that is not in it is refused. Renewals and
// changes of settings do not change the state, and are not transitions. The slice is the
// caller's own.
func Table() []Transition {
	table := []Transition{
		{"", Created, Available, Home},
		{"", Granted, Held, Home},
		{Available, Granted, Held, Home},
		{ResumePending, Granted, Held, Home},
		{Held, Granted, Held, Holder},
		{Held, RunEnded, Held, Holder},
		{Held, RunLost, Held, Holder},
		{Held, Released, Available, Holder},
		{Held, PutBack, ResumePending, Holder},

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

		{Available, Moved, Available, AnyLauncher},
		{Available, MovedByHand, Available, Person},
		{ResumePending, MovedByHand, ManualReview, Person},
		{ManualReview, MovedByHand, ManualReview, Person},
		{Available, SnapshotRestored, Available, Person},
		{ManualReview, SnapshotRestored, ManualReview, Person},
		{Available, Remade, Available, Home},
	}
	// A store that lost a record, or went back to an old copy, says nothing reliable about the
	// profile. So a launcher that remembers the record may replace it, whatever state the store
	// shows.
	for _, from := range []State{"", Held, SuspectedStale, Quarantined, Inspected, Available, ResumePending, ManualReview} {
		table = append(table,
			Transition{from, Restored, Available, Home},
			Transition{from, Restored, ResumePending, Home},
			Transition{from, Restored, ManualReview, Home},
			Transition{from, Forgotten, Quarantined, Home},
			Transition{from, Recalled, Quarantined, AnyLauncher},
			Transition{from, Contested, Quarantined, AnyLauncher},
		)
	}
	return table
}

// Free tells whether a profile in this state may be granted to somebody.
func (s State) Free() bool { return s == "" || s == Available || s == ResumePending }

// TransitionError says that the table has no transition by this fact from this state.
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

// transition returns the record in the state to, with the events added to its outbox, each
// under the next sequence number. The error is a *TransitionError if the table does not have
// this transition.
func (r Record) transition(fact Fact, to State, now time.Time, events ...string) (Record, error) {
	if !slices.ContainsFunc(Table(), func(t Transition) bool { return t.From == r.State && t.Fact == fact && t.To == to }) {
		return r, &TransitionError{Profile: r.ProfileID, From: r.State, Fact: fact}
	}
	r = r.Clone()
	r.State, r.MoveRequest = to, nil
	for _, name := range events {
		r = r.emit(name, now)
	}
	return r, nil
}

// emit adds an event about the record, as it is now, to the outbox.
func (r Record) emit(name string, now time.Time) Record {
	r.Sequence++
	e := Event{
		Event: name, ProfileID: r.ProfileID, Token: r.Token, Sequence: r.Sequence,
		At: now.UTC(), State: r.State, Reason: r.Reason, Decision: r.Decision, Reasons: r.Reasons,
		EvidenceID: r.EvidenceID, SessionID: r.SessionID, OwnerWorkerID: r.OwnerWorkerID,
		TaskID: r.TaskID, Principal: r.Principal, LauncherID: r.LauncherID, LastKnownURL: r.LastKnownURL,
		LastKnownStep: r.LastKnownStep, ResumeFrom: r.ResumeFrom, Outcome: r.Outcome, DecisionVersion: r.DecisionVersion,
	}
	if name == EventMoved {
		e.Reason, e.Reviewer, e.Home, e.OldHome, e.Note, e.Principal, e.Person = ReasonMoved, "", r.Home, r.Moved.From, r.Moved.Note, r.Moved.Principal, r.Moved.Person
		r.Outbox = append(r.Outbox, e)
		return r
	}
	if r.State == ResumePending {
		e.LastSafeCheckpoint = r.LastSafeCheckpoint
	}
	if r.Review != nil {
		e.Reviewer, e.Principal, e.Note = r.Review.Reviewer, r.Review.Principal, r.Review.Note
	}
	r.Outbox = append(r.Outbox, e)
	return r
}

// aboutRun makes the last event of the outbox be about this run. Otherwise an event names the
// run that was granted last. alone says that no other run used the profile: where one did, it
// is not known which of them came to the record's URL and step, and the event leaves out all that
// is not said of this run.
func (r Record) aboutRun(run Run, alone bool) Record {
	e := &r.Outbox[len(r.Outbox)-1]
	e.SessionID, e.OwnerWorkerID, e.TaskID, e.Principal = run.SessionID, run.OwnerWorkerID, run.TaskID, run.Principal
	if !alone {
		e.LastKnownURL, e.LastKnownStep, e.LastSafeCheckpoint, e.ResumeFrom, e.Reasons = "", "", "", "", nil
		e.Outcome, e.Reviewer, e.Note = "", "", ""
	}
	if run.Token != e.Token {
		e.RunToken = run.Token
	}
	return r
}
