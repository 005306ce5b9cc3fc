// Package table decides about a profile whose worker was lost: from facts, each yes, no or unknown,
// by a table that a person can read. Everything here is a pure function.
package table

import (
	"fmt"
	"slices"
	"strings"
)

// Version is the version of the table. It has to rise with every change of the table, or of a
// rule that finds one of its facts, by which any decision becomes another one.
const Version = 19

// Decision is the result of an inspection.
type Decision struct {
	// Outcome is release, resume, retry or manual_review.
	Outcome string
	// Reasons say why, in words for a person. For manual_review, each names a condition that
	// was not met. After the conditions of every outcome come those conditions of the table
	// that failed because of what was seen: a browser that did not close cleanly does not hide
	// that something was sent.
	Reasons []string
}

// The outcomes, in the words of the lease record.
const (
	Release      = "release"
	Resume       = "resume"
	Retry        = "retry"
	ManualReview = "manual_review"
)

// condition is one answer that a row of the table needs.
type condition struct {
	fact string
	want Answer
	// why is the reason given to the person if the answer is another one.
	why string
}

// whole are the conditions under which a profile may be opened to ask sites about its account:
// nobody uses it, nothing of it is lost, and everything that was done on it was seen.
var whole = []condition{
	{ChangedBySwap, Yes, "the lease was not taken over by compare-and-swap"},
	{TokenAdvanced, Yes, "the token was not advanced"},
	{EvidenceStored, Yes, "the evidence could not be stored"},
	{BrowserGone, Yes, "the browser is not proved gone"},
	{DirectoryUnlocked, Yes, "the profile directory is not proved unlocked"},
	{DirectoryPresent, Yes, "the profile directory is not there"},
	{ClosedCleanly, Yes, "the browser did not close cleanly"},
	{TrafficSeen, Yes, "what the pages sent was not observed throughout"},
	{CookiesWhole, notNo, "cookies may be lost"},
	{ProxyUnchanged, Yes, "the proxy mapping changed"},
	{ReviewFlag, No, "the profile is flagged for review"},
}

// Whole tells whether sites may be asked about a profile's account.
func Whole(i Inspection) bool { return len(i.unmet(whole)) == 0 }

// sound are the conditions of every outcome but manual_review: the profile is whole, no site refuses
// the account or says that it is not what it was, and its pages ask for nothing.
var sound = slices.Concat(whole, []condition{
	{InExpectedDomains, notNo, "the last page is outside the expected domains"},
	{SiteRefused, No, "a site refused the account something"},
	{SentToSignIn, No, "a site sent a page to a sign-in"},
	{SessionCheckFailed, No, "the session check did not show that the account is signed in"},
	{IdentityKept, Yes, "a site did not show that it is the same account"},
	{Rehearsed, notNo, "a page could not be opened that may have something to send"},
}, askingNothing)

// askingNothing are the conditions about open pages: they were looked at, they ask for nothing
// that a person has to give or decide, and nothing is left in them that would be sent later, or
// with which somebody was about to pay or sign in.
var askingNothing = []condition{
	{PagesLookedAt, notNo, "an open page did not show what it asks for"},
	{CodeAsked, notYes, "a page asks for a code"},
	{SignedOut, notYes, "a page came to ask for a password"},
	{ChallengeShown, notYes, "a page wants to know whether this is a person"},
	{ConsentAsked, notYes, "a page asks for a consent"},
	{NoticeBlocks, notYes, "a notice or a question stands in the page's place"},
	{DialogWaits, notYes, "a dialog waits for an answer"},
	{HTTPAuthAsked, notYes, "a site asks for a password by HTTP authentication"},
	{SecretUnsent, notYes, "a card number, a password or a code was typed and not sent"},
	{PressedUnsent, notYes, "a button was pressed on what was typed, and nothing was sent yet"},
	{WritesWaiting, notYes, "a write waits in the profile, to be sent later"},
	{OfflineOn, notYes, "the page was kept offline: what it has to send waits"},
}

// notNo accepts yes and unknown; notYes accepts no and unknown. They are for questions where
// only the remaining answer speaks against the outcome.
const (
	notNo  Answer = "not no"
	notYes Answer = "not yes"
)

// row is one way to an outcome.
type row struct {
	outcome string
	because string
	when    []condition
}

