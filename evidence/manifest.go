// Package evidence saves what can be known about a session before any of it is cleaned up. A
// bundle has screenshots, page structure, the journal, and whatever else its maker adds. It is
// sealed by a manifest that contains the hash of each part, and the hash of the manifest of the
// profile's previous bundle.
//
// A Bundle is filled and sealed in a Spool on local disk. An Archive uploads sealed bundles to
// a Store, and reads them wherever they are; its Retain removes bundles that are too old or too
// many, and leaves anchors. Verify recomputes every hash. The packages capture and recorder
// make the parts.
//
//	bundle.go, spool.go   a bundle is begun, names the one before it, is filled and sealed
//	archive.go            it is uploaded; it leaves the spool after every byte was read back
//	chain.go              bundles that no other one names yet are named by the next one
//	pictures.go           pictures of a living session, which the bundle of its loss names
//	retention.go          old ends of chains are removed, and anchors left
//	verify.go             every hash, and each profile's chain
//
// What is promised: when Seal returns, a sealed bundle is on disk and synced. It is never
// changed after that, and leaves the spool only after the store's copy was read back. URLs in
// manifests are redacted, but text that was typed into the path of a URL stays.
package evidence

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"leasehold/evidence/redact"
)

// The kinds of parts.
const (
	KindScreenshot    = "screenshot"
	KindDOM           = "dom"
	KindJournal       = "journal"
	KindCommands      = "commands"
	KindOutput        = "output"
	KindProcesses     = "processes"
	KindLock          = "lock"
	KindNetwork       = "network"
	KindWithheld      = "withheld"
	KindConsole       = "console"
	KindCookiesDigest = "cookies_digest"
	KindDigests       = "digests"
	KindBrowser       = "browser"
	KindRetention     = "retention"
	KindChain         = "chain"
	KindLook          = "look"   // what the open pages ask for, see Found
	KindDetail        = "detail" // the part of a screenshot that shows a fact
)

// ManifestName is the reserved name of the manifest among a bundle's files.
const ManifestName = "manifest.json"

// Manifest says what a bundle is about, and seals its parts. Spool.New takes all fields above
// Pages from its caller, except LastScreenshot. Times are UTC.
type Manifest struct {
	EvidenceID string    `json:"evidence_id"`
	ProfileID  string    `json:"profile_id"`
	SessionID  string    `json:"session_id"`
	AccountID  string    `json:"account_id"`
	LauncherID string    `json:"launcher_id"`
	At         time.Time `json:"at"`

	OldWorkerID string `json:"old_worker_id"`
	OldTaskID   string `json:"old_task_id"`
	// Principal is the name of the principal that opened the session, as was proved; empty if
	// it was not known.
	Principal       string    `json:"principal,omitempty"`
	LeaseToken      uint64    `json:"lease_token"`
	LastHeartbeatAt time.Time `json:"last_heartbeat_at,omitzero"`
	DetectedStaleAt time.Time `json:"detected_stale_at,omitzero"`
	LastKnownStep   string    `json:"last_known_step"`
	LastKnownURL    string    `json:"last_known_url"`
	// LastScreenshot names the part that shows the page used last; empty if there is none.
	LastScreenshot string `json:"last_screenshot"`
	ProxyID        string `json:"proxy_id"`
	ProfileDir     string `json:"profile_dir"`
	RecoveryReason string `json:"recovery_reason"`
	// Outcome is what the worker said at an orderly release.
	Outcome string `json:"outcome,omitempty"`

	// The profile's bundle before this one, by its lease record; empty for the first.
	PreviousEvidenceID     string `json:"previous_evidence_id"`
	PreviousManifestSHA256 string `json:"previous_manifest_sha256"`
	// AlsoFollows are further bundles of the profile that no bundle had named when this
	// one was sealed. Their tokens may be higher. Sealing sets it.
	AlsoFollows []Link `json:"also_follows,omitempty"`

	// Checkpoint is the checkpoint at which a picture was taken; empty if there was none.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Pictures are those that were stored while the session lived, oldest first.
	Pictures []Picture `json:"pictures,omitempty"`
	// StateChanged says whether cookies or storage have changed since the grant; nil if they
	// were not compared.
	StateChanged *StateChange `json:"state_changed,omitempty"`
	// Found are the facts that the open pages showed; empty if nobody looked.
	Found []Found `json:"found,omitempty"`
	// Encryption is nil for a bundle in clear. If it is set, the fields that it hides are
	// empty.
	Encryption *Encryption `json:"encryption,omitempty"`

	// Pages are what was captured of the browser's pages; see SetPages.
	Pages []PageResult `json:"pages"`
	Parts []Part       `json:"parts"`
}

