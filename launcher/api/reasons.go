package api

// Reasons why a session ended, as records, events and evidence have them.
const (
	ReasonReleased        = "released"
	ReasonClosed          = "connection_closed"
	ReasonBrowserClosed   = "browser_close_requested"
	ReasonNeverConnected  = "never_connected"
	ReasonDropReleases    = "connection_dropped" // with on_drop=release
	ReasonConnectionLost  = "connection_lost"
	ReasonWorkerDied      = "worker_died"   // who had started the worker says so
	ReasonWorkerFailed    = "worker_failed" // and this, of one that had touched something
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
	ReasonRunLost         = "run_lost"            // another run of the profile was
	ReasonWarm            = "warm_browser_closed" // of evidence alone: the browser had no session
)

// Reasons, as the member "reason" of refusals, why a profile cannot be had at a launcher or does
// not come to it.
const (
	ReasonHomeThere     = "home_is_there"
	ReasonDirectoryLeft = "directory_left"
	ReasonArriving      = "directory_arriving"
)

// Reasons that a free profile is shown with whose directory is not there.
const (
	ReasonArchived = "archived"
	ReasonRemoved  = "removed"
)
