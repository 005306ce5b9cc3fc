// Package findings finds out, from the journal of a session, what it did to the account, and answers
// the questions about that. Everything here is a pure function; package table decides.
package findings

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/recovery/table"
)

// Task is the part of the manifest that an inspection needs.
type Task struct {
	Resumable       bool
	BeganAt         string   // the checkpoint from which the task resumed; empty: it began anew
	ExpectedDomains []string // of the task or, if it names none, of its profile
	ProfileDomains  []string // of the profile, if the task names others: it narrows them, and takes none away
	SensitiveURLs   []string // patterns, in addition to the words that always count
	SensitiveWords  []string // in addition to the words that always count
	Harmless        []string // declarations of the profile's owner, see ParseHarmless
	// Sites is what is known of sites; nil: nothing.
	Sites *site.Book `json:"-"`
	// Unchanged are the questions whose answers are what they were before the session, and
	// UnchangedSinceSafe those whose answers are what they were at its last safe checkpoint.
	Unchanged, UnchangedSinceSafe []site.Question `json:"-"`
}

// Touched tells whether, since its last safe checkpoint (or since its beginning if there is
// none), a task did anything after which its profile has to be judged: the pages sent something
// unsafe or changed something by a GET, a step or page was sensitive, payment details were
// typed, a person acted, a site refuses the account, or the journal has not all of it.
func Touched(s checkpoint.Summary, t Task) bool {
	found := InspectTask(s, t)
	asked := []string{table.UnsafeSinceSafe, table.WritesByGetSinceSafe, table.SensitiveSinceSafe, table.PersonActedSince, table.PaymentTypedSince, table.SiteRefused, table.SentToSignIn}
	return len(s.LeftOut) > 0 || slices.ContainsFunc(asked, func(q string) bool { return found.Answer(q) != table.No })
}

// InspectTask answers the questions about what the task did, from its journal.
func InspectTask(s checkpoint.Summary, t Task) table.Inspection {
	safe := s.LastSafe
	place, since := sensitivePlace(s.Steps, s.Pages, t), sensitivePlace(s.StepsSince, s.PagesSince, t)
	afterSafe := t
	afterSafe.Unchanged = t.UnchangedSinceSafe
	all, sinceSafe, inFlight := sorted(s.Unsafe, s, t), sorted(s.UnsafeSince, s, afterSafe), sorted(s.InFlight, s, afterSafe)
	return slices.Concat(table.Inspection{
		{Name: table.LastStepKnown, Answer: table.Is(s.LastStep != ""), How: orNone("step", s.LastStep)},
		{Name: table.LastURLKnown, Answer: table.Is(s.LastURL != ""), How: orNone("URL", s.LastURL)},
		t.lastInDomains(s.LastURL),
		{Name: table.SensitivePlace, Answer: table.Is(place != ""), How: cmp.Or(place, "no step or page was")},
		{Name: table.SensitiveSinceSafe, Answer: table.Is(since != ""), How: cmp.Or(since, "no step or page was")},
		unsafeFact(table.UnsafeRequests, all),
		sinceSafe.andInFlight(unsafeFact(table.UnsafeSinceSafe, sinceSafe), inFlight),
		requests(table.UnansweredAtSafe, inFlight.counted),
		requests(table.HarmlessSent, all.declared),
		requests(table.Anonymous, all.anonymous),
		writesByGet(table.WritesByGet, s.Writes, quiet(t)),
		writesByGet(table.WritesByGetSinceSafe, s.WritesSince, quiet(afterSafe)),
		getsAfterAction(table.GetsAfterAction, s.GetsAfter, harmless(t)),
		getsAfterAction(table.GetsAfterActionSince, s.GetsAfterSince, harmless(t)),
		happened(table.Downloads, s.Did, checkpoint.KindDownload),
		happened(table.DownloadsUnfinished, s.Did, checkpoint.KindUnfinished),
		happened(table.Dialogs, s.Did, checkpoint.KindDialog),
		happened(table.RequestsWithheld, s.Withheld, checkpoint.KindWithheld),
		{Name: table.Resumable, Answer: table.Is(t.Resumable), How: "the manifest's resumable"},
		beganAt(t.BeganAt),
		{Name: table.SafeCheckpointNamed, Answer: table.Is(safe != nil), How: orNone("safe checkpoint", checkpointName(safe))},
		idempotentSince(s, sinceSafe, afterSafe),
		{Name: table.WorkDescribed, Answer: table.Is(len(s.Steps) > 0), How: fmt.Sprintf("%d steps in the journal", times(s.Steps))},
		hadByPerson(s.Person),
		actsOf(table.PersonActed, s.Acts),
		actsOf(table.PersonActedSince, s.ActsSince),
		paymentTyped(table.PaymentTyped, s.Typed),
		paymentTyped(table.PaymentTypedSince, s.TypedSince),
	}, answerFacts(s, t), accountFacts(s))
}

