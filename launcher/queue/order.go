// Package queue has the requests that wait for a profile or for a place on a host, and says
// whose turn it is. The order is a pure function of who waits and of the profile's record, so
// that all launchers on a lease store agree about it; no clock is part of it.
//
// It is a hint about order, and nothing else: who gets a profile is decided by the
// compare-and-swap of its record, whatever the queue says.
package queue

import (
	"cmp"
	"slices"

	"leasehold/launcher/principal"
	"leasehold/lease"
)

// Rank is what is compared to find out which of two requests comes first.
type Rank struct {
	Priority int
	Round    uint64
	// Arrival is when it began to wait, as the number of a write to the lease store;
	// NotStored where it has none yet.
	Arrival uint64
	ID      string
}

// NotStored is the arrival of a request that the store does not have yet: all others came
// before it.
const NotStored = ^uint64(0)

// The grants of a profile under the last agedTokens of every agePeriod tokens go by age alone. A profile's
// token rises by one at a grant and up to twice more before the next one, so that some grant of
// every period is among them.
const (
	agePeriod  = 24
	agedTokens = 3
)

// ByAge tells whether the grant with this number goes to whoever has waited longest, whatever
// its priority and round: about one of eight does, so that nobody waits for ever.
func ByAge(number uint64) bool { return number%agePeriod >= agePeriod-agedTokens }

// Compare is negative if a comes before b.
func Compare(a, b Rank, byAge bool) int {
	arrival := cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.ID, b.ID))
	if byAge {
		return arrival
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Round, b.Round), arrival)
}

// Entrant is one of those that take turns.
type Entrant struct {
	Principal, Worker string
	Priority          int
	Round             uint64
}

// perRound is how many requests of one principal are in a round, however many workers it
// names.
const perRound = 4

// Round returns the round of a request that begins to wait among others that could take the
// place of it: the one that is being served, or for a worker that waits already the one after
// its last. So a worker with a hundred requests has one in each of a hundred rounds, and
// another worker's first request comes after one of them. Only those of the same priority
// count.
func Round(e Entrant, others []Entrant) uint64 {
	var now uint64 // the round that is being served
	next, first := uint64(0), true
	taken := map[uint64]int{}
	for _, o := range others {
		if o.Priority != e.Priority {
			continue
		}
		if first || o.Round < now {
			now, first = o.Round, false
		}
		if o.Principal != e.Principal {
			continue
		}
		taken[o.Round]++
		if o.Worker == e.Worker {
			next = max(next, o.Round+1)
		}
	}
	round := max(now, next)
	for taken[round] >= perRound {
		round++
	}
	return round
}

// HasLabels tells whether all labels that are asked for are there. A "*" in a value that is
// asked for stands for any characters.
func HasLabels(have, asked lease.Labels) bool {
	for name, wanted := range asked {
		value, ok := have[name]
		if !ok || !(principal.Patterns{wanted}).Match(value) {
			return false
		}
	}
	return true
}

// Wants tells whether a waiter could be given a profile, whatever its state.
func Wants(w *lease.Waiter, r *lease.Record) bool {
	if w.ProfileID != "" {
		return w.ProfileID == r.ProfileID
	}
	return (w.AccountID == "" || w.AccountID == r.AccountID) && HasLabels(r.Labels, w.Labels) && principal.Patterns(w.Patterns).Match(r.ProfileID)
}

// mayHave tells whether a waiter could have a profile in the state of its record. One that is
// kept for another task holds up nobody.
func mayHave(w *lease.Waiter, r *lease.Record) bool {
	return Wants(w, r) && (r.State != lease.ResumePending || r.TaskID == w.TaskID)
}

// member is a waiter in a line.
type member struct {
	waiter *lease.Waiter
	rank   Rank
}

func rankOf(w *lease.Waiter, revision uint64) Rank {
	return Rank{Priority: w.Priority, Round: w.Round, Arrival: cmp.Or(w.Arrival, revision, NotStored), ID: w.ID}
}

// line returns those of the members that wait for a profile, in the order in which they get it.
func line(members []member, r *lease.Record) []member {
	var waiting []member
	for _, m := range members {
		if mayHave(m.waiter, r) {
			waiting = append(waiting, m)
		}
	}
	byAge := ByAge(uint64(r.Token) + 1)
	slices.SortFunc(waiting, func(a, b member) int { return Compare(a.rank, b.rank, byAge) })
	return waiting
}

// shares tells whether a waiter could be given one of the profiles.
func shares(w *lease.Waiter, records []lease.Record) bool {
	return slices.ContainsFunc(records, func(r lease.Record) bool { return Wants(w, &r) })
}
