package lease

import (
	"time"

	"leasehold/internal/boottime"
)

// Observer tells, for one launcher, which others went silent and what to do about
// their leases. It knows only what was shown to it, and counts on this host's
// clock alone, since it first saw the very thing that has not changed.
type Observer struct {
	own   string
	bound time.Duration

	presences map[string]watched[PresenceEntry]
	waiting   map[string]watched[uint64] // profiles in recovery, by revision
}

// watched is something that has not changed since a moment.
type watched[T any] struct {
	what  T
	since boottime.Instant
}

// NewObserver returns the observer of the launcher own, which gives a profile in
// recovery whose home is gone to a person after bound.
func NewObserver(own string, bound time.Duration) *Observer {
	return &Observer{own: own, bound: bound, presences: map[string]watched[PresenceEntry]{}, waiting: map[string]watched[uint64]{}}
}

// Presences shows what the store says of all launchers now. Any change of one
// starts the wait for it again: a renewal, and a step back as well.
func (o *Observer) Presences(all []PresenceEntry, now boottime.Instant) {
	shown := map[string]bool{}
	for _, p := range all {
		shown[p.Presence.LauncherID] = true
		o.see(p.Presence.LauncherID, p, now)
	}
	for launcher := range o.presences {
		if !shown[launcher] {
			o.see(launcher, PresenceEntry{}, now)
		}
	}
}

func (o *Observer) see(launcher string, p PresenceEntry, now boottime.Instant) {
	before, known := o.presences[launcher]
	if !known || before.what.Revision != p.Revision || before.what.Presence.Nonce != p.Presence.Nonce {
		o.presences[launcher] = watched[PresenceEntry]{p, now}
	}
}

// Of returns what was last shown of a launcher.
func (o *Observer) Of(launcher string) Presence { return o.presences[launcher].what.Presence }

// Start forgets all waits: the store went back, and everybody has to be given the
// time to say again what it forgot.
func (o *Observer) Start(now boottime.Instant) {
	for launcher, w := range o.presences {
		w.since = now
		o.presences[launcher] = w
	}
	clear(o.waiting)
}

// Step is what an observer may do about a lease.
type Step struct {
	// Fact is Suspected, Fenced or Abandoned; empty for nothing.
	Fact Fact
	// Close, with no fact, is the presence to close first: it is Prev's
	// successor.
	Close *Presence
	Prev  PresenceEntry
}

// Lease says what is due about a lease of another launcher.
//
//   - held, and the presence that carries it has not changed for longer than its
//     holder may go without a renewal: close the presence;
//   - held, and its presence is closed: suspect it, then fence it;
//   - quarantined or inspected, and its home is not there for the bound: abandon
//     it.
func (o *Observer) Lease(e Entry, now boottime.Instant) Step {
	r := e.Record
	if r.State != Quarantined && r.State != Inspected {
		delete(o.waiting, r.ProfileID)
	}
	switch {
	case r.Home == o.own:
		return Step{}
	case r.State == Held || r.State == SuspectedStale:
		return o.held(r, now)
	case r.State == Quarantined || r.State == Inspected:
		return o.recovering(e, now)
	}
	return Step{}
}

func (o *Observer) held(r Record, now boottime.Instant) Step {
	w, known := o.presences[r.LauncherID]
	if !known {
		o.see(r.LauncherID, PresenceEntry{}, now)
		return Step{}
	}
	p := w.what.Presence
	switch {
	case p.Epoch >= r.PresenceEpoch && p.Closed && r.State == Held:
		return Step{Fact: Suspected}
	case p.Epoch >= r.PresenceEpoch && p.Closed:
		return Step{Fact: Fenced}
	}
	// Live, missing, or older than the lease: silent or not, by its own TTL. One
	// that came back recovers its own, unless it goes silent before that.
	ttl := max(p.TTL(), time.Duration(r.TTLSeconds*float64(time.Second)))
	if now.Sub(w.since) < (Timing{TTL: ttl}).ObserverWait() {
		return Step{}
	}
	next := p.Close(r.LauncherID, o.own, r.PresenceEpoch, time.Now())
	return Step{Close: &next, Prev: w.what}
}

func (o *Observer) recovering(e Entry, now boottime.Instant) Step {
	r := e.Record
	home, known := o.presences[r.Home]
	if !known {
		o.see(r.Home, PresenceEntry{}, now)
		return Step{}
	}
	p := home.what.Presence
	gone := p.Closed || now.Sub(home.since) >= (Timing{TTL: max(p.TTL(), time.Duration(r.TTLSeconds*float64(time.Second)))}).ObserverWait()
	w, waits := o.waiting[r.ProfileID]
	switch {
	case !gone:
		delete(o.waiting, r.ProfileID)
	case !waits || w.what != e.Revision:
		o.waiting[r.ProfileID] = watched[uint64]{e.Revision, now}
	case now.Sub(w.since) >= o.bound:
		return Step{Fact: Abandoned}
	}
	return Step{}
}
