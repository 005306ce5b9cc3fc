package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"time"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Session is one worker's use of a profile, as clients see it.
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
	// ExchangeDir is a directory on the launcher's host whose files the session's pages
	// may read, and where their downloads go if the worker does not say where. It is
	// removed with the session. An ended session has none.
	ExchangeDir string `json:"exchange_dir,omitempty"`
	// Ended says how the session ended, if it has.
	Ended string `json:"ended,omitempty"`
	// Principal is the name of who opened the session; empty for a session of an older
	// launcher, which did not know.
	Principal string `json:"principal,omitempty"`
	// Ephemeral says that the session is on a throwaway copy of a snapshot, and holds no
	// lease. Its lease token is then that of the session after which the snapshot was made.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// SnapshotID and ReadOnly are those of an ephemeral session.
	SnapshotID string `json:"snapshot_id,omitempty"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	// Person is who has the session by hand; nil: nobody, and its worker drives it.
	Person *Person `json:"person"`
	// Ask is set while its worker waits for a person.
	Ask *Ask `json:"ask"`

	// Capability is the secret that opens the session. It is not in the JSON form: the
	// surface makes URLs of it.
	Capability string `json:"-"`
	// OpenerUID is the user of this host who opened the session; nil where the kernel does
	// not know.
	OpenerUID *uint32 `json:"-"`
}

// The states of a session.
const (
	SessionServing    = "serving"
	SessionRecovering = "recovering"
	SessionEnded      = "ended"
)

// Resume tells a resumed task where to continue. Data is what the task gave with the
// checkpoint, if it gave any.
type Resume struct {
	From       string          `json:"from"`
	Checkpoint string          `json:"checkpoint"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// Write is the part that every write to a session has.
type Write struct {
	Token lease.Token `json:"lease_token"`
}

// LeaseToken returns the token that the write carries.
func (w Write) LeaseToken() lease.Token { return w.Token }

// Heartbeat says that the worker lives and, optionally, what it does.
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

