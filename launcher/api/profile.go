package api

import (
	"time"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Profile is a profile as the launcher that was asked shows it: its record, and what that launcher
// sees beside it.
type Profile struct {
	lease.Record
	// WarmSince is since when the browser has been open without a session; zero if it is not, or if
	// another launcher has it.
	WarmSince time.Time `json:"warm_since,omitzero"`
	// HomeSilentSince is since when nothing was heard of the home, if it counts as gone by this
	// launcher's clock; zero: it is running.
	HomeSilentSince time.Time `json:"home_silent_since,omitzero"`
	// StaleSince is since when this launcher cannot reach the lease store, so that this is the
	// profile as it last saw it; zero: it can reach the store.
	StaleSince time.Time `json:"stale_since,omitzero"`
}

// Public returns the profile as clients get it: see lease.Record.Public.
func (p Profile) Public() Profile {
	p.Record = p.Record.Public()
	return p
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
	// HarmlessRequests have the form "METHOD URL [NAME=VALUE]...", which findings.ParseHarmless
	// reads.
	HarmlessRequests *[]string `json:"harmless_requests,omitempty"`
	ReadOnly         *bool     `json:"read_only,omitempty"`
	// Mobility is lease.MobilityPinned or lease.MobilityFree.
	Mobility *string `json:"mobility,omitempty"`
	// FenceHeaderOrigins have the form that monitor.CheckOrigin accepts.
	FenceHeaderOrigins *[]string `json:"fence_header_origins,omitempty"`
	// SessionCheck replaces the profile's session check; an empty URL removes it.
	SessionCheck *lease.SessionCheck `json:"session_check,omitempty"`
	// CheckEvery is how often that is checked while nobody uses the profile; zero: only after its
	// sessions.
	CheckEvery *lease.Duration `json:"check_every,omitempty"`
	// Timezone, Locale, Viewport and Geolocation are those of a lease.Appearance; an empty one is
	// the host's.
	Timezone    *string `json:"timezone,omitempty"`
	Locale      *string `json:"locale,omitempty"`
	Viewport    *string `json:"viewport,omitempty"`
	Geolocation *string `json:"geolocation,omitempty"`
	// Labels replace all labels of the profile.
	Labels *lease.Labels `json:"labels,omitempty"`
}

// ProfileImport names a Chrome user-data-dir on the launcher's host, and the account and proxy
// of the profile that is made of its copy.
type ProfileImport struct {
	From      string  `json:"from"`
	AccountID *string `json:"account_id,omitempty"`
	ProxyID   *string `json:"proxy_id,omitempty"`
}

// ProfileClone names the profile that the copy becomes.
type ProfileClone struct {
	To string `json:"to"`
	// SnapshotID is the snapshot to copy, or NewestSnapshot; this works on any launcher, even
	// while the profile is in use. If it is empty, the profile's directory is copied, at its
	// home, while nobody uses it.
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// ProfileArchive may have the lease token that the caller saw. If that is not the current one,
// the request is refused.
type ProfileArchive struct {
	Token lease.Token `json:"lease_token,omitempty"`
}

// ProfileRehome makes a launcher the home of a profile, with a directory that a person names.
// Its token is the one that the person saw.
type ProfileRehome struct {
	Write
	// To is the new home; empty: the launcher that is asked. Only the new home itself can do
	// it.
	To string `json:"to,omitempty"`
	// One of these says what the directory is made from: a snapshot (an id, or "newest"), a
	// copy of the Chrome user-data-dir From, a copy of the directory that the profile left on
	// this host before (Left), or nothing (Empty).
	Snapshot string `json:"snapshot,omitempty"`
	From     string `json:"from,omitempty"`
	Left     bool   `json:"left,omitempty"`
	Empty    bool   `json:"empty,omitempty"`
	// Person is the person's name, and Note is why it is done.
	Person string `json:"person"`
	Note   string `json:"note"`
	// AcceptLoss confirms that what exists only in the directory of the old home is left
	// behind.
	AcceptLoss bool `json:"accept_loss"`
	// AskHome asks a running home to give the profile up. Without it, only a home that is gone
	// loses the profile.
	AskHome bool `json:"ask_home,omitempty"`
}

// ProfileMove makes a launcher the home of a profile that nobody uses. The newest snapshot is
// used, and has to be of the profile's present state. Its token is the one that the caller saw.
type ProfileMove struct {
	Write
	// To is the new home; empty: the launcher that is asked. Only the new home itself can do
	// it.
	To string `json:"to,omitempty"`
	// Person is the person's name, and Note is why it is done.
	Person string `json:"person"`
	Note   string `json:"note,omitempty"`
}

// ProfileRemove has the lease token that the caller saw. If that is not the current one, the
// request is refused.
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

// Archived says where the directory of an archived profile is.
type Archived struct {
	ProfileID string    `json:"profile_id"`
	Path      string    `json:"path"`
	At        time.Time `json:"at"`
}

// Snapshot describes one snapshot of a profile.
type Snapshot = snapshots.Snapshot

// SnapshotsChecked is the result of reading every byte of a profile's snapshots.
type SnapshotsChecked = snapshots.Checked

// ProfileRestore is a person's decision to put a snapshot back. It has the lease token that the
// person saw. If that is not the current one, the request is refused.
type ProfileRestore struct {
	// SnapshotID is the snapshot, or NewestSnapshot.
	SnapshotID string      `json:"snapshot_id"`
	Token      lease.Token `json:"lease_token"`
	// Person is the person's name.
	Person string `json:"person,omitempty"`
	Note   string `json:"note,omitempty"`
}

// NewestSnapshot stands for a profile's newest snapshot.
const NewestSnapshot = "newest"

// LeaseToken returns the token that the request carries.
func (r ProfileRestore) LeaseToken() lease.Token { return r.Token }

// Restored says that a profile is in the state of a snapshot again.
type Restored struct {
	ProfileID  string      `json:"profile_id"`
	SnapshotID string      `json:"snapshot_id"`
	State      lease.State `json:"state"`
	Token      lease.Token `json:"lease_token"`
	// Kept is the directory with the state before, in the archive; it is left out if there was
	// none.
	Kept string    `json:"kept,omitempty"`
	At   time.Time `json:"at"`
}

// ProfileVerify may name a single snapshot to verify; otherwise all are verified.
type ProfileVerify struct {
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// SessionChecked is what a profile's session check found.
type SessionChecked struct {
	ProfileID string `json:"profile_id"`
	// SignedIn is yes, no or unknown. How tells a person how that was found.
	SignedIn string `json:"signed_in"`
	How      string `json:"how"`
	// Status is the status of the site's answer; it is left out if there was none.
	Status int       `json:"status,omitempty"`
	At     time.Time `json:"at"`
}
