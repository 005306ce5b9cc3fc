// Package lease holds the ownership of browser profiles: the record, the fencing
// token, the states and the transitions between them (pure functions of a record
// and a time); the presence of a launcher, on which its leases hang, the keeper
// that renews it, and the observer that tells when another's went silent; the
// fence that guards what a holder does.
//
// The package knows no network. A Store keeps records somewhere and changes them
// by compare-and-swap only; lease/natskv is the one in use.
//
// What is promised: tokens only grow; a transition that is not in the table is
// refused; a holder whose renewals stop is stopped by its own clock, before
// anybody else may act. What is not: a record that was read is never proof of
// anything. Decide by Swap.
package lease

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Token is the fencing token: fixed when a lease is granted, raised at every
// grant and at quarantine, and never lowered for a profile. It is not the
// store's revision.
type Token uint64

// State is where a profile's lease stands. The values are what outsiders see.
type State string

// The states of a lease.
const (
	Held           State = "held"
	SuspectedStale State = "suspected_stale"
	Quarantined    State = "quarantined"
	Inspected      State = "inspected"
	Available      State = "available"
	ResumePending  State = "resume_pending"
	ManualReview   State = "manual_review"
)

// Record is the lease of one profile, as stored and as shown. It never vanishes:
// a release is a state. Times are UTC and for people; no rule compares them with
// a clock of another host.
type Record struct {
	ProfileID string `json:"profile_id"`
	AccountID string `json:"account_id"`
	ProxyID   string `json:"proxy_id"`

	State     State  `json:"state"`
	Token     Token  `json:"lease_token"`
	SessionID string `json:"session_id"`
	// OwnerWorkerID and TaskID name the last owner; they stay after a release.
	OwnerWorkerID string `json:"owner_worker_id"`
	TaskID        string `json:"task_id"`
	LauncherID    string `json:"launcher_id"`
	// Home is the launcher whose disk holds the profile directory.
	Home string `json:"home"`
	// BootID is the boot of the home host during which Chrome was started.
	BootID string `json:"boot_id,omitempty"`
	// PresenceEpoch names the stay of LauncherID that the lease hangs on: a held
	// lease lives as long as that presence does.
	PresenceEpoch uint64 `json:"presence_epoch,omitempty"`

	AcquiredAt  time.Time `json:"acquired_at,omitzero"`
	HeartbeatAt time.Time `json:"heartbeat_at,omitzero"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	TTLSeconds  float64   `json:"ttl_seconds"`

	LastKnownURL       string `json:"last_known_url"`
	LastKnownStep      string `json:"last_known_step"`
	LastSafeCheckpoint string `json:"last_safe_checkpoint"`
	ResumeFrom         string `json:"resume_from"`

	SuspectedAt       time.Time `json:"suspected_at,omitzero"`
	RecoveryStartedAt time.Time `json:"recovery_started_at,omitzero"`
	ReleasedAt        time.Time `json:"released_at,omitzero"`
	AvailableAfter    time.Time `json:"available_after,omitzero"`

	Reason   string   `json:"reason"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons,omitempty"`
	// DecisionVersion is that of the table that Decision was made with; zero
	// where a person decided, or nobody could.
	DecisionVersion int    `json:"decision_version,omitempty"`
	EvidenceID      string `json:"evidence_id"`
	// EvidenceSHA256 is the hash of the manifest of EvidenceID; the next bundle
	// of the profile names it, so that a removed bundle shows.
	EvidenceSHA256 string `json:"evidence_sha256,omitempty"`
	// Outcome is what the worker said of its task when it released.
	Outcome string `json:"outcome,omitempty"`

	HumanReview

	// Runs are the tasks on the profile's Chrome now, in the order of their
	// grants.
	Runs []Run `json:"runs"`
	// LostRuns are those that were lost while others went on. Nobody joins any
	// more, and the profile goes through recovery when the last run ends.
	LostRuns []Run `json:"lost_runs,omitempty"`

	Settings

	// WarmSince is when the browser was left open without a session, as the
	// launcher that has it shows the record to clients. It is never stored.
	WarmSince time.Time `json:"warm_since,omitzero"`

	// Sequence counts the profile's events; each transition adds one or more.
	Sequence uint64 `json:"sequence"`
	// Nonce is unique to the write that stored this record: how a writer that
	// got no answer recognises its own write.
	Nonce string `json:"nonce,omitempty"`
	// Outbox holds events of the last transitions until they are known to be on
	// the event stream. The write that makes a transition carries its event, so
	// the two cannot come apart.
	Outbox []Event `json:"outbox,omitempty"`
}

// Settings are what the profile's owner sets for all its tasks. The account and the
// proxy are settings too; they stand at the beginning of a Record.
type Settings struct {
	// MaxActiveRuns is how many tasks may share the profile's browser at a time.
	MaxActiveRuns   int      `json:"max_active_runs"`
	ExpectedDomains []string `json:"expected_domains,omitempty"`
	SensitiveURLs   []string `json:"sensitive_urls,omitempty"`
	SensitiveWords  []string `json:"sensitive_words,omitempty"`
	// KeepWarm tells whether the browser stays open after a release; nil leaves
	// that to the tasks.
	KeepWarm *bool `json:"keep_warm,omitempty"`
	// BrowserMemory is how much memory the browser may use, in bytes, where that
	// is less than the limit of the host; zero means the limit of the host.
	BrowserMemory uint64 `json:"browser_memory_bytes,omitempty"`
	// HarmlessRequests describe requests that change nothing in the account.
	HarmlessRequests []string `json:"harmless_requests,omitempty"`
}