// Checkpoint names a point of the task. The task may be resumed from it, unless Safe
// is false. Idempotent declares that what follows, up to the next checkpoint, may be
// done twice.
type Checkpoint struct {
	Write
	Name       string          `json:"name"`
	Safe       *bool           `json:"safe,omitempty"`
	Idempotent bool            `json:"idempotent,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// TaskEvent is anything that the task wants in the journal.
type TaskEvent struct {
	Write
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// The values of Release.Recover.
const (
	// RecoverAlways says that the worker died: it is recovered as one that was lost.
	RecoverAlways = "always"
	// RecoverTouched says that the worker failed. It is recovered if it sent anything
	// unsafe, or was anywhere sensitive, since its last safe checkpoint.
	RecoverTouched = "touched"
)

// Release ends a session: in order, or by recovery where Recover asks for that.
type Release struct {
	Write
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Recover string `json:"recover,omitempty"`
}

// Check returns an invalid_request problem if a field's value is not allowed.
func (r Release) Check() error {
	switch r.Recover {
	case "", RecoverAlways, RecoverTouched:
		return nil
	}
	return Invalid("recover", "%q: want %s or %s", r.Recover, RecoverAlways, RecoverTouched)
}

// ProfileSettings changes the settings of a profile. Fields that are nil stay as they
// are. While the profile is not free, Token has to be the current one.
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
	// HarmlessRequests are in the form "METHOD URL [NAME=VALUE]...", which
	// decision.ParseHarmless reads.
	HarmlessRequests *[]string `json:"harmless_requests,omitempty"`
	ReadOnly         *bool     `json:"read_only,omitempty"`
	// Mobility is lease.MobilityPinned or lease.MobilityFree.
	Mobility *string `json:"mobility,omitempty"`
	// FenceHeaderOrigins are in the form that monitor.CheckOrigin accepts.
	FenceHeaderOrigins *[]string `json:"fence_header_origins,omitempty"`
	// SessionCheck replaces the profile's session check; one with an empty URL removes it.
	SessionCheck *lease.SessionCheck `json:"session_check,omitempty"`
	// Labels replace all labels of the profile.
	Labels *lease.Labels `json:"labels,omitempty"`
}

// ProfileImport names a Chrome user-data-dir on the launcher's host, and the account and
// proxy of the profile that is made of a copy of it.
type ProfileImport struct {
	From      string  `json:"from"`
	AccountID *string `json:"account_id,omitempty"`
	ProxyID   *string `json:"proxy_id,omitempty"`
}

// ProfileClone names the profile that the copy becomes.
type ProfileClone struct {
	To string `json:"to"`
	// SnapshotID is the snapshot that is copied, or NewestSnapshot: at any launcher, whoever has
	// the profile. Empty: its directory is, at its home, while nobody uses it.
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// ProfileArchive may carry the lease token that the caller saw. If it is not the current
// one, the request is refused.
type ProfileArchive struct {
	Token lease.Token `json:"lease_token,omitempty"`
}

// ProfileRehome makes a launcher the home of a profile, with a directory that a person says.
// Its token is the one that the person saw.
type ProfileRehome struct {
	Write
	// To is the launcher; empty: the one that is asked. Only the launcher itself does it.
	To string `json:"to,omitempty"`
	// One of these says what the directory is: that of a snapshot (an id, or "newest"), a copy
	// of the Chrome user-data-dir From, of the one that the profile left on this host before
	// (Left), or an empty one.
	Snapshot string `json:"snapshot,omitempty"`
	From     string `json:"from,omitempty"`
	Left     bool   `json:"left,omitempty"`
	Empty    bool   `json:"empty,omitempty"`
	// Person is what the person is called, and Note why it is done.
	Person string `json:"person"`
	Note   string `json:"note"`
	// AcceptLoss confirms that what is only in the directory of the old home is not taken along.
	AcceptLoss bool `json:"accept_loss"`
	// AskHome has a home that is there give the profile up. Without it only a home that is gone
	// loses it.
	AskHome bool `json:"ask_home,omitempty"`
}

// ProfileMove makes a launcher the home of a profile that nobody uses, with its newest snapshot,
// which is of the profile as it is now. Its token is the one that was seen.
type ProfileMove struct {
	Write
	// To is the launcher; empty: the one that is asked. Only the launcher itself does it.
	To string `json:"to,omitempty"`
	// Person is what the person is called, and Note why it is done.
	Person string `json:"person"`
	Note   string `json:"note,omitempty"`
}

// ProfileRemove carries the lease token that the caller saw. If it is not the current
// one, the request is refused.
type ProfileRemove struct {
	Token lease.Token `json:"lease_token"`
}

// Removed says that a clone is gone.
type Removed struct {
	ProfileID string `json:"profile_id"`
	// CloneOf is the profile that it was a copy of.
	CloneOf string    `json:"clone_of"`
	At      time.Time `json:"at"`
}

// Archived says where a profile was put aside.
type Archived struct {
	ProfileID string    `json:"profile_id"`
	Path      string    `json:"path"`
	At        time.Time `json:"at"`
}

// Snapshot describes one snapshot of a profile.
type Snapshot = snapshots.Snapshot

// SnapshotsChecked is what reading every byte of a profile's snapshots found.
type SnapshotsChecked = snapshots.Checked

// ProfileRestore is a person's decision to bring back a snapshot. It carries the lease token
// that the person saw. If it is not the current one, the request is refused.
type ProfileRestore struct {
	// SnapshotID is the snapshot, or NewestSnapshot.
	SnapshotID string      `json:"snapshot_id"`
	Token      lease.Token `json:"lease_token"`
	// Person is what the person is called.
	Person string `json:"person,omitempty"`
	Note   string `json:"note,omitempty"`
}

// NewestSnapshot stands for a profile's newest snapshot.
const NewestSnapshot = "newest"

// LeaseToken returns the token that the request carries.
func (r ProfileRestore) LeaseToken() lease.Token { return r.Token }

// Restored says that a profile has the state of a snapshot.
type Restored struct {
	ProfileID  string      `json:"profile_id"`
	SnapshotID string      `json:"snapshot_id"`
	State      lease.State `json:"state"`
	Token      lease.Token `json:"lease_token"`
	// Kept is the directory that has the state before, in the archive; left out where
	// there was none.
	Kept string    `json:"kept,omitempty"`
	At   time.Time `json:"at"`
}

// ProfileVerify may name the one snapshot to verify; else all are.
type ProfileVerify struct {
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// SessionChecked is what a profile's session check found.
type SessionChecked struct {
	ProfileID string `json:"profile_id"`
	// SignedIn is yes, no or unknown. How says for a person how it was found.
	SignedIn string `json:"signed_in"`
	How      string `json:"how"`
	// Status is that of the site's answer; left out where there was none.
	Status int       `json:"status,omitempty"`
	At     time.Time `json:"at"`
}

// Bundle is one entry in the list of a profile's evidence.
type Bundle struct {
	EvidenceID     string      `json:"evidence_id"`
	Token          lease.Token `json:"lease_token"`
	At             time.Time   `json:"at"`
	RecoveryReason string      `json:"recovery_reason"`
	LastKnownURL   string      `json:"last_known_url,omitempty"`
	LastKnownStep  string      `json:"last_known_step,omitempty"`
	// Checkpoint is the one at which the picture was taken, if it was taken at one.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Encrypted says that the bundle is encrypted at rest, and Locked that this
	// launcher cannot open it: its URL, step and reasons are not shown then.
	Encrypted bool   `json:"encrypted,omitempty"`
	Locked    bool   `json:"locked,omitempty"`
	Parts     []Part `json:"parts"`
	// SessionID is the session that it is about; empty where it is about none.
	SessionID string `json:"session_id,omitempty"`
	// Pages are the pages that were open, in the order in which they last did something.
	Pages []BundlePage `json:"pages,omitempty"`
	// Pictures are those that were stored while the session lived, the oldest first.
	Pictures []BundlePicture `json:"pictures,omitempty"`
}

// BundlePage is one page that was open when a bundle was made. Texts are the page's own.
type BundlePage struct {
	// TargetID is Chrome's name of the page.
	TargetID string `json:"target_id"`
	URL      string `json:"url"`
	Title    string `json:"title"`
	// Screenshot names the part that shows it; where there is none, Missing says why.
	Screenshot string `json:"screenshot,omitempty"`
	Missing    string `json:"screenshot_missing,omitempty"`
	// Dialog is the type and the text of the dialog that was open; empty where none was.
	Dialog  string `json:"dialog,omitempty"`
	Crashed bool   `json:"crashed,omitempty"`
	// Primary says that the page was the one used last.
	Primary bool `json:"primary,omitempty"`
}

// BundlePicture is a picture of a living session: a bundle of its own with one part.
type BundlePicture struct {
	EvidenceID string    `json:"evidence_id"`
	Part       string    `json:"part"`
	At         time.Time `json:"at"`
	URL        string    `json:"url"`
	Step       string    `json:"step"`
	// Checkpoint is the one at which it was taken, if it was taken at one.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Missing says why it shows nothing.
	Missing string `json:"missing,omitempty"`
}

// Part is one file of a bundle.
type Part struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Missing says why the part could not be captured. Such a part has no content.
	Missing string `json:"missing,omitempty"`
}

// EvidenceExport says how a bundle is to be exported.
type EvidenceExport struct {
	// Format is har, html or zip.
	Format string
	// Unverified exports also what is not as it was sealed; the file says so.
	Unverified bool
	// Stored exports, as zip, what is stored, and opens nothing that is encrypted.
	Stored bool
}

// ExportedEvidence is a bundle as a file.
type ExportedEvidence struct {
	FileName  string
	MediaType string
	// Write writes the file, once. After an error it is not whole.
	Write func(ctx context.Context, w io.Writer) error
}

// Inspection is what was found about a profile in recovery, and the decision that
// follows.
type Inspection struct {
	Facts    []Fact   `json:"facts"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	// DecisionVersion is the version of the decision table.
	DecisionVersion int `json:"decision_version,omitempty"`
	// UnsafeRequests are the last unsafe requests of the session, the oldest first, with
	// what each was answered.
	UnsafeRequests []UnsafeRequest `json:"unsafe_requests,omitempty"`
	// Against says what spoke against letting the profile go, where that is for a person to
	// decide: what weighs most comes first.
	Against []Objection `json:"against,omitempty"`
}