// table is the whole decision: if the sound conditions are met, the first row whose conditions
// are all met decides. If there is none, a person decides. docs/recovery.md shows the table.
var table = []row{
	{Resume, "the task can resume from its last safe checkpoint", []condition{
		{Resumable, Yes, "the task is not resumable"},
		{SafeCheckpointNamed, Yes, "no safe checkpoint is named"},
		{UnsafeSinceSafe, No, "unsafe requests were sent since the last safe checkpoint"},
		{WritesByGetSinceSafe, No, "a GET changed something since the last safe checkpoint, or may have"},
		{SensitiveSinceSafe, No, "a sensitive step or page came since the last safe checkpoint"},
		{PersonActedSince, No, "a person acted since the last safe checkpoint"},
		{PaymentTypedSince, No, "a card or a bank account was typed since the last safe checkpoint"},
		{SessionKeptSinceSafe, Yes, "the account's session is not shown to be its own any more"},
		{ProbeChangedSinceSafe, notYes, "what a site says about the account has changed since the last safe checkpoint"},
	}},
	{Resume, "the task can resume from its last safe checkpoint, after which only came what may be done again", []condition{
		{Resumable, Yes, "the task is not resumable"},
		{SafeCheckpointNamed, Yes, "no safe checkpoint is named"},
		{UnansweredAtSafe, No, "unsafe requests were not answered when the last safe checkpoint was named"},
		{IdempotentSince, Yes, "something came since the checkpoint that is not said to be idempotent"},
		{SensitiveSinceSafe, No, "a sensitive step or page came since the last safe checkpoint"},
		{PersonActedSince, No, "a person acted since the last safe checkpoint"},
		{PaymentTypedSince, No, "a card or a bank account was typed since the last safe checkpoint"},
		{SessionKeptSinceSafe, Yes, "the account's session is not shown to be its own any more"},
		{ProbeChangedSinceSafe, notYes, "what a site says about the account has changed since the last safe checkpoint"},
	}},
	{Retry, "the task had begun, and nothing that a restart would repeat was done", []condition{
		{WorkDescribed, Yes, "the task described no work"},
		{BeganAtCheckpoint, No, "the task went on from a checkpoint, and a restart would repeat what it did before"},
		{UnsafeRequests, No, "unsafe requests were sent"},
		{WritesByGet, No, "a GET changed something, or may have"},
		{SensitivePlace, No, "a sensitive step or page was reached"},
		{PersonActed, No, "a person acted"},
		{PaymentTyped, No, "a card or a bank account was typed"},
		{SessionKept, Yes, "the account's session is not shown to be its own any more"},
		{ProbeChanged, notYes, "what a site says about the account has changed"},
	}},
	{Release, "the task never touched account state", []condition{
		{BeganAtCheckpoint, No, "the task went on from a checkpoint, and a restart would repeat what it did before"},
		{UnsafeRequests, No, "unsafe requests were sent"},
		{WritesByGet, No, "a GET changed something, or may have"},
		{SensitivePlace, No, "a sensitive step or page was reached"},
		{PersonActed, No, "a person acted"},
		{PaymentTyped, No, "a card or a bank account was typed"},
		{SessionKept, Yes, "the account's session is not shown to be its own any more"},
		{ProbeChanged, notYes, "what a site says about the account has changed"},
	}},
}

// Caution sends a profile to a person, whatever the table says, if the fact has this answer or
// is unknown.
type Caution struct {
	Fact   string
	Answer Answer
}

// ParseCaution reads FACT=ANSWER, or FACT, which means FACT=yes.
func ParseCaution(s string) (Caution, error) {
	fact, answer, said := strings.Cut(s, "=")
	c := Caution{fact, Answer(answer)}
	if !said {
		c.Answer = Yes
	}
	switch {
	case !slices.Contains(Questions, fact):
		return c, fmt.Errorf("%q: want one of %s", fact, strings.Join(Questions, ", "))
	case c.Answer != Yes && c.Answer != No && c.Answer != Unknown:
		return c, fmt.Errorf("%q: want %s=yes, %s=no or %s=unknown", s, fact, fact, fact)
	}
	return c, nil
}

// Decide applies the table to an inspection. Besides that it uses only the configured cautions,
// which can only send more profiles to a person.
func Decide(i Inspection, besides ...Caution) Decision {
	broken := i.failing(sound)
	for _, c := range besides {
		if a := i.Answer(c.Fact); a == c.Answer || a == Unknown {
			broken = append(broken, fmt.Sprintf("%s goes to a person by configuration (%s: %s)", c.Fact, a, i.How(c.Fact)))
		}
	}
	met := slices.IndexFunc(table, func(r row) bool { return len(i.unmet(r.when)) == 0 })
	switch {
	case met >= 0 && len(broken) == 0:
		return Decision{table[met].outcome, []string{table[met].because}}
	case met >= 0:
		return Decision{ManualReview, broken}
	}
	least := table[len(table)-1].when // the last row demands the least
	if len(broken) > 0 {
		least = slices.DeleteFunc(slices.Clone(least), func(c condition) bool { return i.Answer(c.fact) == Unknown })
	}
	return Decision{ManualReview, append(broken, i.failing(least)...)}
}

// failing explains every condition that is not met.
func (i Inspection) failing(conditions []condition) []string {
	var why []string
	for _, c := range i.unmet(conditions) {
		why = append(why, c.why+" ("+string(i.Answer(c.fact))+": "+i.How(c.fact)+")")
	}
	return why
}

// unmet are the conditions that are not met.
func (i Inspection) unmet(conditions []condition) []condition {
	var list []condition
	for _, c := range conditions {
		a := i.Answer(c.fact)
		if a != c.want && (c.want != notNo || a == No) && (c.want != notYes || a == Yes) {
			list = append(list, c)
		}
	}
	return list
}
