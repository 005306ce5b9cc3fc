package lease

import (
	"context"
	"time"
)

// Waiter is a request that waits for a profile, as its launcher tells the other launchers. It
// is a hint about the order in which requests are served, and gives no right to anything: who
// gets a profile is decided by the compare-and-swap of its record.
type Waiter struct {
	// ID is unique and cannot be guessed: a request that shows it at another launcher continues
	// to wait there, in the same place.
	ID string `json:"id"`
	// LauncherID is the launcher at which the request waits, and Epoch is the epoch of its
	// presence. The waiter counts for as long as that presence lasts.
	LauncherID string `json:"launcher_id"`
	Epoch      uint64 `json:"epoch"`

	// ProfileID is the profile that the request waits for; empty: any profile that has the
	// account and the labels, and that Patterns allow.
	ProfileID string   `json:"profile_id,omitempty"`
	AccountID string   `json:"account_id,omitempty"`
	Labels    Labels   `json:"labels,omitempty"`
	Patterns  []string `json:"profiles,omitempty"`

	// Principal is the name of the caller, as was proved. WorkerID and TaskID are what the
	// caller said.
	Principal string `json:"principal,omitempty"`
	WorkerID  string `json:"worker_id"`
	TaskID    string `json:"task_id"`

	// Shares says that the request would share the profile's browser. Otherwise it cannot have a profile
	// before all others have ended.
	Shares bool `json:"shares,omitempty"`
	// SignIn says that the request gets also a profile whose account is known to be signed out.
	SignIn bool `json:"sign_in,omitempty"`

	// Priority is higher for requests that are served earlier.
	Priority int `json:"priority,omitempty"`
	// Round is the round in which it is this request's turn.
	Round uint64 `json:"round"`
	// Arrival is the revision under which it was first stored; zero: this write is the first.
	Arrival uint64 `json:"arrival,omitempty"`
	// Since is for people.
	Since time.Time `json:"since"`
}

// MinPriority and MaxPriority bound Waiter.Priority.
const (
	MinPriority = -5
	MaxPriority = 5
)

// WaiterEntry is a waiter with the revision of the write that stored it.
type WaiterEntry struct {
	Waiter   Waiter
	Revision uint64
}

// WaiterStore keeps the waiters of all launchers. It may lose them.
type WaiterStore interface {
	// PutWaiter stores a waiter, replacing an earlier one with the same launcher and ID, and
	// returns the revision.
	PutWaiter(ctx context.Context, w Waiter) (revision uint64, err error)
	// DropWaiter removes the waiter of a launcher, if it is there.
	DropWaiter(ctx context.Context, launcher, id string) error
	// WatchWaiters calls see, one call at a time, first with every waiter and then with every
	// change, until ctx ends. It starts again if it may have missed something. The error says
	// why it cannot.
	WatchWaiters(ctx context.Context, see func(WaiterSight)) error
}

// WaiterSight is one thing that WatchWaiters reports.
type WaiterSight struct {
	// Entry is a waiter as it was stored. If Gone is set, the waiter was removed, and Entry has
	// only its LauncherID and ID.
	Entry WaiterEntry
	Gone  bool
	// Fresh says that every waiter follows; Complete, that all have been reported. Then there
	// is no entry.
	Fresh, Complete bool
}
