// Package queue has the requests that wait for a profile or for a place on a host, and says
// whose turn it is. The order is a pure function of the waiters and of the profile's record, so
// that all launchers on a lease store agree about it. It does not depend on a clock.
//
// It is only a hint about the order: who gets a profile is decided by the compare-and-swap of
// its record, whatever the queue says.
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
	// Arrival is when the request began to wait, as the number of a write to the lease store;
	// NotStored if it is not stored yet.
	Arrival uint64
	// Number is its place among this launcher's own requests. It counts where none is stored yet.
	Number uint64
	ID     string
}

// NotStored is the arrival of a request that is not in the store yet: it comes after all
// others.
const NotStored = ^uint64(0)

// Of every agePeriod tokens of a profile, the grants under the last agedTokens go by age alone.
// A profile's token rises by one at a grant, and up to twice more before the next one, so that
// every period contains such a grant.
const (
	agePeriod  = 24
	agedTokens = 3
)

// ByAge tells whether the grant with this number goes to the request that has waited longest,
// whatever its priority and round. About one grant in eight does, so that no request waits for
// ever.
func ByAge(number uint64) bool { return number%agePeriod >= agePeriod-agedTokens }

// Compare is negative if a comes before b.
func Compare(a, b Rank, byAge bool) int {
	arrival := cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Number, b.Number), cmp.Compare(a.ID, b.ID))
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

// perRound is how many requests of one principal are in a round, however many workers they
// name.
const perRound = 4

// Round returns the round of a request that begins to wait among others that want the same
// profile or place. It is the round that is being served or, if the worker already has waiting
// requests, the round after that of its last one. So a worker with a hundred requests has one
// of them in each of a hundred rounds, and another worker's first request waits for only one of
// them. Only requests of the same priority count.
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

// HasLabels tells whether a profile has all labels that are asked for. A "*" in a value that is
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

// mayHave tells whether a waiter could get a profile in the state that its record has. A
// profile that is kept for another task holds up nobody. A free one whose account is signed out goes
// only to who signs it in; one that somebody has may be signed in by then.
func mayHave(w *lease.Waiter, r *lease.Record) bool {
	if r.State.Free() && r.SignedOut() && !w.SignIn {
		return false
	}
	return Wants(w, r) && (r.State != lease.ResumePending || r.TaskID == w.TaskID)
}

type member struct {
	waiter *lease.Waiter
	rank   Rank
}

func rankOf(w *lease.Waiter, revision uint64) Rank {
	return Rank{Priority: w.Priority, Round: w.Round, Arrival: cmp.Or(w.Arrival, revision, NotStored), ID: w.ID}
}

// line returns those members that wait for a profile, in the order in which they get it.
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

// shares tells whether a waiter could be given at least one of the profiles.
func shares(w *lease.Waiter, records []lease.Record) bool {
	return slices.ContainsFunc(records, func(r lease.Record) bool { return Wants(w, &r) })
}
