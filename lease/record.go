package lease

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Token is the fencing token of a lease. Each grant and each quarantine of a profile
// raises it, and nothing ever lowers it. It is not the revision of the store.
type Token uint64

// State is the state of a profile's lease. Clients see these very values.
type State string

// The states of a lease.
const (
	Held           State = "held"            // a task or a person has the profile
	SuspectedStale State = "suspected_stale" // the worker or the launcher that has it seems to be lost
	Quarantined    State = "quarantined"     // only the recovery may use the profile
	Inspected      State = "inspected"       // the facts for the decision are known
	Available      State = "available"       // the profile may be granted
	ResumePending  State = "resume_pending"  // the profile may be granted to the task that is to resume
	ManualReview   State = "manual_review"   // a person has to decide
)

// Record is the lease of one profile, as it is stored and as clients see it. It is never
// deleted; a release is a state. Its times are UTC, and are meant for people: no rule compares
// them with the clock of another host.
type Record struct {
	ProfileID string `json:"profile_id"`
	AccountID string `json:"account_id"`
	ProxyID   string `json:"proxy_id"`

	State     State  `json:"state"`
	Token     Token  `json:"lease_token"`
	SessionID string `json:"session_id"`
	// Principal is the name of the principal that opened the last session, as was proved; empty
	// if it was not known. OwnerWorkerID and TaskID are what that caller said. They stay after
	// a release.
	Principal     string `json:"principal,omitempty"`
	OwnerWorkerID string `json:"owner_worker_id"`
	TaskID        string `json:"task_id"`
	LauncherID    string `json:"launcher_id"`
	// Home is the launcher whose disk has the profile directory.
	Home string `json:"home"`
	// HomeToken is the token under which the present home took over from another launcher; zero
	// for the first home.
	HomeToken Token `json:"home_token,omitempty"`
	// OtherHome is the launcher that made the profile anew after the store had forgotten
	// its home, until a person has decided which of the two it is.
	OtherHome string `json:"other_home,omitempty"`
	// Moved says how the profile came to its home; nil for the first home.
	Moved *Move `json:"moved,omitempty"`
	// MoveRequest asks the home to give the profile up; nil: nobody asks.
	MoveRequest *MoveRequest `json:"move_request,omitempty"`
	// RememberedBy is the launcher that recalled a record which the store had forgotten, in the
	// place of the home; empty as soon as the home or a person has said more.
	RememberedBy string `json:"remembered_by,omitempty"`
	// BootID names the boot of the home host during which Chrome was started.
	BootID string `json:"boot_id,omitempty"`
	// PresenceEpoch is the epoch of the launcher's presence in which the lease was
	// granted. A held lease is valid as long as that presence is.
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
	// DecisionVersion is the version of the table by which Decision was made; zero if a person
	// decided, or if nobody could.
	DecisionVersion int `json:"decision_version,omitempty"`
	// EvidenceID is the newest bundle of the profile.
	EvidenceID string `json:"evidence_id"`
	// EvidenceSHA256 is the hash of that bundle's manifest, in hexadecimal. The next bundle
	// names it, so that the removal of a bundle can be noticed.
	EvidenceSHA256 string `json:"evidence_sha256,omitempty"`
	// SnapshotID is the profile's newest snapshot in the profile store, and SnapshotToken is
	// the token of the session after which it was made; empty and zero if there is none. See
	// HasSnapshot.
	SnapshotID    string `json:"snapshot_id,omitempty"`
	SnapshotToken Token  `json:"snapshot_token,omitempty"`
	// Opened is how many browsers were opened on the profile under its token without a session,
	// such as those of session checks, and SnapshotOpened is how many of them had ended when the
	// newest snapshot was read.
	Opened         uint64 `json:"opened,omitempty"`
	SnapshotOpened uint64 `json:"snapshot_opened,omitempty"`
	// SnapshotSignedOut says that the newest snapshot was made while the account was signed out.
	// SignedInSnapshotID is the newest that is known to be of a signed-in account; empty: none is.
	SnapshotSignedOut  bool   `json:"snapshot_signed_out,omitempty"`
	SignedInSnapshotID string `json:"signed_in_snapshot_id,omitempty"`
	// Outcome is how the task ended, as its worker said at the release.
	Outcome string `json:"outcome,omitempty"`

	HumanReview

	Account

	// Runs are the tasks that use the profile's Chrome now, in the order of their
	// grants.
	Runs []Run `json:"runs"`
	// LostRuns are the runs that were lost while others went on. While there are
	// any, no task can join, and the profile is recovered when the last run ends. They
	// stay until that, or a person's review, lets the profile go.
	LostRuns []Run `json:"lost_runs,omitempty"`

	Settings

	// Sequence is the number of the profile's last event. Each transition adds one
	// or more.
	Sequence uint64 `json:"sequence"`
	// Nonce is unique to the write that stored this record. A writer that got no answer
	// recognizes its own write by it.
	Nonce string `json:"nonce,omitempty"`
	// Outbox has the events of the last transitions until they are known to be on
	// the event stream. A transition and its event are one write, so neither can be
	// stored without the other.
	Outbox []Event `json:"outbox,omitempty"`
}

