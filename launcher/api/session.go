package api

import (
	"encoding/json"
	"time"

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
	// ExchangeDir is a directory on the launcher's host whose files the session's pages may
	// read. Downloads go there if the worker names no other place. It is removed at the end of
	// the session, so an ended session has none.
	ExchangeDir string `json:"exchange_dir,omitempty"`
	// Ended says how the session ended, if it has.
	Ended string `json:"ended,omitempty"`
	// Released says that the session ended in order. An ended session without it was lost or
	// has gone through recovery, even if its worker asked for the release: its browser may not
	// have closed.
	Released bool `json:"released"`
	// UnfinishedDownloads is how many downloads were not finished when the end of the session's
	// browser began, which cuts them off.
	UnfinishedDownloads int `json:"unfinished_downloads,omitempty"`
	// Principal is the name of the principal that opened the session; empty for a session that
	// was opened by an older launcher, which did not record it.
	Principal string `json:"principal,omitempty"`
	// Ephemeral says that the session runs on a throwaway copy of a snapshot, and holds no
	// lease. Its lease token is that of the session after which the snapshot was made.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// SnapshotID and ReadOnly are set for an ephemeral session.
	SnapshotID string `json:"snapshot_id,omitempty"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	// Person is the person who has the session by hand; nil: nobody, so its worker drives it.
	Person *Person `json:"person"`
	// Ask is set while its worker waits for a person.
	Ask *Ask `json:"ask"`

	// Capability is the secret that opens the session. It is left out of the JSON: httpapi
	// makes URLs of it.
	Capability string `json:"-"`
	// OpenerUID is the user of this host who opened the session; nil if the kernel does not
	// know it.
	OpenerUID *uint32 `json:"-"`
}

// The states of a session.
const (
	SessionServing    = "serving"
	SessionRecovering = "recovering"
	SessionEnded      = "ended"
)

// Resume tells a resumed task where to continue. Data is what the task gave with the
// checkpoint, if anything.
type Resume struct {
	From       string          `json:"from"`
	Checkpoint string          `json:"checkpoint"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// Write has the fields that are common to all writes to a session.
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

// Step says what the worker does now.
type Step struct {
	Write
	Name      string `json:"name"`
	Action    string `json:"action,omitempty"`
	Sensitive bool   `json:"sensitive,omitempty"`
}

// Checkpoint marks a point of the task. The task may be resumed from it, unless Safe is false.
// Idempotent declares what of that which follows, up to the next checkpoint, may be done twice.
type Checkpoint struct {
	Write
	Name       string          `json:"name"`
	Safe       *bool           `json:"safe,omitempty"`
	Idempotent Idempotent      `json:"idempotent,omitzero"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// IsSafe tells whether the task may be resumed from it.
func (c Checkpoint) IsSafe() bool { return c.Safe == nil || *c.Safe }

// TaskEvent is anything that the task wants in the journal.
type TaskEvent struct {
	Write
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// The values of Release.Recover.
const (
	// RecoverAlways says that the worker died: its session is recovered like that of a lost
	// worker.
	RecoverAlways = "always"
	// RecoverTouched says that the worker failed. Its session is recovered if it sent anything
	// unsafe, or was anywhere sensitive, since its last safe checkpoint, if its task had resumed, or if
	// its pages go on in a browser that other runs use.
	RecoverTouched = "touched"
)

// Release ends a session: in order, or by recovery if Recover asks for that.
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
