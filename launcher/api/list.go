package api

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/lease"
)

// ProfileQuery says which profiles a list has, in which order, and which page of it. The zero
// value means all profiles, sorted by name.
type ProfileQuery struct {
	// Words all have to occur in what is known of a profile: its names, account, proxy, worker,
	// task, URL, step, state, reason, home and labels. Case does not matter.
	Words string
	// States are the states that a profile may have; none: any.
	States []lease.State
	// AccountID, WorkerID, TaskID and Host (the home) have to be equal to these values, or
	// match them if they contain a "*", which stands for any characters; empty: any.
	AccountID, WorkerID, TaskID, Host string
	// Labels are the labels that a profile has to have. A "*" in a value stands for any characters.
	Labels lease.Labels
	// URL is part of the last known URL.
	URL string
	// SignedIn is whether its account is signed in; empty: either.
	SignedIn lease.SignedIn
	// Free says whether the next task could get the profile now; nil: either.
	Free *bool
	// Sort is one of Sorts, with a "-" in front to reverse it; empty: by name.
	Sort string

	// Limit is the most profiles on the page, and Offset is how many come before it; Limit
	// zero: all. After, if it is not nil, is the Next of the page before, and is used instead
	// of Offset.
	Limit, Offset int
	After         *string

	// Visible tells which profiles the list may show; nil: all.
	Visible func(profileID string) bool

	// WithAccounts asks for ProfilePage.Accounts.
	WithAccounts bool
}

// The orders of lists of profiles.
const (
	SortName = "name"
	// SortAttention puts those profiles first that wait for a person or whose worker asks for
	// one, the longest wait first; then those whose state will change by itself, those that are
	// held, and the free ones.
	SortAttention = "attention"
	SortAccount   = "account"
	SortHost      = "host"
	SortWorker    = "worker"
	// SortChanged puts the profiles first whose lease changed last.
	SortChanged = "changed"
	// SortSignedIn puts those profiles first whose account needs somebody: those that show another
	// account or are signed out, the longest first; then those that wait for a person or have no
	// directory, those whose last check had no answer, those of which nothing is known, and the
	// signed-in ones.
	SortSignedIn = "signed_in"
)

// Sorts are the names of the orders.
var Sorts = []string{SortName, SortAttention, SortAccount, SortHost, SortWorker, SortChanged, SortSignedIn}

// States are the states for which a list can be filtered, in the order in which they are shown.
var States = []lease.State{lease.ManualReview, lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ResumePending, lease.Held, lease.Available}

// SignedIns are the values for which a list can be filtered.
var SignedIns = []lease.SignedIn{lease.SignedInYes, lease.SignedInNo, lease.SignedInUnknown}

// maxWords bounds, in bytes, the value of one parameter of a list.
const maxWords = 300

// ParseProfileQuery reads the filters and the order of a list from a query. Empty values, as
// forms send them, count as missing; other parameters are ignored.
func ParseProfileQuery(query url.Values) (ProfileQuery, error) {
	var q ProfileQuery
	for name, into := range map[string]*string{
		"q": &q.Words, "account_id": &q.AccountID, "worker": &q.WorkerID, "task": &q.TaskID, "host": &q.Host, "url": &q.URL, "sort": &q.Sort,
	} {
		if len(query[name]) > 1 {
			return q, Invalid(name, "it is given %d times: want it once", len(query[name]))
		}
		*into = strings.TrimSpace(query.Get(name))
		if len(*into) > maxWords {
			return q, Invalid(name, "it has %d bytes: want at most %d", len(*into), maxWords)
		}
	}
	if q.Sort != "" && !slices.Contains(Sorts, strings.TrimPrefix(q.Sort, "-")) {
		return q, Invalid("sort", "%.40q: want one of %s, with - in front for the reverse", q.Sort, strings.Join(Sorts, ", "))
	}
	for _, said := range query["state"] {
		for one := range strings.SplitSeq(said, ",") {
			state := lease.State(strings.TrimSpace(one))
			switch {
			case state == "":
			case !slices.Contains(States, state):
				return q, Invalid("state", "%.40q: want some of %s", one, joined(States))
			case !slices.Contains(q.States, state):
				q.States = append(q.States, state)
			}
		}
	}
	switch said := query["signed_in"]; {
	case len(said) > 1:
		return q, Invalid("signed_in", "it is given %d times: want it once", len(said))
	case len(said) == 1 && said[0] != "" && !slices.Contains(SignedIns, lease.SignedIn(said[0])):
		return q, Invalid("signed_in", "%.40q: want yes, no or unknown", said[0])
	case len(said) == 1:
		q.SignedIn = lease.SignedIn(said[0])
	}
	if labels := slices.DeleteFunc(slices.Clone(query["label"]), func(text string) bool { return text == "" }); len(labels) > 0 {
		var err error
		if q.Labels, err = lease.ParseLabels(labels); err == nil {
			err = q.Labels.CheckAsked()
		}
		if err != nil {
			return q, Invalid("label", "%v", err)
		}
	}
	switch free := query["free"]; {
	case len(free) > 1:
		return q, Invalid("free", "it is given %d times: want it once", len(free))
	case len(free) == 1 && free[0] != "":
		is, err := strconv.ParseBool(free[0])
		if err != nil {
			return q, Invalid("free", "%.40q: want true or false", free[0])
		}
		q.Free = &is
	}
	return q, nil
}

