package lease

import (
	"cmp"
	"time"
)

// Event is one thing that happened to a profile, or to what is known of a site, as it is
// published. JSON leaves out the fields that do not apply.
type Event struct {
	Event     string `json:"event"`
	ProfileID string `json:"profile_id,omitempty"` // empty of an event about a site
	Token     Token  `json:"lease_token,omitempty"`
	// Sequence is the number of the event among those of the profile's transitions, without
	// gaps. Events that belong to no transition (conflict, late_write, those about persons)
	// have none.
	Sequence uint64 `json:"sequence,omitempty"`
	// RunToken is the token of the run that the event is about, if it is not Token: other runs
	// go on, or a quarantine raised the token of the profile.
	RunToken Token     `json:"run_token,omitempty"`
	At       time.Time `json:"at"`
	State    State     `json:"state,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Decision string    `json:"decision,omitempty"`
	Reasons  []string  `json:"reasons,omitempty"`
	// DecisionVersion is the version of the table by which Decision was made.
	DecisionVersion int `json:"decision_version,omitempty"`

	EvidenceID    string `json:"evidence_id,omitempty"`
	SessionID     string `json:"session_id,omitempty"`
	OwnerWorkerID string `json:"owner_worker_id,omitempty"`
	TaskID        string `json:"task_id,omitempty"`
	LauncherID    string `json:"launcher_id,omitempty"`
	LastKnownURL  string `json:"last_known_url,omitempty"`
	LastKnownStep string `json:"last_known_step,omitempty"`
	ResumeFrom    string `json:"resume_from,omitempty"`
	// LastSafeCheckpoint is the checkpoint from which the task may resume.
	LastSafeCheckpoint string `json:"last_safe_checkpoint,omitempty"`
	Outcome            string `json:"outcome,omitempty"`
	Reviewer           string `json:"reviewer,omitempty"`
	// Note is what a person noted with the decision.
	Note string `json:"note,omitempty"`
	// Principal is the name of the principal behind the event, as was proved: who decided in a
	// review, who was refused in a conflict or for a late write, who took a session over or
	// handed it back, or otherwise who opened the session.
	Principal string `json:"principal,omitempty"`

	// These are the task that was refused in a conflict, the one that has the profile, and the
	// number of seconds after which to ask again.
	BlockedTaskID    string `json:"blocked_task_id,omitempty"`
	BlockedWorkerID  string `json:"blocked_worker_id,omitempty"`
	CurrentTaskID    string `json:"current_task_id,omitempty"`
	CurrentWorkerID  string `json:"current_worker_id,omitempty"`
	NextCheckSeconds int    `json:"next_check_seconds,omitempty"`

	// Home is the launcher that became the home, and OldHome is the former home.
	Home    string `json:"home,omitempty"`
	OldHome string `json:"old_home,omitempty"`

	// Count is how many refusals a conflict or late write stands for, of which this is the
	// last; zero: this one alone. The first of several is published at once, the others at most
	// once a minute.
	Count uint64 `json:"count,omitempty"`

	// The token that was valid when a late write was refused, and what the write was.
	CurrentToken Token  `json:"current_token,omitempty"`
	Write        string `json:"write,omitempty"`

	// SnapshotID is the snapshot that was made or restored.
	SnapshotID string `json:"snapshot_id,omitempty"`

	// Person is the name of the person who moved the profile, took a session over or handed it
	// back. Until is when a worker that asks for a person is told that nobody came. Answered
	// says of a hand-back whether what the worker asked for was done; nil: no request was
	// answered.
	Person   string    `json:"person,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Answered *bool     `json:"answered,omitempty"`

	// SignInAt is the origin of the site that says that the account is not signed in.
	SignInAt string `json:"sign_in_at,omitempty"`

	// Site is the site whose file was changed or removed, Revision that of the change, and Requests how
	// many lines about requests the file has now. Principal is who did it, or the file that was told.
	Site     string `json:"site,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Requests int    `json:"requests,omitempty"`
}

// The names of events. An event that reports a new state has the name of that state
// instead.
const (
	EventGranted   = "granted"
	EventReleased  = "released"
	EventExpired   = "expired"
	EventMoved     = "moved"
	EventRemade    = "remade"
	EventConflict  = "profile_lock_conflict"
	EventLateWrite = "late_write"

	// About a snapshot. That it was made belongs to no transition.
	EventSnapshotMade     = "snapshot_made"
	EventSnapshotRestored = "snapshot_restored"

	// About a person in a living session.
	EventAsked      = "asked"
	EventTaken      = "taken"
	EventHandedBack = "handed_back"

	// About whether the account is signed in.
	EventSignedIn       = "signed_in"
	EventSignedOut      = "signed_out"
	EventAnotherAccount = "another_account"

	// About what is known of a site.
	EventSiteChanged = "site_changed"
	EventSiteRemoved = "site_removed"
)

// compare compares the positions of two events in the order of a profile's transitions.
func (e Event) compare(f Event) int {
	return cmp.Or(cmp.Compare(e.Token, f.Token), cmp.Compare(e.Sequence, f.Sequence))
}

// same tells whether two events with a number are about the same transition. After a record
// went back, another event may get the same number.
func (e Event) same(f Event) bool {
	return e.compare(f) == 0 && e.Event == f.Event && e.SessionID == f.SessionID && e.At.Equal(f.At)
}

// Subject returns the NATS subject on which the event is published.
func (e Event) Subject() string {
	p := Key(e.ProfileID)
	switch e.Event {
	case EventGranted, EventReleased, EventExpired, EventMoved, EventRemade, EventSnapshotMade, EventSnapshotRestored:
		return "leasehold.lease." + p + "." + e.Event
	case EventConflict:
		return "leasehold.conflict." + p
	case EventLateWrite:
		return "leasehold.late_write." + p
	case EventAsked, EventTaken, EventHandedBack:
		return "leasehold.person." + p + "." + e.Event
	case EventSignedIn, EventSignedOut, EventAnotherAccount:
		return "leasehold.account." + p + "." + e.Event
	case EventSiteChanged, EventSiteRemoved: // one word less than transitions have: a profile may have the same name
		return "leasehold.site." + e.Site
	default:
		return "leasehold.recovery." + p + "." + e.Event
	}
}