// Objection is one fact that spoke against letting a profile go. Sentence says so in words
// for a person.
type Objection struct {
	Fact     string `json:"fact"`
	Answer   string `json:"answer"`
	Sentence string `json:"sentence"`
}

// UnsafeRequest is an unsafe request that a page sent, or several equal ones.
type UnsafeRequest struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	URL    string    `json:"url"`
	// Times is how many equal requests it stands for.
	Times uint64 `json:"times"`
	// Status is that of the answer; 0: there was none, or none is known.
	Status int `json:"status"`
	// Answer says in words how it ended: with the status, failed and why, unanswered, or
	// not known. It is empty for what has no answers, such as messages on a websocket.
	Answer string `json:"answer,omitempty"`
	// Counts says as what it counts: unsafe, background, harmless or anonymous.
	Counts string `json:"counts"`
	// SinceSafeCheckpoint says that the last safe checkpoint does not vouch for it.
	SinceSafeCheckpoint bool `json:"since_safe_checkpoint"`
}

// Fact is one answer (yes, no or unknown) of an inspection, and how it was found.
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
	// EvidenceID names the bundle that the person decided on; a decision on the bundle of
	// another incident is refused. Empty: the token alone names the incident.
	EvidenceID string `json:"evidence_id,omitempty"`
	// Home is the launcher that is to be the home, of a profile whose home is contested
	// or only remembered; empty: it stays.
	Home string `json:"home,omitempty"`
}

