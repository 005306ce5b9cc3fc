package api

import (
	"time"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

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
