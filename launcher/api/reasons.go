package api

import (
	"slices"

	"leasehold/lease"
)

// Reasons why a session ended, as they stand in records, events and evidence.
const (
	ReasonReleased        = "released"
	ReasonClosed          = "connection_closed"
	ReasonBrowserClosed   = "browser_close_requested"
	ReasonNeverConnected  = "never_connected"
	ReasonDropReleases    = "connection_dropped" // with on_drop=release
	ReasonConnectionLost  = "connection_lost"
	ReasonWorkerDied      = "worker_died"   // the program that started the worker says so
	ReasonWorkerFailed    = "worker_failed" // the same, about a worker that had touched something
	ReasonHeartbeat       = "heartbeat_timeout"
	ReasonLockTimeout     = "lock_timeout"
	ReasonLeaseLost       = "lease_lost"
	ReasonBrowserCrashed  = "browser_crashed"
	ReasonBrowserHangs    = "browser_hangs"
	ReasonBrowserMemory   = "browser_memory"
	ReasonShutdown        = "launcher_shutdown"
	ReasonLauncherRestart = "launcher_restarted"
	ReasonOrphaned        = "launcher_gone" // the guard ended the browser
	ReasonObserved        = "lease_expired" // another launcher saw it
	ReasonStartFailed     = "browser_start_failed"
	ReasonUnanswered      = "grant_unanswered" // the store did not say whether it was stored
	ReasonNotClosed       = "browser_not_closed"
	ReasonNoEvidence      = "evidence_not_stored"
	ReasonPersonGone      = "person_gone"         // who had a sign-in link is not there any more
	ReasonRunLost         = "run_lost"            // another run of the profile was
	ReasonWarm            = "warm_browser_closed" // only in evidence: the browser had no session
)

// Reasons, in the member "reason" of refusals, why a profile cannot be had at a launcher or is
// not brought to it.
const (
	ReasonHomeThere     = "home_is_there"
	ReasonDirectoryLeft = "directory_left"
	ReasonArriving      = "directory_arriving"
)

// Reasons shown for a free profile whose directory is not there. ReasonDirectoryMissing, for one that nobody
// has put aside, is the reason of refusals, too.
const (
	ReasonArchived         = "archived"
	ReasonRemoved          = "removed"
	ReasonDirectoryMissing = "directory_missing"
)

// StateShown is a record's state in words for people. A free profile whose directory is not there
// is archived or removed, or its directory is missing: nobody can have it as it is.
func StateShown(r lease.Record) string {
	if r.State == lease.Available && slices.Contains([]string{ReasonArchived, ReasonRemoved, ReasonDirectoryMissing}, r.Reason) {
		return r.Reason
	}
	return string(r.State)
}