func joined(states []lease.State) string {
	var names []string
	for _, s := range states {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// Filters writes what ParseProfileQuery reads, without the filters that are not set.
func (q ProfileQuery) Filters() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"q": q.Words, "account_id": q.AccountID, "worker": q.WorkerID, "task": q.TaskID, "host": q.Host, "url": q.URL, "sort": q.Sort,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for _, s := range q.States {
		query.Add("state", string(s))
	}
	for _, label := range q.Labels.Texts() {
		query.Add("label", label)
	}
	if q.SignedIn != "" {
		query.Set("signed_in", string(q.SignedIn))
	}
	if q.Free != nil {
		query.Set("free", strconv.FormatBool(*q.Free))
	}
	return query
}

// ProfilePage is one page of a list of profiles.
type ProfilePage struct {
	Items []Profile
	// Next is the After for the next page; nil at the end.
	Next *string
	// Total is how many profiles match, on all pages.
	Total int
	// States counts the matching profiles in each state, whatever states were asked for; Asking
	// counts those whose worker asks for a person.
	States map[lease.State]int
	Asking int
	// SignedIn counts the matching profiles by whether their account is signed in, whatever was asked
	// for of that.
	SignedIn map[lease.SignedIn]int
	// Accounts has each profile on this page, if the query asks for that.
	Accounts map[string]AccountCare
	// Hands has the profiles on this page whose worker asks for a person, or whose session a
	// person has, on this launcher's host.
	Hands map[string]InHands
	// Stale is the time since which the lease store cannot be reached, so that the list shows
	// what was seen before; zero: the store can be reached.
	Stale time.Time
}

// AccountCare is what is known of how a profile's account is looked after, beside its record.
type AccountCare struct {
	// Asked says that a site can be asked whether the account is signed in. NextCheck is when the
	// profile's home does so by itself; zero: not in this state of the record.
	Asked     bool
	NextCheck time.Time
	// Gone says that the profile's directory is not on the disk of this launcher, its home.
	Gone bool
}

// InHands says what people have to do with a living session: the request of its worker that
// waits, and the person who has the session. Either is nil if there is none.
type InHands struct {
	SessionID string
	Ask       *Ask
	Person    *Person
}

// Or returns what people have to do first, of this and of another session of the same profile: a worker
// that waits and has no person yet goes before all others, and who waits longer before who came later.
func (h InHands) Or(s Session) InHands {
	next := InHands{s.SessionID, s.Ask, s.Person}
	if order := cmp.Or(cmp.Compare(next.rank(), h.rank()), next.since().Compare(h.since()), cmp.Compare(next.SessionID, h.SessionID)); order < 0 {
		return next
	}
	return h
}

func (h InHands) rank() int {
	switch {
	case h.Ask != nil && h.Person == nil:
		return 0
	case h.Ask != nil:
		return 1
	case h.Person != nil:
		return 2
	}
	return 3
}

func (h InHands) since() time.Time {
	switch {
	case h.Ask != nil:
		return h.Ask.At
	case h.Person != nil:
		return h.Person.Since
	}
	return time.Time{}
}

// Changes tells when lists of profiles may have changed.
type Changes struct {
	// Changed is closed when a record changes.
	Changed <-chan struct{}
	// Over is closed when the launcher ends.
	Over <-chan struct{}
}

// Host is one launcher as another one sees it.
type Host struct {
	lease.Presence
	// Here says that, as far as this launcher has seen, it renews its presence.
	Here bool
	// Own says that it is this launcher itself, which is known without the store.
	Own bool
	// States counts the profiles whose home it is, by state.
	States map[lease.State]int
}

// Hosts are the launchers on a lease store.
type Hosts struct {
	Items []Host
	// Stale is the time since which the lease store cannot be reached; zero: it can be reached.
	Stale time.Time
}
