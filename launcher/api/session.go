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
	// ExchangeDir is a directory on the launcher's host whose files the session's pages
	// may read, and where their downloads go if the worker does not say where. It is
	// removed with the session. An ended session has none.
	ExchangeDir string `json:"exchange_dir,omitempty"`
	// Ended says how the session ended, if it has.
	Ended string `json:"ended,omitempty"`
	// Released says that it ended in order. An ended session that is not released was lost or
	// has gone through recovery, even where its worker asked for its release: its browser may
	// not have closed.
	Released bool `json:"released"`
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