func hadByPerson(took *checkpoint.Entry) table.Fact {
	if took == nil {
		return table.Fact{Name: table.PersonHadIt, Answer: table.No, How: "nobody had taken it over"}
	}
	return table.Fact{Name: table.PersonHadIt, Answer: table.Yes, How: took.Person + " (" + took.Principal + ") had taken it over at " + took.At.UTC().Format(time.RFC3339)}
}

// actsOf is the fact about what persons did by hand. Nobody can tell what they meant by it.
func actsOf(name string, acts []checkpoint.Entry) table.Fact {
	if len(acts) == 0 {
		return table.Fact{Name: name, Answer: table.No, How: "no person did anything"}
	}
	last := acts[len(acts)-1]
	return table.Fact{Name: name, Answer: table.Yes, How: strings.TrimSpace(fmt.Sprintf("%d acts, the last by %s (%s): %s %s", times(acts), last.Person, last.Principal, last.Name, last.URL))}
}

// paymentTyped is the fact whether the number or code of a card, or a bank account, was typed.
// Whatever was sent after that may have paid, even if it does not look like a payment.
func paymentTyped(name string, typed []checkpoint.Entry) table.Fact {
	for _, e := range slices.Backward(typed) {
		if f := checkpoint.Field(e.Name); f.Pays() {
			return table.Fact{Name: name, Answer: table.Yes, How: "the last was " + wording.Typed(e)}
		}
	}
	return table.Fact{Name: name, Answer: table.No, How: "no card and no bank account was seen to be typed"}
}

func beganAt(name string) table.Fact {
	if name == "" {
		return table.Fact{Name: table.BeganAtCheckpoint, Answer: table.No, How: "the task began anew"}
	}
	return table.Fact{Name: table.BeganAtCheckpoint, Answer: table.Yes, How: "an earlier session named checkpoint " + name}
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
func Observed(s checkpoint.Summary, unseen bool) table.Fact {
	switch {
	case unseen:
		return table.Fact{Name: table.TrafficSeen, Answer: table.Unknown, How: "nobody watched while the launcher was away"}
	case len(s.LeftOut) > 0:
		return table.Fact{Name: table.TrafficSeen, Answer: table.Unknown, How: "the journal has not all of it: " + s.LeftOut[0].Text}
	}
	return table.Fact{Name: table.TrafficSeen, Answer: table.Yes, How: "the launcher watched every page from the grant to the close"}
}

func happened(name string, did []checkpoint.Entry, kind checkpoint.Kind) table.Fact {
	found := slices.DeleteFunc(slices.Clone(did), func(e checkpoint.Entry) bool { return e.Kind != kind })
	if len(found) == 0 {
		return table.Fact{Name: name, Answer: table.No, How: "none was seen"}
	}
	last := found[len(found)-1]
	return table.Fact{Name: name, Answer: table.Yes, How: strings.TrimSpace(fmt.Sprintf("%d seen, the last %s %s", times(found), cmp.Or(last.Method, last.Name), last.URL))}
}

// domains are all domains where something concerns the account.
// Domains are those of the account.
func (t Task) Domains() []string { return slices.Concat(t.ExpectedDomains, t.ProfileDomains) }

// lastInDomains tells whether the last page is where both the task and its profile expect it.
func (t Task) lastInDomains(last string) table.Fact {
	f := inDomains(last, t.ExpectedDomains)
	if f.Answer == table.Yes && len(t.ProfileDomains) > 0 {
		return inDomains(last, t.ProfileDomains)
	}
	return f
}

// inDomains tells whether the last page is in one of the domains where the task was expected.
func inDomains(last string, expected []string) table.Fact {
	if len(expected) == 0 {
		return table.Fact{Name: table.InExpectedDomains, Answer: table.Unknown, How: "no expected domains are configured"}
	}
	u, err := url.Parse(last)
	if err != nil || u.Hostname() == "" {
		if last == "about:blank" || last == "" {
			return table.Fact{Name: table.InExpectedDomains, Answer: table.Yes, How: "no page was open"}
		}
		return table.Fact{Name: table.InExpectedDomains, Answer: table.Unknown, How: "the last URL has no host"}
	}
	host := strings.ToLower(u.Hostname())
	for _, d := range expected {
		d = strings.ToLower(strings.TrimPrefix(d, "."))
		if host == d || strings.HasSuffix(host, "."+d) {
			return table.Fact{Name: table.InExpectedDomains, Answer: table.Yes, How: host + " is in " + d}
		}
	}
	return table.Fact{Name: table.InExpectedDomains, Answer: table.No, How: host + " is in none of " + strings.Join(expected, ", ")}
}