// HoldRequest is a person's request to use a profile by hand. Token is the lease token
// that the person saw.
type HoldRequest struct {
	Write
	Holder string `json:"holder"`
	Note   string `json:"note,omitempty"`
	// LockTimeoutSeconds is how long the person may keep it; after that the profile
	// goes through recovery. Zero means DefaultHold.
	LockTimeoutSeconds float64 `json:"lock_timeout_seconds,omitempty"`
	Headless           *bool   `json:"headless,omitempty"`
}

// DefaultHold is how long a person who does not say may keep a profile.
const DefaultHold = time.Hour

// Target is one entry of Chrome's /json/list.
type Target struct {
	ID    string `json:"targetId"`
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// BrowserVersion is what /json/version says about the browser.
type BrowserVersion struct {
	Browser         string
	ProtocolVersion string
	UserAgent       string
	V8Version       string
	WebKitVersion   string
}

// Connection is a websocket of a session that was accepted, but whose upgrade is not yet
// answered. Either Serve or Cancel is called, once.
type Connection interface {
	// Session is the session that the 101's headers describe.
	Session() Session
	// Serve speaks the websocket protocol on conn until either side ends it, and closes
	// conn. The upgrade has been answered. What the client sent since is read from
	// buffered first.
	Serve(conn net.Conn, buffered *bufio.Reader)
	// Cancel gives the connection up instead of serving it.
	Cancel()
}

// Service is the launcher as its surfaces see it. The surface has made sure that the
// principal of ctx (principal.Of) may do what it asks for. An error is a *Problem if the caller
// has to know more than that the call failed.
type Service interface {
	// Acquire grants the manifest's profile to the principal of ctx and starts its
	// browser. With OneShot it joins a living session of the same worker and task that
	// this principal opened. It waits as long as the manifest says.
	Acquire(ctx context.Context, m Manifest) (Session, error)
	// Connect opens a connection to one target of a session, or to its browser if
	// targetID is "". closeFrames says that the client takes websocket close frames; one
	// that does not is shown an end by the end of the stream.
	Connect(ctx context.Context, sessionID, targetID string, closeFrames bool) (Connection, error)

	// View opens a connection on which the principal of ctx watches a session: pictures,
	// tabs, and what its worker does. One that too many watch is refused.
	View(ctx context.Context, sessionID string) (Connection, error)

	// Sessions returns the living sessions, oldest first.
	Sessions() []Session
	// Session returns a session, living or over.
	Session(sessionID string) (Session, error)
	// SessionByCapability returns the session that the secret in a path opens. If the
	// session is known and over, it returns session_ended.
	SessionByCapability(capability string) (Session, error)
	// SessionOf returns the living session of a profile, worker and task that the
	// principal of ctx opened; an empty profile stands for any.
	SessionOf(ctx context.Context, profileID, workerID, taskID string, ephemeral bool) (Session, bool)

	// Heartbeat, Step, Checkpoint and Event are writes under the session's lease token.
	Heartbeat(ctx context.Context, sessionID string, h Heartbeat) (Session, error)
	Step(ctx context.Context, sessionID string, s Step) error
	Checkpoint(ctx context.Context, sessionID string, c Checkpoint) error
	Event(ctx context.Context, sessionID string, e TaskEvent) error
	// Release ends the session and returns when the profile is free, or decided about.
	Release(ctx context.Context, sessionID string, r Release) (Session, error)

	// Ask waits until a person hands the session back, or for as long as the request says.
	// The worker keeps its lease and counts as alive meanwhile.
	Ask(ctx context.Context, sessionID string, a AskPerson) (Answer, error)
	// TakeOver gives a session to the principal of ctx, as a person. Its worker keeps the
	// lease, and may only read until HandBack.
	TakeOver(ctx context.Context, sessionID string, t TakeOver) (Session, error)
	// HandBack lets the worker of a session that the principal of ctx took over go on.
	HandBack(ctx context.Context, sessionID string, h HandBack) (Session, error)

	// Targets lists what Chrome's own /json/list would.
	Targets(ctx context.Context, sessionID string) ([]Target, error)
	// NewTarget opens a tab with the URL.
	NewTarget(ctx context.Context, sessionID, url string) (Target, error)
	// ActivateTarget brings a tab to the front.
	ActivateTarget(ctx context.Context, sessionID, targetID string) error
	// CloseTarget closes a tab.
	CloseTarget(ctx context.Context, sessionID, targetID string) error
	// Version describes the browser binary. It starts no browser.
	Version(ctx context.Context) (BrowserVersion, error)
	// Protocol returns Chrome's protocol description, with the Lease domain added.
	Protocol(ctx context.Context, sessionID string) (json.RawMessage, error)

	// ListProfiles lists the profiles that have a record or a directory here. It is made of
	// what the launcher has seen, and so also while the lease store cannot be reached.
	ListProfiles(ctx context.Context, q ProfileQuery) (ProfilePage, error)
	// Changes tells when such lists may have changed.
	Changes() Changes
	// Hosts lists the launchers on the lease store, as far as this one has seen them.
	Hosts(ctx context.Context) (Hosts, error)
	// Queue lists the requests that wait for a lease, here and at the other launchers that
	// live, in the order in which they began to wait.
	Queue(ctx context.Context) ([]Waiting, error)
	// Profile returns the record of a profile.
	Profile(ctx context.Context, profileID string) (lease.Record, error)
	// PutProfile creates the profile (directory and record) or changes its settings.
	PutProfile(ctx context.Context, profileID string, s ProfileSettings) (lease.Record, error)
	// ImportProfile makes a profile from a copy of a user-data-dir on this host.
	ImportProfile(ctx context.Context, profileID string, i ProfileImport) (lease.Record, error)
	// CloneProfile makes a new profile from a copy of one that nobody uses, or from a
	// snapshot of one, and returns the record of the new one.
	CloneProfile(ctx context.Context, profileID string, c ProfileClone) (lease.Record, error)
	// ArchiveProfile puts a profile that nobody uses aside. It deletes nothing.
	// MoveProfile makes this launcher the home of a profile, by way of its snapshot.
	MoveProfile(ctx context.Context, profileID string, m ProfileMove) (lease.Record, error)
	// RehomeProfile makes this launcher the home of a profile.
	RehomeProfile(ctx context.Context, profileID string, r ProfileRehome) (lease.Record, error)
	ArchiveProfile(ctx context.Context, profileID string, a ProfileArchive) (Archived, error)
	// RemoveClone deletes a profile that CloneProfile made and that nobody uses, and no
	// other one.
	RemoveClone(ctx context.Context, profileID string, r ProfileRemove) (Removed, error)
	// Snapshots lists a profile's snapshots, newest first.
	Snapshots(ctx context.Context, profileID string) ([]Snapshot, error)
	// RestoreProfile brings back a snapshot of a profile that nobody uses, under a higher
	// token. The state before is kept.
	RestoreProfile(ctx context.Context, profileID string, r ProfileRestore) (Restored, error)
	// VerifySnapshots reads every byte of a profile's snapshots.
	VerifySnapshots(ctx context.Context, profileID string, v ProfileVerify) (SnapshotsChecked, error)
	// CheckProfile makes the session check of a profile that nobody uses.
	CheckProfile(ctx context.Context, profileID string) (SessionChecked, error)
	// History returns the profile's events, oldest first.
	History(ctx context.Context, profileID string) ([]lease.Event, error)
	// Evidence lists the profile's bundles, newest first.
	Evidence(ctx context.Context, profileID string) ([]Bundle, error)
	// EvidenceManifest returns a bundle's manifest, byte for byte as it was sealed.
	EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error)
	// EvidencePart returns the bytes of a part and its media type: in clear, or with
	// stored as the store has it. The two differ for evidence that is encrypted; where
	// the launcher cannot open it, the first is refused with evidence_encrypted.
	EvidencePart(ctx context.Context, evidenceID, part string, stored bool) ([]byte, string, error)
	// ExportEvidence reads and checks a bundle, and returns it as a file that can be
	// written. One that is not as it was sealed is refused with evidence_damaged unless
	// that is asked for, and one that the launcher cannot open with evidence_encrypted.
	ExportEvidence(ctx context.Context, evidenceID string, e EvidenceExport) (ExportedEvidence, error)
	// Inspection returns what the profile's last recovery found.
	Inspection(ctx context.Context, profileID string) (Inspection, error)
	// Review applies a person's decision to a profile in manual review.
	Review(ctx context.Context, profileID string, r ReviewRequest) (lease.Record, error)
	// Hold gives the profile to a person and starts its browser, also if the profile is
	// in review. It ends by Release, or when the person closes the browser.
	Hold(ctx context.Context, profileID string, h HoldRequest) (Session, error)

	// Events follows the events of all profiles for the principal of ctx: after a place, or
	// from now on where that is lease.PlaceNow. The follower has to be closed.
	Events(ctx context.Context, after lease.Place) (EventFollower, error)

	// Ready returns nil if a lease could be granted now, or else the reason.
	Ready(ctx context.Context) error
}
