package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"time"

	"leasehold/lease"
)

// Session is one worker's stay on a profile, as shown. Capability is shown to
// nobody: the surface makes URLs of it.
type Session struct {
	SessionID    string      `json:"session_id"`
	ProfileID    string      `json:"profile_id"`
	Token        lease.Token `json:"lease_token"`
	WorkerID     string      `json:"worker_id"`
	TaskID       string      `json:"task_id"`
	State        string      `json:"state"`
	CDPURL       string      `json:"cdp_url,omitempty"`
	DedicatedURL *string     `json:"dedicated_url"`
	AcquiredAt   time.Time   `json:"acquired_at"`
	ExpiresAt    time.Time   `json:"expires_at"`
	Connections  int         `json:"connections"`
	Resume       *Resume     `json:"resume"`
	// Ended says how the session ended, when it has.
	Ended string `json:"ended,omitempty"`

	Capability string `json:"-"`
}

// The states of a session.
const (
	SessionServing    = "serving"
	SessionRecovering = "recovering"
	SessionEnded      = "ended"
)

// Resume tells a resumed task where to go on.
type Resume struct {
	From       string `json:"from"`
	Checkpoint string `json:"checkpoint"`
}

// Write is what every write to a session carries.
type Write struct {
	Token lease.Token `json:"lease_token"`
}

// LeaseToken returns the token that the write carries.
func (w Write) LeaseToken() lease.Token { return w.Token }

// Heartbeat says that the worker lives, and optionally what it does.
type Heartbeat struct {
	Write
	Step string `json:"step,omitempty"`
}

// Step names what the worker does now.
type Step struct {
	Write
	Name      string `json:"name"`
	Action    string `json:"action,omitempty"`
	Sensitive bool   `json:"sensitive,omitempty"`
}

// Checkpoint names a point of the task. Safe is true unless it says otherwise:
// a checkpoint is where the task may be resumed from. Idempotent declares that
// what follows, up to the next checkpoint, may be done twice.
type Checkpoint struct {
	Write
	Name       string          `json:"name"`
	Safe       *bool           `json:"safe,omitempty"`
	Idempotent bool            `json:"idempotent,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// TaskEvent is anything the task wants in the journal.
type TaskEvent struct {
	Write
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Release ends a session.
type Release struct {
	Write
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// ProfileSettings changes what belongs to the profile itself. Absent fields stay
// as they are. Token is needed, and has to be the current one, while the profile
// is not free.
type ProfileSettings struct {
	Token           lease.Token `json:"lease_token,omitempty"`
	AccountID       *string     `json:"account_id,omitempty"`
	ProxyID         *string     `json:"proxy_id,omitempty"`
	MaxActiveRuns   *int        `json:"max_active_runs,omitempty"`
	ExpectedDomains *[]string   `json:"expected_domains,omitempty"`
	SensitiveURLs   *[]string   `json:"sensitive_urls,omitempty"`
	SensitiveWords  *[]string   `json:"sensitive_words,omitempty"`
	KeepWarm        *bool       `json:"keep_warm,omitempty"`
	BrowserMemory   *uint64     `json:"browser_memory_bytes,omitempty"`
	// HarmlessRequests are METHOD URL [NAME=VALUE]..., see recovery.ParseHarmless.
	HarmlessRequests *[]string `json:"harmless_requests,omitempty"`
}

// ProfileImport names a Chrome user-data-dir of the launcher's host, and what the
// profile that is made of a copy of it belongs to.
type ProfileImport struct {
	From      string  `json:"from"`
	AccountID *string `json:"account_id,omitempty"`
	ProxyID   *string `json:"proxy_id,omitempty"`
}

// ProfileClone names the profile that is made of a copy.
type ProfileClone struct {
	To string `json:"to"`
}

// ProfileArchive may carry the token that was seen: another one is refused.
type ProfileArchive struct {
	Token lease.Token `json:"lease_token,omitempty"`
}

// ProfileRemove carries the token that was seen: another one is refused.
type ProfileRemove struct {
	Token lease.Token `json:"lease_token"`
}

// Removed says that a clone is gone.
type Removed struct {
	ProfileID string `json:"profile_id"`
	// CloneOf is what it was a copy of.
	CloneOf string    `json:"clone_of"`
	At      time.Time `json:"at"`
}

// Archived is where a profile was put aside.
type Archived struct {
	ProfileID string    `json:"profile_id"`
	Path      string    `json:"path"`
	At        time.Time `json:"at"`
}

// Bundle is one line of a profile's evidence.
type Bundle struct {
	EvidenceID     string      `json:"evidence_id"`
	Token          lease.Token `json:"lease_token"`
	At             time.Time   `json:"at"`
	RecoveryReason string      `json:"recovery_reason"`
	LastKnownURL   string      `json:"last_known_url,omitempty"`
	LastKnownStep  string      `json:"last_known_step,omitempty"`
	// Checkpoint is the one that a picture was taken at, if it was at one.
	Checkpoint string `json:"checkpoint,omitempty"`
	Parts      []Part `json:"parts"`
}

// Part is one file of a bundle.
type Part struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Missing says why the part could not be had; it has no content then.
	Missing string `json:"missing,omitempty"`
}

// Inspection is what was found about a profile in recovery, and the decision
// that follows from it.
type Inspection struct {
	Facts    []Fact   `json:"facts"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	// DecisionVersion is that of the table that decided.
	DecisionVersion int `json:"decision_version,omitempty"`
}

