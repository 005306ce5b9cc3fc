package api

import (
	"context"
	"io"
	"time"

	"leasehold/checkpoint/shape"
	"leasehold/lease"
)

// Bundle is one entry in the list of a profile's evidence.
type Bundle struct {
	EvidenceID     string      `json:"evidence_id"`
	Token          lease.Token `json:"lease_token"`
	At             time.Time   `json:"at"`
	RecoveryReason string      `json:"recovery_reason"`
	LastKnownURL   string      `json:"last_known_url,omitempty"`
	LastKnownStep  string      `json:"last_known_step,omitempty"`
	// Checkpoint is the checkpoint at which the picture was taken, if any.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Encrypted says that the bundle is encrypted at rest; Locked, that this launcher cannot
	// open it: its URL, step and reasons are then not shown.
	Encrypted bool   `json:"encrypted,omitempty"`
	Locked    bool   `json:"locked,omitempty"`
	Parts     []Part `json:"parts"`
	// SessionID is the session that the bundle is about; empty if it is about none.
	SessionID string `json:"session_id,omitempty"`
	// Pages are the pages that were open, ordered by the time when they last did something.
	Pages []BundlePage `json:"pages,omitempty"`
	// Pictures are those that were stored while the session lived, oldest first.
	Pictures []BundlePicture `json:"pictures,omitempty"`
}

// BundlePage is one page that was open when a bundle was made. Its texts come from the page
// itself.
type BundlePage struct {
	// TargetID is Chrome's name of the page.
	TargetID string `json:"target_id"`
	URL      string `json:"url"`
	Title    string `json:"title"`
	// Screenshot names the part that shows the page; if there is none, Missing says why.
	Screenshot string `json:"screenshot,omitempty"`
	Missing    string `json:"screenshot_missing,omitempty"`
	// Dialog is the type and the text of the dialog that was open; empty if there was none.
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
	// Checkpoint is the checkpoint at which it was taken, if any.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Missing says why there is no picture.
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
	// Unverified exports also a bundle that is not as it was sealed; the file then says so.
	Unverified bool
	// Stored exports (as zip) what is stored, without decrypting anything.
	Stored bool
}

// ExportedEvidence is a bundle as a file.
type ExportedEvidence struct {
	FileName  string
	MediaType string
	// Write writes the file, once. After an error the file is not complete.
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
	// ForeignLock is the owner of Chrome's own lock in the directory, host-pid, if it was
	// written under the name of another host. Who approves the profile says that no browser
	// there has it.
	ForeignLock string `json:"foreign_lock,omitempty"`
	// Account is what sites said about the account, beside what they said before the session, one
	// sentence for each question: what changed comes first.
	Account []string `json:"account,omitempty"`
	// UnsafeRequests are the last unsafe requests of the session with their answers, oldest
	// first.
	UnsafeRequests []UnsafeRequest `json:"unsafe_requests,omitempty"`
	// Typed are the last fields of pages that were typed into, oldest first.
	Typed []Typed `json:"typed,omitempty"`
	// Against says what spoke against letting the profile go, if a person has to decide about
	// it. The most important comes first.
	Against []Objection `json:"against,omitempty"`
}

// Objection is one fact that spoke against letting a profile go. Sentence puts it into words
// for a person.
type Objection struct {
	Fact     string `json:"fact"`
	Answer   string `json:"answer"`
	Sentence string `json:"sentence"`
}

// UnsafeRequest is an unsafe request that a page sent, or several identical ones.
type UnsafeRequest struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	URL    string    `json:"url"`
	// Shape is what the request does, without values: "POST https://shop.example/cart/{}
	// form(color,qty)"; see shape.Of. It is empty in what older sidecars kept.
	Shape string `json:"shape,omitempty"`
	// Times is the number of identical requests that it stands for.
	Times uint64 `json:"times"`
	// Status is the status of the answer; 0: there was no answer, or it is not known.
	Status int `json:"status"`
	// Answer says in words how the request ended: with the status, failed and why, unanswered,
	// or not known. It is empty for what gets no answer, such as messages on a websocket.
	Answer string `json:"answer,omitempty"`
	// Counts says how the inspection counts it: unsafe, query, harmless (declared so, known to
	// only read, or shown by its site to have done nothing), anonymous, or blocked if it never left the browser.
	Counts string `json:"counts"`
	// Known is what the file of its site said of it when it was sent, read or write, and KnownBy is
	// the line that said so.
	Known   string `json:"known,omitempty"`
	KnownBy string `json:"known_by,omitempty"`
	// SinceSafeCheckpoint says that the last safe checkpoint does not vouch for it.
	SinceSafeCheckpoint bool `json:"since_safe_checkpoint"`
}

// Content is what the request's shape says beside the method and the URL.
func (r UnsafeRequest) Content() string { return shape.Content(r.Shape) }

// Typed says that something was typed into a field of a page, and what the field is for. What
// was typed is not kept anywhere.
type Typed struct {
	At time.Time `json:"at"`
	// Field is card, bank_account, password, one_time_code, search, message, mail_address,
	// phone, address or text.
	Field string `json:"field"`
	// URL is the URL of the field's document.
	URL string `json:"url"`
	// Times is the number of identical journal entries that it stands for.
	Times uint64 `json:"times"`
	// Person is the person who typed, if it was not the worker.
	Person string `json:"person,omitempty"`
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
	// EvidenceID names the bundle on which the person's decision is based. If the bundle
	// belongs to another incident, the decision is refused. If it is empty, only the token
	// names the incident.
	EvidenceID string `json:"evidence_id,omitempty"`
	// Sequence is the number of the profile's last event that the person saw. If there is another one
	// since, the decision is refused. Zero: that does not matter.
	Sequence uint64 `json:"sequence,omitempty"`
	// Home is the launcher that becomes the home of a profile whose home is contested or only
	// remembered; empty: the home stays.
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
