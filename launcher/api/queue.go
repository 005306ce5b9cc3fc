package api

import (
	"time"

	"leasehold/lease"
)

// Waiting is a request that waits for a lease, at this launcher or another one.
type Waiting struct {
	// ProfileID is the profile that it waits for; empty: any profile with the account and the
	// labels.
	ProfileID string       `json:"profile_id,omitempty"`
	AccountID string       `json:"account_id,omitempty"`
	Labels    lease.Labels `json:"labels,omitempty"`
	WorkerID  string       `json:"worker_id"`
	TaskID    string       `json:"task_id"`
	Principal string       `json:"principal,omitempty"`
	Priority  int          `json:"priority"`
	// LauncherID is the launcher at which it waits.
	LauncherID string    `json:"launcher_id"`
	Since      time.Time `json:"since"`
	// Position is its position in the line for a profile, 1 being the next; if it could be
	// given several profiles, the smallest of its positions.
	Position int `json:"position"`
	// Profiles is how many profiles it could be given.
	Profiles int `json:"profiles"`

	// Candidates are these profiles; Own says that the request waits at this launcher. httpapi
	// and console need them to show a caller only what the caller may see.
	Candidates []string `json:"-"`
	Own        bool     `json:"-"`
	// Arrival gives the order in which the requests began to wait.
	Arrival uint64 `json:"-"`
}