// Settings are what the profile's owner sets for all its tasks. The account and the proxy are
// settings, too; they are at the beginning of a Record.
type Settings struct {
	// MaxActiveRuns is how many tasks may share the profile's browser at a time.
	MaxActiveRuns   int      `json:"max_active_runs"`
	ExpectedDomains []string `json:"expected_domains,omitempty"`
	SensitiveURLs   []string `json:"sensitive_urls,omitempty"`
	SensitiveWords  []string `json:"sensitive_words,omitempty"`
	// KeepWarm tells whether the browser stays open after a release; nil leaves
	// that to the tasks.
	KeepWarm *bool `json:"keep_warm,omitempty"`
	// BrowserMemory is how much memory the browser may use, in bytes, if that is less than the
	// limit of the host; zero means the limit of the host.
	BrowserMemory uint64 `json:"browser_memory_bytes,omitempty"`
	// HarmlessRequests describe requests that change nothing in the account.
	HarmlessRequests []string `json:"harmless_requests,omitempty"`
	// Mobility is MobilityFree for a profile that may move to another host by itself; empty is
	// MobilityPinned.
	Mobility string `json:"mobility,omitempty"`
	// ReadOnly says that unsafe requests of the profile's pages are failed.
	ReadOnly bool `json:"read_only,omitempty"`
	// FenceHeaderOrigins are the origins that get the lease token with each request.
	FenceHeaderOrigins []string `json:"fence_header_origins,omitempty"`
	// SessionCheck says how to find out whether the account is signed in; nil: that is not
	// checked.
	SessionCheck *SessionCheck `json:"session_check,omitempty"`
	// CheckEvery is how often that is checked while nobody uses the profile; zero: only after its
	// sessions.
	CheckEvery Duration `json:"check_every,omitempty"`
	// Labels are what tasks may ask for instead of the profile's name.
	Labels Labels `json:"labels,omitempty"`

	Appearance
}

// HumanReview is the part of a Record that is about people.
type HumanReview struct {
	// Review is the last decision that a person made about the profile; nil if there was none
	// since the last grant.
	Review *Review `json:"review,omitempty"`
	// ByHand names the person who uses the profile by hand now, or who used it during the open
	// review; nil if nobody does or did.
	ByHand *ByHand `json:"by_hand,omitempty"`
}

