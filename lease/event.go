package lease

import (
	"time"
)

// Event is one thing that happened to a profile, as published. Fields that do
// not apply are left out.
type Event struct {
	Event     string `json:"event"`
	ProfileID string `json:"profile_id"`
	Token     Token  `json:"lease_token,omitempty"`
	// Sequence numbers the profile's transitions without gaps. Events that are
	// not transitions (conflict, late_write) have none.
	Sequence uint64 `json:"sequence,omitempty"`
	// RunToken is the token of the run that ended, where the profile's own is
	// another: because others go on, or because quarantine raised it.
	RunToken Token     `json:"run_token,omitempty"`
	At       time.Time `json:"at"`
	State    State     `json:"state,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Decision string    `json:"decision,omitempty"`
	Reasons  []string  `json:"reasons,omitempty"`
	// DecisionVersion is that of the table that Decision was made with.
	DecisionVersion int `json:"decision_version,omitempty"`

	EvidenceID    string `json:"evidence_id,omitempty"`
	SessionID     string `json:"session_id,omitempty"`
	OwnerWorkerID string `json:"owner_worker_id,omitempty"`
	TaskID        string `json:"task_id,omitempty"`
	LauncherID    string `json:"launcher_id,omitempty"`
	LastKnownURL  string `json:"last_known_url,omitempty"`
	LastKnownStep string `json:"last_known_step,omitempty"`
	ResumeFrom    string `json:"resume_from,omitempty"`
	// LastSafeCheckpoint is where the task may resume.
	LastSafeCheckpoint string `json:"last_safe_checkpoint,omitempty"`
	Outcome            string `json:"outcome,omitempty"`
	Reviewer           string `json:"reviewer,omitempty"`

	// Of a conflict.
	BlockedTaskID    string `json:"blocked_task_id,omitempty"`
	BlockedWorkerID  string `json:"blocked_worker_id,omitempty"`
	CurrentTaskID    string `json:"current_task_id,omitempty"`
	CurrentWorkerID  string `json:"current_worker_id,omitempty"`
	NextCheckSeconds int    `json:"next_check_seconds,omitempty"`

	// Of a late write: the token that was valid, and what was refused.
	CurrentToken Token  `json:"current_token,omitempty"`
	Write        string `json:"write,omitempty"`
}

// The names of events that are not states.
const (
	EventGranted   = "granted"
	EventReleased  = "released"
	EventExpired   = "expired"
	EventConflict  = "profile_lock_conflict"
	EventLateWrite = "late_write"
)

// Subject returns the NATS subject that the event belongs on.
func (e Event) Subject() string {
	p := Key(e.ProfileID)
	switch e.Event {
	case EventGranted, EventReleased, EventExpired:
		return "leasehold.lease." + p + "." + e.Event
	case EventConflict:
		return "leasehold.conflict." + p
	case EventLateWrite:
		return "leasehold.late_write." + p
	default:
		return "leasehold.recovery." + p + "." + e.Event
	}
}