// PageResult is what was captured of a page. Its texts are shortened, and its URLs are
// redacted.
type PageResult struct {
	TargetID string `json:"target_id"`
	// URL is where the target is, or is navigating to; CommittedURL is the document that it
	// shows.
	URL          string `json:"url"`
	CommittedURL string `json:"committed_url"`
	Title        string `json:"title"`
	// Screenshot and DOM name parts; if there is none, Missing and DOMMissing say why.
	Screenshot string `json:"screenshot,omitempty"`
	Missing    string `json:"screenshot_missing,omitempty"`
	DOM        string `json:"dom,omitempty"`
	DOMMissing string `json:"dom_missing,omitempty"`
	Dialog     string `json:"dialog,omitempty"`
	Crashed    bool   `json:"crashed,omitempty"`
	Primary    bool   `json:"primary,omitempty"`
}

// Part is one file of a bundle, or the reason why there is none.
type Part struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	MediaType string `json:"media_type,omitempty"`
	// Bytes and SHA256, in lower-case hex, are about what is stored; they are empty for a
	// missing part.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Missing says why the part could not be captured; then it has no content.
	Missing string `json:"missing,omitempty"`
}

func (p Part) with(content []byte) Part {
	p.Bytes, p.SHA256 = int64(len(content)), sha256Hex(content)
	return p
}

// Link names a sealed bundle by its id and the hex SHA-256 of its manifest. A bundle has a link
// to the bundle before it, and a lease record has one to the newest.
type Link struct {
	EvidenceID string `json:"evidence_id"`
	SHA256     string `json:"manifest_sha256"`
}

// previous points at the profile's bundle before this one.
func (m Manifest) previous() Link { return Link{m.PreviousEvidenceID, m.PreviousManifestSHA256} }

// follows returns every link of a bundle, beginning with the one to the bundle before it.
func (m Manifest) follows() []Link {
	if m.PreviousEvidenceID == "" {
		return m.AlsoFollows
	}
	return append([]Link{m.previous()}, m.AlsoFollows...)
}

// Errors that readers of evidence distinguish.
var (
	// ErrNotFound says that there is no such bundle or part.
	ErrNotFound = errors.New("no such evidence")
	// ErrDamaged says that what is stored is not what was stored.
	ErrDamaged = errors.New("stored evidence is damaged")
	// ErrConflict says that another bundle is stored under the same id.
	ErrConflict = errors.New("another bundle has this evidence id")
)

// safeName keeps an id or a part's name inside one element of a path.
var safeName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// SafeName tells whether a text can be an evidence id or the name of a part: 1 to 128 of A-Z
// a-z 0-9 . _ -, and no leading dot. A Reader finds nothing under other names.
func SafeName(name string) bool { return safeName.MatchString(name) }

func checkName(what, name string) error {
	if !SafeName(name) {
		return fmt.Errorf("%s %q: want 1 to 128 of A-Z a-z 0-9 . _ - and no dot in front", what, shortID(name))
	}
	return nil
}

// shortID bounds a text that should be an id, for messages.
func shortID(s string) string { return redact.Clip(s, 140) }

// encodeJSON returns the indented JSON of a manifest or a part, with a line end. Its exact form
// is covered by the hashes.
func encodeJSON(v any, indent string) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", indent)
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Decode reads, for a Reader, the manifest that is stored under an id. If it is not JSON, or
// the manifest of another bundle, Decode returns ErrDamaged, and what could be read.
func Decode(evidenceID string, raw []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("evidence %s: %w: its manifest is not JSON: %w", evidenceID, ErrDamaged, err)
	}
	if m.EvidenceID != evidenceID {
		return m, fmt.Errorf("evidence %s: %w: its manifest is that of %q", evidenceID, ErrDamaged, shortID(m.EvidenceID))
	}
	return m, nil
}

// Newest sorts manifests, newest first: by token, which only grows, then by the time they were
// made. A session's pictures come after its bundle, and anchors come last.
func Newest(list []Manifest) {
	last := func(is func(Manifest) bool, a, b Manifest) int {
		switch {
		case is(a) == is(b):
			return 0
		case is(a):
			return 1
		}
		return -1
	}
	slices.SortFunc(list, func(a, b Manifest) int {
		return cmp.Or(last(Manifest.IsAnchor, a, b), cmp.Compare(b.LeaseToken, a.LeaseToken), last(Manifest.IsPicture, a, b),
			b.At.Compare(a.At), cmp.Compare(b.EvidenceID, a.EvidenceID))
	})
}