// Fact is one answer of an inspection.
type Fact struct {
	Name   string `json:"name"`
	Answer string `json:"answer"`
	How    string `json:"how"`
}

// ReviewRequest is a person's decision on a profile in manual review.
type ReviewRequest struct {
	Write
	Decision string `json:"decision"`
	Reviewer string `json:"reviewer"`
	Note     string `json:"note,omitempty"`
}

// HoldRequest is a person's request to use a profile by hand. Token is the one that
// the person saw.
type HoldRequest struct {
	Write
	Holder string `json:"holder"`
	Note   string `json:"note,omitempty"`
	// LockTimeoutSeconds is the longest the person keeps it; past it the profile
	// goes through recovery. Zero is DefaultHold.
	LockTimeoutSeconds float64 `json:"lock_timeout_seconds,omitempty"`
	Headless           *bool   `json:"headless,omitempty"`
}

// DefaultHold is how long a person may keep a profile that does not say.
const DefaultHold = time.Hour

// Target is one entry of Chrome's /json/list.
type Target struct {
	ID    string `json:"targetId"`
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// BrowserVersion is what /json/version tells of the browser.
type BrowserVersion struct {
	Browser         string
	ProtocolVersion string
	UserAgent       string
	V8Version       string
	WebKitVersion   string
}

// Connection is an accepted, not yet upgraded, websocket of a session.
type Connection interface {
	// Session is what the 101's headers are made from.
	Session() Session
	// Serve speaks the websocket protocol on conn, whose upgrade was answered
	// and of which buffered was already read, until either side ends. It
	// closes conn.
	Serve(conn net.Conn, buffered *bufio.Reader)
	// Cancel gives the connection up before Serve.
	Cancel()
}

// Service is the launcher as its surfaces see it. Errors are a *Problem wherever
// the caller has to know more than that it went wrong.
type Service interface {
	// Acquire grants the manifest's profile and starts its browser; with
	// OneShot it joins a living session of the same worker and task. It waits
	// as long as the manifest says.
	Acquire(ctx context.Context, m Manifest) (Session, error)
	// Connect opens a connection to a session: its browser, or one target.
	Connect(ctx context.Context, sessionID, targetID string) (Connection, error)

	Sessions() []Session
	Session(sessionID string) (Session, error)
	// SessionByCapability finds by the secret in the path; session_ended
	// where it is known and over.
	SessionByCapability(capability string) (Session, error)
	// SessionOf finds the living session of a profile, worker and task.
	SessionOf(profileID, workerID, taskID string) (Session, bool)

	Heartbeat(ctx context.Context, sessionID string, h Heartbeat) (Session, error)
	Step(ctx context.Context, sessionID string, s Step) error
	Checkpoint(ctx context.Context, sessionID string, c Checkpoint) error
	Event(ctx context.Context, sessionID string, e TaskEvent) error
	// Release ends the session in order and returns when the profile is free.
	Release(ctx context.Context, sessionID string, r Release) (Session, error)

	Targets(ctx context.Context, sessionID string) ([]Target, error)
	NewTarget(ctx context.Context, sessionID, url string) (Target, error)
	ActivateTarget(ctx context.Context, sessionID, targetID string) error
	CloseTarget(ctx context.Context, sessionID, targetID string) error
	// Version describes the browser binary; it starts no browser.
	Version(ctx context.Context) (BrowserVersion, error)
	// Protocol is Chrome's protocol description with the Lease domain in it.
	Protocol(ctx context.Context, sessionID string) (json.RawMessage, error)

	Profiles(ctx context.Context) ([]lease.Record, error)
	Profile(ctx context.Context, profileID string) (lease.Record, error)
	// PutProfile creates the profile (directory and record) or changes its
	// settings.
	PutProfile(ctx context.Context, profileID string, s ProfileSettings) (lease.Record, error)
	// ImportProfile makes a profile of a copy of a user-data-dir of this host.
	ImportProfile(ctx context.Context, profileID string, i ProfileImport) (lease.Record, error)
	// CloneProfile makes another profile of a copy of one that nobody uses, and
	// returns the other's record.
	CloneProfile(ctx context.Context, profileID string, c ProfileClone) (lease.Record, error)
	// ArchiveProfile puts a profile that nobody uses aside; nothing is deleted.
	ArchiveProfile(ctx context.Context, profileID string, a ProfileArchive) (Archived, error)
	// RemoveClone deletes a profile that was made by CloneProfile and that nobody
	// uses; no other.
	RemoveClone(ctx context.Context, profileID string, r ProfileRemove) (Removed, error)
	History(ctx context.Context, profileID string) ([]lease.Event, error)
	Evidence(ctx context.Context, profileID string) ([]Bundle, error)
	EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error)
	// EvidencePart returns the part's bytes and media type.
	EvidencePart(ctx context.Context, evidenceID, part string) ([]byte, string, error)
	Inspection(ctx context.Context, profileID string) (Inspection, error)
	Review(ctx context.Context, profileID string, r ReviewRequest) (lease.Record, error)
	// Hold gives the profile to a person and starts its browser, also where it is
	// in review. It ends by Release, or when the person closes the browser.
	Hold(ctx context.Context, profileID string, h HoldRequest) (Session, error)

	// Ready returns nil when a lease could be granted now, or why not.
	Ready(ctx context.Context) error
}
