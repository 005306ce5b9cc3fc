// Package decision judges a profile whose worker was lost: it has the facts of an inspection,
// each yes, no or unknown, and the decision that follows from them. Everything here is a pure
// function; package recovery gathers the facts and carries the decision out.
package decision

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
)

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
	HarmlessSinceSafe   = "harmless_requests_since_safe_checkpoint"
	Forms               = "forms_submitted"
	FormsSinceSafe      = "forms_submitted_since_safe_checkpoint"
	Messages            = "websocket_messages"
	MessagesSinceSafe   = "websocket_messages_since_safe_checkpoint"
	Downloads           = "downloads"
	DownloadsSinceSafe  = "downloads_since_safe_checkpoint"
	DownloadsUnfinished = "downloads_unfinished"
	Dialogs             = "dialogs"
	DialogsSinceSafe    = "dialogs_since_safe_checkpoint"
	TrafficSeen         = "requests_observed_throughout"
	StoodStill          = "account_stood_still"
	RequestsWithheld    = "requests_withheld"
	CookiesWhole        = "cookies_whole"
	ProxyUnchanged      = "proxy_mapping_unchanged"
	ReviewFlag          = "review_flag"
	Resumable           = "task_resumable"
	SafeCheckpointNamed = "safe_checkpoint_named"
	IdempotentSince     = "idempotent_since_checkpoint"
	WorkDescribed       = "task_described_work"
	SiteRefused         = "site_refused"
	SentToSignIn        = "sent_to_sign_in"
	AskedToWait         = "site_asked_to_wait"
	UnansweredAtSafe    = "unanswered_at_safe_checkpoint"
	Anonymous           = "anonymous_requests"
	AnonymousSinceSafe  = "anonymous_requests_since_safe_checkpoint"

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
)

