package cluster

import (
	"context"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// ReasonYoung is the value of "reason" in the refusal of a profile that would be made in a
// store which other launchers may have to complete first.
const ReasonYoung = "store_young"

// A store that was just made, or went back, does not know all profiles. Their homes, and others
// that remember them, say so within the grant delay; until it is over, no profile is made that
// nobody knows. A store that only this launcher uses does not need that: what is on this host's
// own disk proves more.

// StoreSeen notes how old the store is, according to the first sight of it.
func (p *Presence) StoreSeen(s lease.Sight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Clock()
	p.young = max(p.young, now.Add(-min(s.Age, 2*p.o.Timing.GrantDelay())))
	if s.Stepped {
		p.young = now
		if p.home != 0 && now.Sub(p.home) < p.o.Timing.GrantDelay() {
			p.home = now
		}
	}
	p.seen, p.number = true, s.Number
}

// StoreForgot notes that the store lacks something that this launcher remembers.
func (p *Presence) StoreForgot() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.young = p.o.Clock()
}

// HomesHadTime tells whether the homes of profiles that the store has forgotten have had time
// to say so, so that others may now do it for them.
func (p *Presence) HomesHadTime() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen && p.o.Clock().Sub(p.young) >= p.o.Timing.GrantDelay()/2
}

// MakeReady refuses to make a profile that nobody knows while the store is young. Otherwise it
// returns the number of the store in which the record may be made. The store itself is asked
// for it, since the watch is late to learn that a store was lost. The number is zero if the
// record may be made in any store.
func (p *Presence) MakeReady(ctx context.Context) (number uint64, _ error) {
	if !p.o.SharedStore {
		return 0, nil
	}
	sight, err := p.o.Store.Look(ctx)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	if p.seen && p.number != sight.Number {
		p.young, p.number = p.o.Clock(), sight.Number
	}
	left := p.o.Timing.GrantDelay() - p.o.Clock().Sub(p.young)
	if !p.seen {
		left = p.o.Timing.GrantDelay()
	}
	p.mu.Unlock()
	if left <= 0 {
		return sight.Number, nil
	}
	q := api.Refuse(api.CodeStoreUnavailable,
		"the lease store is young, or has just forgotten something, so that another host may know of this profile what the store does not: new profiles are made in %v at the earliest; ask again then, or with wait", left.Round(time.Second)).
		With("reason", ReasonYoung)
	q.RetryAfter = int(left.Seconds()) + 1
	return 0, q
}
