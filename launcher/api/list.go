package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/lease"
)

// ProfileQuery is which profiles a list has, in which order, and which page of it. The zero
// value is all of them, by name.
type ProfileQuery struct {
	// Words all have to be in what is known of a profile: its names, account, proxy, worker,
	// task, URL, step, state, reason, home, labels. Case does not count.
	Words string
	// States are those that a profile may have; none: any.
	States []lease.State
	// AccountID, WorkerID, TaskID and Host (the home) are equal to these, or match them where
	// they have a "*", which stands for any characters; empty: any.
	AccountID, WorkerID, TaskID, Host string
	// Labels are those that a profile has to have, with such a value each.
	Labels lease.Labels
	// URL is part of the last known URL.
	URL string
	// Free says whether the next task could have the profile now; nil: either.
	Free *bool
	// Sort is one of Sorts, with "-" in front for the reverse; empty: by name.
	Sort string

	// Limit is how many profiles the page has at most, and Offset how many come before it;
	// Limit zero: all. After, where it is not nil, is the Next of the page before, and counts
	// in the place of Offset.
	Limit, Offset int
	After         *string

	// Visible tells which profiles the list may show; nil: all.
	Visible func(profileID string) bool
}

// The orders of lists of profiles.
const (
	SortName = "name"
	// SortAttention has those first that wait for a person, or whose worker asks for one, the
	// longest first; then those
	// whose state will change by itself, those that are held, and the free ones.
	SortAttention = "attention"
	SortAccount   = "account"
	SortHost      = "host"
	SortWorker    = "worker"
	// SortChanged has those first whose lease changed last.
	SortChanged = "changed"
)

// Sorts are the names of the orders.
var Sorts = []string{SortName, SortAttention, SortAccount, SortHost, SortWorker, SortChanged}

// States are the states that a list can be asked for, in the order in which they are shown.
var States = []lease.State{lease.ManualReview, lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ResumePending, lease.Held, lease.Available}

// maxWords bounds, in bytes, what one parameter of a list may have.
const maxWords = 300

// ParseProfileQuery reads the filters and the order of a list from a query. Empty values are
// as if they were not there, as forms send them; other parameters are left alone.
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

// Filters writes what ParseProfileQuery reads, without what is not asked for.
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
	if q.Free != nil {
		query.Set("free", strconv.FormatBool(*q.Free))
	}
	return query
}

// ProfilePage is one page of a list of profiles.
type ProfilePage struct {
	Items []lease.Record
	// Next is the After of the page behind this one; nil at the end.
	Next *string
	// Total is how many profiles match, on all pages.
	Total int
	// States counts those that match in each state, whatever states were asked for, and Asking
	// those whose worker asks for a person.
	States map[lease.State]int
	Asking int
	// Hands says of profiles on this page whose worker asks for a person, or whose session a
	// person has, on this launcher's host.
	Hands map[string]InHands
	// Stale is since when the lease store cannot be reached, so that the list has what was
	// seen before; zero: it can.
	Stale time.Time
}

// InHands says what a living session has to do with people: the request of its worker that
// waits, and the person who has it. Each is nil where there is none.
type InHands struct {
	Ask    *Ask
	Person *Person
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
	// Here says that it renews its presence, as far as this launcher has seen.
	Here bool
	// Own says that it is this launcher, which knows itself without the store.
	Own bool
	// Seen is when this launcher saw its presence change last; zero: never.
	Seen time.Time
	// States counts the profiles whose home it is, by state.
	States map[lease.State]int
}

// Hosts are the launchers on a lease store.
type Hosts struct {
	Items []Host
	// Stale is since when the lease store cannot be reached; zero: it can.
	Stale time.Time
}