// Questions lists all questions.
var Questions = slices.Concat(PageQuestions, []string{
	LeaseExpired, ChangedBySwap, TokenAdvanced, WorkerSilent, LateHeartbeat,
	BrowserGone, DirectoryUnlocked, ClosedCleanly, DirectoryPresent, DirectoryLocal,
	SessionState, StateChanged, LastStepKnown, LastURLKnown, EvidenceStored,
	ScreenshotKnown, InExpectedDomains, SensitivePlace, SensitiveSinceSafe, UnsafeRequests,
	UnsafeSinceSafe, HarmlessSent, HarmlessSinceSafe,
	Forms, FormsSinceSafe, Messages, MessagesSinceSafe, Downloads,
	DownloadsSinceSafe, DownloadsUnfinished, Dialogs, DialogsSinceSafe, TrafficSeen, ProxyUnchanged,
	ReviewFlag, Resumable, SafeCheckpointNamed, IdempotentSince, WorkDescribed,
	SiteRefused, SentToSignIn, AskedToWait, UnansweredAtSafe, Anonymous, AnonymousSinceSafe,
	SessionKept, SessionKeptSinceSafe, CookiesGiven, CookiesWritten, SessionCheckFailed,
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

func (i Inspection) how(name string) string {
	for _, f := range i {
		if f.Name == name {
			return f.How
		}
	}
	return "not asked"
}

// Task is the part of the manifest that an inspection needs.
type Task struct {
	Resumable       bool
	ExpectedDomains []string // of the task or, if it names none, of its profile
	ProfileDomains  []string // of the profile, if the task names others: it narrows them, and takes none away
	SensitiveURLs   []string // patterns, in addition to the words that always count
	SensitiveWords  []string // in addition to the words that always count
	Harmless        []string // declarations of the profile's owner, see ParseHarmless
}

// Touched tells whether, since its last safe checkpoint (or since its beginning if there is
// none), a task did anything after which its profile has to be judged: the pages sent something
// unsafe or changed something by a GET, a step or page was sensitive, payment details were
// typed, a person acted, a site refuses the account, or the journal has not all of it.
func Touched(s checkpoint.Summary, t Task) bool {
	found := InspectTask(s, t)
	asked := []string{UnsafeSinceSafe, WritesByGetSinceSafe, SensitiveSinceSafe, PersonActedSince, PaymentTypedSince, SiteRefused, SentToSignIn}
	return len(s.LeftOut) > 0 || slices.ContainsFunc(asked, func(q string) bool { return found.Answer(q) != No })
}

// InspectTask answers the questions about what the task did, from its journal.
func InspectTask(s checkpoint.Summary, t Task) Inspection {
	safe := s.LastSafe
	place, since := sensitivePlace(s.Steps, s.Pages, t), sensitivePlace(s.StepsSince, s.PagesSince, t)
	all, sinceSafe, inFlight := sorted(s.Unsafe, s, t), sorted(s.UnsafeSince, s, t), sorted(s.InFlight, s, t)
	idempotent := safe != nil && safe.Idempotent
	return slices.Concat(Inspection{
		{LastStepKnown, Is(s.LastStep != ""), orNone("step", s.LastStep)},
		{LastURLKnown, Is(s.LastURL != ""), orNone("URL", s.LastURL)},
		t.lastInDomains(s.LastURL),
		{SensitivePlace, Is(place != ""), cmp.Or(place, "no step or page was")},
		{SensitiveSinceSafe, Is(since != ""), cmp.Or(since, "no step or page was")},
		unsafeFact(UnsafeRequests, all),
		sinceSafe.andInFlight(unsafeFact(UnsafeSinceSafe, sinceSafe), inFlight),
		requests(UnansweredAtSafe, inFlight.counted),
		requests(HarmlessSent, all.declared),
		requests(HarmlessSinceSafe, sinceSafe.declared),
		requests(Anonymous, all.anonymous),
		requests(AnonymousSinceSafe, sinceSafe.anonymous),
		writesByGet(WritesByGet, s.Writes, harmless(t)),
		writesByGet(WritesByGetSinceSafe, s.WritesSince, harmless(t)),
		getsAfterAction(GetsAfterAction, s.GetsAfter, harmless(t)),
		getsAfterAction(GetsAfterActionSince, s.GetsAfterSince, harmless(t)),
		happened(Forms, nil, forms(s.Unsafe, s.Did), anything),
		happened(FormsSinceSafe, nil, forms(s.UnsafeSince, s.DidSince), anything),
		happened(Messages, s.Unsafe, nil, isMessage),
		happened(MessagesSinceSafe, s.UnsafeSince, nil, isMessage),
		happened(Downloads, nil, s.Did, ofKind(checkpoint.KindDownload)),
		happened(DownloadsSinceSafe, nil, s.DidSince, ofKind(checkpoint.KindDownload)),
		happened(DownloadsUnfinished, nil, s.Did, ofKind(checkpoint.KindUnfinished)),
		happened(Dialogs, nil, s.Did, ofKind(checkpoint.KindDialog)),
		happened(DialogsSinceSafe, nil, s.DidSince, ofKind(checkpoint.KindDialog)),
		happened(RequestsWithheld, nil, s.Withheld, ofKind(checkpoint.KindWithheld)),
		{Resumable, Is(t.Resumable), "the manifest's resumable"},
		{SafeCheckpointNamed, Is(safe != nil), orNone("safe checkpoint", checkpointName(safe))},
		{IdempotentSince, Is(idempotent), "the checkpoint's own idempotent"},
		{WorkDescribed, Is(len(s.Steps) > 0), fmt.Sprintf("%d steps in the journal", times(s.Steps))},
		hadByPerson(s.Person),
		actsOf(PersonActed, s.Acts),
		actsOf(PersonActedSince, s.ActsSince),
		paymentTyped(PaymentTyped, s.Typed),
		paymentTyped(PaymentTypedSince, s.TypedSince),
	}, answerFacts(s, t), accountFacts(s))
}

// hadByPerson is the fact whether a person had the session at its end.
func hadByPerson(took *checkpoint.Entry) Fact {
	if took == nil {
		return Fact{PersonHadIt, No, "nobody had taken it over"}
	}
	return Fact{PersonHadIt, Yes, took.Person + " (" + took.Principal + ") had taken it over at " + took.At.UTC().Format(time.RFC3339)}
}

// actsOf is the fact about what persons did by hand. Nobody can tell what they meant by it.
func actsOf(name string, acts []checkpoint.Entry) Fact {
	if len(acts) == 0 {
		return Fact{name, No, "no person did anything"}
	}
	last := acts[len(acts)-1]
	return Fact{name, Yes, strings.TrimSpace(fmt.Sprintf("%d acts, the last by %s (%s): %s %s", times(acts), last.Person, last.Principal, last.Name, last.URL))}
}

// paymentTyped is the fact whether the number or code of a card, or a bank account, was typed.
// Whatever was sent after that may have paid, even if it does not look like a payment.
func paymentTyped(name string, typed []checkpoint.Entry) Fact {
	for _, e := range slices.Backward(typed) {
		if f := checkpoint.Field(e.Name); f.Pays() {
			return Fact{name, Yes, "the last was " + e.TellTyped()}
		}
	}
	return Fact{name, No, "no card and no bank account was seen to be typed"}
}

func checkpointName(e *checkpoint.Entry) string {
	if e == nil {
		return ""
	}
	return e.Name
}

func orNone(what, value string) string {
	if value == "" {
		return "no " + what + " in the journal"
	}
	return what + " " + value
}

// times is how many entries these entries stand for.
func times(entries []checkpoint.Entry) uint64 {
	var n uint64
	for _, e := range entries {
		n += e.Times()
	}
	return n
}

// Observed is the fact whether everything was seen. unseen says that for some time nobody
// watched.
func Observed(s checkpoint.Summary, unseen bool) Fact {
	switch {
	case unseen:
		return Fact{TrafficSeen, Unknown, "nobody watched while the launcher was away"}
	case len(s.LeftOut) > 0:
		return Fact{TrafficSeen, Unknown, "the journal has not all of it: " + s.LeftOut[0].Text}
	}
	return Fact{TrafficSeen, Yes, "the launcher watched every page from the grant to the close"}
}

// happened is the fact whether is returns true for any entry of sent or did.
func happened(name string, sent, did []checkpoint.Entry, is func(checkpoint.Entry) bool) Fact {
	var found []checkpoint.Entry
	for _, e := range slices.Concat(sent, did) {
		if is(e) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return Fact{name, No, "none was seen"}
	}
	last := found[len(found)-1]
	return Fact{name, Yes, strings.TrimSpace(fmt.Sprintf("%d seen, the last %s %s", times(found), cmp.Or(last.Method, last.Name), last.URL))}
}

func isMessage(e checkpoint.Entry) bool { return e.Method == checkpoint.Websocket }

func ofKind(kind checkpoint.Kind) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool { return e.Kind == kind }
}

// domains are all domains where something concerns the account.
func (t Task) domains() []string { return slices.Concat(t.ExpectedDomains, t.ProfileDomains) }

// lastInDomains tells whether the last page is where both the task and its profile expect it.
func (t Task) lastInDomains(last string) Fact {
	f := inDomains(last, t.ExpectedDomains)
	if f.Answer == Yes && len(t.ProfileDomains) > 0 {
		return inDomains(last, t.ProfileDomains)
	}
	return f
}

// inDomains tells whether the last page is in one of the domains where the task was expected.
func inDomains(last string, expected []string) Fact {
	if len(expected) == 0 {
		return Fact{InExpectedDomains, Unknown, "no expected domains are configured"}
	}
	u, err := url.Parse(last)
	if err != nil || u.Hostname() == "" {
		if last == "about:blank" || last == "" {
			return Fact{InExpectedDomains, Yes, "no page was open"}
		}
		return Fact{InExpectedDomains, Unknown, "the last URL has no host"}
	}
	host := strings.ToLower(u.Hostname())
	for _, d := range expected {
		d = strings.ToLower(strings.TrimPrefix(d, "."))
		if host == d || strings.HasSuffix(host, "."+d) {
			return Fact{InExpectedDomains, Yes, host + " is in " + d}
		}
	}
	return Fact{InExpectedDomains, No, host + " is in none of " + strings.Join(expected, ", ")}
}
