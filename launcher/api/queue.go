package api

import (
	"time"

	"leasehold/lease"
)

// Waiting is a request that waits for a lease, at this launcher or another one.
type Waiting struct {
	// ProfileID is the profile that is waited for; empty: any with the account and the labels.
	ProfileID string       `json:"profile_id,omitempty"`
	AccountID string       `json:"account_id,omitempty"`
	Labels    lease.Labels `json:"labels,omitempty"`
	WorkerID  string       `json:"worker_id"`
	TaskID    string       `json:"task_id"`
	Principal string       `json:"principal,omitempty"`
	Priority  int          `json:"priority"`
	// LauncherID is the launcher that it waits at.
	LauncherID string    `json:"launcher_id"`
	Since      time.Time `json:"since"`
	// Position is 1 for the one whose turn is next: of the profiles that it could be given, at
	// the one where it is the smallest.
	Position int `json:"position"`
	// Profiles is how many profiles it could be given.
	Profiles int `json:"profiles"`

	// Candidates are these profiles, and Own says that it waits at this launcher. They are for
	// the surface, which shows a caller only what is theirs to see.
	Candidates []string `json:"-"`
	Own        bool     `json:"-"`
	// Arrival is the order in which they began to wait.
	Arrival uint64 `json:"-"`
}