// Run is one task that uses the profile's Chrome, with a token of its own.
type Run struct {
	SessionID     string `json:"session_id"`
	Token         Token  `json:"lease_token"`
	OwnerWorkerID string `json:"owner_worker_id"`
	TaskID        string `json:"task_id"`
	// Principal is the name of the principal that opened the session, as was proved; empty if
	// it was not known.
	Principal string `json:"principal,omitempty"`
	// Exclusive says that the task wants the profile to itself.
	Exclusive  bool      `json:"exclusive,omitempty"`
	AcquiredAt time.Time `json:"acquired_at,omitzero"`
	// EvidenceID and Reason are set for a lost run.
	EvidenceID string `json:"evidence_id,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// ByHand says that a person uses a profile by hand.
type ByHand struct {
	Holder string `json:"holder"`
	// Principal is who the person was proved to be. Holder is the name that the person gave.
	Principal string    `json:"principal,omitempty"`
	Note      string    `json:"note,omitempty"`
	Since     time.Time `json:"since"`
	// Review is the review that was open when the person took the profile; nil if there was
	// none. It is open again when the person is done.
	Review *OpenReview `json:"review,omitempty"`
}

// OpenReview has the fields of a Record that describe an incident, while a person who took the
// profile out of its review uses it.
type OpenReview struct {
	SessionID       string   `json:"session_id"`
	OwnerWorkerID   string   `json:"owner_worker_id"`
	TaskID          string   `json:"task_id"`
	Principal       string   `json:"principal,omitempty"`
	Reason          string   `json:"reason"`
	Decision        string   `json:"decision"`
	Reasons         []string `json:"reasons,omitempty"`
	DecisionVersion int      `json:"decision_version,omitempty"`
	// EvidenceID is the bundle of the incident.
	EvidenceID string `json:"evidence_id"`
	// LostRuns are the runs that were lost in it, if there were several.
	LostRuns           []Run     `json:"lost_runs,omitempty"`
	LastKnownURL       string    `json:"last_known_url"`
	LastKnownStep      string    `json:"last_known_step"`
	LastSafeCheckpoint string    `json:"last_safe_checkpoint"`
	SuspectedAt        time.Time `json:"suspected_at,omitzero"`
	RecoveryStartedAt  time.Time `json:"recovery_started_at,omitzero"`
	Review             *Review   `json:"review,omitempty"`
}

// Review is what a person decided about a profile in manual review.
type Review struct {
	// Decision is ReviewApprove or ReviewKeep.
	Decision string `json:"decision"`
	Reviewer string `json:"reviewer"`
	// Principal is who the reviewer was proved to be. Reviewer is the name that the
	// person gave.
	Principal string `json:"principal,omitempty"`
	Note      string `json:"note,omitempty"`
	// TokenSeen is the token of the record that the reviewer saw.
	TokenSeen Token `json:"lease_token"`
	// EvidenceID is the bundle on which the reviewer based the decision; empty if none was
	// named.
	EvidenceID string `json:"evidence_id,omitempty"`
	// Home is the launcher that the reviewer made the home; empty: the home stays.
	Home string    `json:"home,omitempty"`
	At   time.Time `json:"at"`
}

// profileID is the form of a profile id: it fits into one path element, one KV key and
// one token of a NATS subject.
var profileID = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// CheckProfileID returns nil if id has the form of a profile id, and otherwise an error that
// describes that form.
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

// Key returns the profile id as it is written in KV keys and NATS subjects. A dot, which
// separates the parts of those, becomes "=2E".
func Key(profile string) string { return strings.ReplaceAll(profile, ".", "=2E") }

// ProfileOfKey is the inverse of Key.
func ProfileOfKey(key string) string { return strings.ReplaceAll(key, "=2E", ".") }

// FileName returns a name for a file of the profile, which no other profile has. It leaves room for
// prefixes and endings: a file system has 255 bytes for a name, and Key alone may need more.
func FileName(profile string) string {
	key := Key(profile)
	if len(key) <= 180 {
		return key
	}
	sum := sha256.Sum256([]byte(profile))
	return key[:100] + "==" + hex.EncodeToString(sum[:]) // no key has "=="
}

// Clone returns a copy that shares nothing with r except ByHand, Moved and MoveRequest, which
// are never changed.
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
	s.Labels = maps.Clone(s.Labels)
	s.FenceHeaderOrigins = slices.Clone(s.FenceHeaderOrigins)
	if s.SessionCheck != nil {
		check := *s.SessionCheck
		s.SessionCheck = &check
	}
	if s.KeepWarm != nil {
		warm := *s.KeepWarm
		s.KeepWarm = &warm
	}
	return s
}

// Sessions returns the ids of all sessions that the record names: the latest, those of
// the runs, and those of the lost runs.
func (r Record) Sessions() []string {
	sessions := []string{r.SessionID}
	for _, run := range slices.Concat(r.Runs, r.LostRuns) {
		if !slices.Contains(sessions, run.SessionID) {
			sessions = append(sessions, run.SessionID)
		}
	}
	return sessions
}

// AccountName is the account by which its secret is found: the profile's own name where it has no other.
func (r Record) AccountName() string { return cmp.Or(r.AccountID, r.ProfileID) }

// Public returns the record as clients see it: without the nonce and the outbox, which
// only launchers need.
func (r Record) Public() Record {
	r.Nonce, r.Outbox = "", nil
	if r.SignedIn == "" {
		r.SignedIn = SignedInUnknown
	}
	if r.Runs == nil {
		r.Runs = []Run{}
	}
	return r
}