// HumanReview is the part that people have in a Record.
type HumanReview struct {
	// Review is the last decision that a person made about the profile; nil where
	// there is none since the last grant.
	Review *Review `json:"review,omitempty"`
	// ByHand names the person who uses the profile by hand now, or who used it
	// during the review that is open; nil where nobody does or did.
	ByHand *ByHand `json:"by_hand,omitempty"`
}

// Run is one task on the profile's Chrome, with a token of its own.
type Run struct {
	SessionID     string `json:"session_id"`
	Token         Token  `json:"lease_token"`
	OwnerWorkerID string `json:"owner_worker_id"`
	TaskID        string `json:"task_id"`
	// Exclusive says that the task shares the profile with nobody.
	Exclusive  bool      `json:"exclusive,omitempty"`
	AcquiredAt time.Time `json:"acquired_at,omitzero"`
	// EvidenceID is of a lost run.
	EvidenceID string `json:"evidence_id,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// ByHand is a person's use of a profile.
type ByHand struct {
	Holder string    `json:"holder"`
	Note   string    `json:"note,omitempty"`
	Since  time.Time `json:"since"`
	// Review is the review that was open before. It is open again when the
	// person is done.
	Review *OpenReview `json:"review,omitempty"`
}

// OpenReview is what a record shows of an incident that waits for a person.
type OpenReview struct {
	SessionID       string   `json:"session_id"`
	OwnerWorkerID   string   `json:"owner_worker_id"`
	TaskID          string   `json:"task_id"`
	Reason          string   `json:"reason"`
	Decision        string   `json:"decision"`
	Reasons         []string `json:"reasons,omitempty"`
	DecisionVersion int      `json:"decision_version,omitempty"`
	// EvidenceID is the incident's bundle.
	EvidenceID         string    `json:"evidence_id"`
	LastKnownURL       string    `json:"last_known_url"`
	LastKnownStep      string    `json:"last_known_step"`
	LastSafeCheckpoint string    `json:"last_safe_checkpoint"`
	SuspectedAt        time.Time `json:"suspected_at,omitzero"`
	RecoveryStartedAt  time.Time `json:"recovery_started_at,omitzero"`
	Review             *Review   `json:"review,omitempty"`
}

// Review is what a person decided about a profile in manual review.
type Review struct {
	Decision  string    `json:"decision"`
	Reviewer  string    `json:"reviewer"`
	Note      string    `json:"note,omitempty"`
	TokenSeen Token     `json:"lease_token"`
	At        time.Time `json:"at"`
}

// profileID is section 1 of the design: it keeps an id inside one path element,
// one KV key and one subject token.
var profileID = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// CheckProfileID returns an error that says what a profile id has to look like,
// if id does not.
func CheckProfileID(id string) error {
	if !profileID.MatchString(id) {
		return fmt.Errorf("profile id %q: want 1 to 128 of A-Z a-z 0-9 . _ - and no dot in front", clip(id))
	}
	return nil
}

func clip(s string) string {
	if len(s) > 140 {
		return s[:140] + "..."
	}
	return s
}

// Key returns the profile's name in keys and subjects, where a dot separates.
func Key(profile string) string { return strings.ReplaceAll(profile, ".", "=2E") }

// ProfileOfKey is the inverse of Key.
func ProfileOfKey(key string) string { return strings.ReplaceAll(key, "=2E", ".") }

// Clone returns a copy that shares nothing with r.
func (r Record) Clone() Record {
	r.Reasons = slices.Clone(r.Reasons)
	r.Runs = slices.Clone(r.Runs)
	r.LostRuns = slices.Clone(r.LostRuns)
	r.Settings = r.Settings.clone()
	r.Outbox = slices.Clone(r.Outbox)
	if r.Review != nil {
		review := *r.Review
		r.Review = &review
	}
	return r
}

func (s Settings) clone() Settings {
	s.ExpectedDomains = slices.Clone(s.ExpectedDomains)
	s.SensitiveURLs = slices.Clone(s.SensitiveURLs)
	s.SensitiveWords = slices.Clone(s.SensitiveWords)
	s.HarmlessRequests = slices.Clone(s.HarmlessRequests)
	if s.KeepWarm != nil {
		warm := *s.KeepWarm
		s.KeepWarm = &warm
	}
	return s
}

// Sessions are those that the record names: the latest, the living and the lost.
func (r Record) Sessions() []string {
	sessions := []string{r.SessionID}
	for _, run := range slices.Concat(r.Runs, r.LostRuns) {
		if !slices.Contains(sessions, run.SessionID) {
			sessions = append(sessions, run.SessionID)
		}
	}
	return sessions
}

// Public returns the record as outsiders see it: without what only the protocol
// needs.
func (r Record) Public() Record {
	r.Nonce, r.Outbox = "", nil
	if r.Runs == nil {
		r.Runs = []Run{}
	}
	return r
}
