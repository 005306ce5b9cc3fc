package table

import "slices"

// Answer is the answer to one question of an inspection.
type Answer string

// The answers. Unknown is an answer of its own, because what cannot be proved must not be taken
// for yes or no.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Is returns Yes or No.
func Is(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// The questions of an inspection.
const (
	LeaseExpired        = "lease_expired"
	ChangedBySwap       = "changed_by_compare_and_swap"
	TokenAdvanced       = "token_advanced"
	WorkerSilent        = "old_worker_silent"
	LateHeartbeat       = "late_heartbeat_seen"
	BrowserGone         = "chrome_process_gone"
	DirectoryUnlocked   = "directory_unlocked"
	ClosedCleanly       = "closed_cleanly"
	DirectoryPresent    = "directory_present"
	DirectoryLocal      = "directory_on_local_disk"
	SessionState        = "session_state_present"
	StateChanged        = "cookies_or_storage_changed"
	LastStepKnown       = "last_step_known"
	LastURLKnown        = "last_url_known"
	EvidenceStored      = "evidence_stored"
	ScreenshotKnown     = "screenshot_available"
	InExpectedDomains   = "url_in_expected_domains"
	SensitivePlace      = "sensitive_page_or_step"
	SensitiveSinceSafe  = "sensitive_since_safe_checkpoint"
	UnsafeRequests      = "unsafe_requests"
	UnsafeSinceSafe     = "unsafe_requests_since_safe_checkpoint"
	HarmlessSent        = "harmless_requests"
	Downloads           = "downloads"
	DownloadsUnfinished = "downloads_unfinished"
	Dialogs             = "dialogs"
	TrafficSeen         = "requests_observed_throughout"
	StoodStill          = "account_stood_still"
	RequestsWithheld    = "requests_withheld"
	CookiesWhole        = "cookies_whole"
	ProxyUnchanged      = "proxy_mapping_unchanged"
	ReviewFlag          = "review_flag"
	Resumable           = "task_resumable"
	SafeCheckpointNamed = "safe_checkpoint_named"
	BeganAtCheckpoint   = "began_at_checkpoint"
	IdempotentSince     = "idempotent_since_checkpoint"
	WorkDescribed       = "task_described_work"
	SiteRefused         = "site_refused"
	SentToSignIn        = "sent_to_sign_in"
	AskedToWait         = "site_asked_to_wait"
	UnansweredAtSafe    = "unanswered_at_safe_checkpoint"
	Anonymous           = "anonymous_requests"

	// May a GET have changed something? And did a page on which the worker had acted ask for
	// anything by GET at all? The table uses the second only where the launcher is told to ask a
	// person about every such GET.
	WritesByGet          = "writes_by_get"
	WritesByGetSinceSafe = "writes_by_get_since_safe_checkpoint"
	GetsAfterAction      = "gets_after_action"
	GetsAfterActionSince = "gets_after_action_since_safe_checkpoint"

	PersonHadIt      = "person_had_session"
	PersonActed      = "person_acted"
	PersonActedSince = "person_acted_since_safe_checkpoint"

	PaymentTyped      = "payment_details_typed"
	PaymentTypedSince = "payment_details_typed_since_safe_checkpoint"

	SessionKept          = "account_session_kept"
	SessionKeptSinceSafe = "account_session_kept_since_safe_checkpoint"
	CookiesGiven         = "cookies_given_to_worker"
	CookiesWritten       = "cookies_written_by_worker"
	SessionCheckFailed   = "session_check_failed"

	// What the sites themselves say about the account: is what their files ask for another than
	// before, and is it still the account that it was?
	ProbeChanged          = "probe_changed"
	ProbeChangedSinceSafe = "probe_changed_since_safe_checkpoint"
	IdentityKept          = "identity_kept"
	// Rehearsed is no if a page that their files name could not be opened after the loss: what it would
	// send is not known.
	Rehearsed = "pages_rehearsed"
)

// Questions lists all questions.
var Questions = slices.Concat(PageQuestions, []string{
	LeaseExpired, ChangedBySwap, TokenAdvanced, WorkerSilent, LateHeartbeat,
	BrowserGone, DirectoryUnlocked, ClosedCleanly, DirectoryPresent, DirectoryLocal,
	SessionState, StateChanged, LastStepKnown, LastURLKnown, EvidenceStored,
	ScreenshotKnown, InExpectedDomains, SensitivePlace, SensitiveSinceSafe, UnsafeRequests,
	UnsafeSinceSafe, HarmlessSent, Downloads, DownloadsUnfinished, Dialogs, TrafficSeen, ProxyUnchanged,
	ReviewFlag, Resumable, BeganAtCheckpoint, SafeCheckpointNamed, IdempotentSince, WorkDescribed,
	SiteRefused, SentToSignIn, AskedToWait, UnansweredAtSafe, Anonymous,
	SessionKept, SessionKeptSinceSafe, CookiesGiven, CookiesWritten, SessionCheckFailed, ProbeChanged, ProbeChangedSinceSafe, IdentityKept, Rehearsed,
	WritesByGet, WritesByGetSinceSafe, GetsAfterAction, GetsAfterActionSince,
	PersonHadIt, PersonActed, PersonActedSince, PaymentTyped, PaymentTypedSince,
	StoodStill, RequestsWithheld, CookiesWhole,
})

// Fact is one question, its answer, and how it was found.
type Fact struct {
	Name   string
	Answer Answer
	How    string
}

// Inspection is the list of facts, in the order in which they were gathered.
type Inspection []Fact

// Answer returns what was found about a question. A question that was not asked has the
// answer unknown.
func (i Inspection) Answer(name string) Answer {
	for _, f := range i {
		if f.Name == name {
			return f.Answer
		}
	}
	return Unknown
}

// How returns how the answer to a question was found.
func (i Inspection) How(name string) string {
	for _, f := range i {
		if f.Name == name {
			return f.How
		}
	}
	return "not asked"
}

// With is a copy of an inspection in which facts are replaced or added.
func (i Inspection) With(facts ...Fact) Inspection {
	i = slices.Clone(i)
	for _, f := range facts {
		if at := slices.IndexFunc(i, func(o Fact) bool { return o.Name == f.Name }); at >= 0 {
			i[at] = f
		} else {
			i = append(i, f)
		}
	}
	return i
}

// The questions about what the open pages showed when the worker was lost. Package look answers
// them, before anything is closed.
const (
	// PagesLookedAt is no if a page did not answer although it could have.
	PagesLookedAt = "pages_looked_at"
	// What the pages ask for that only a person may give. If the first thing that a session saw
	// was a sign-in form, that does not show that the task did anything to the account; so only
	// a form that came later decides (SignedOut).
	CodeAsked      = "code_asked_for"
	PasswordAsked  = "password_asked_for"
	SignedOut      = "signed_out_meanwhile"
	ChallengeShown = "challenge_shown"
	ConsentAsked   = "consent_asked_for"
	NoticeBlocks   = "notice_blocks_page"
	DialogWaits    = "dialog_waits_for_answer"
	HTTPAuthAsked  = "http_authentication_asked_for"
	// What was left unfinished in the pages.
	SecretUnsent   = "secret_input_unsent"
	InputUnsent    = "input_unsent"
	PressedUnsent  = "pressed_and_nothing_sent"
	WizardHalfDone = "wizard_half_done"
	WritesWaiting  = "writes_waiting_in_profile"
	OfflineOn      = "offline_emulation_on"
)

// PageQuestions are the questions about open pages.
var PageQuestions = []string{
	PagesLookedAt, CodeAsked, PasswordAsked, SignedOut, ChallengeShown, ConsentAsked, NoticeBlocks, DialogWaits, HTTPAuthAsked,
	SecretUnsent, InputUnsent, PressedUnsent, WizardHalfDone, WritesWaiting, OfflineOn,
}
