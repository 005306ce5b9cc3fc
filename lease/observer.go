package lease

import (
	"time"

	"leasehold/internal/boottime"
)

// Observer decides, for one launcher, which other launchers have gone silent and what to do
// about their leases. It knows only what it was shown. It measures time only on this host's
// clock, beginning when it first saw an entry that has not changed since.
type Observer struct {
	own          string
	abandonAfter time.Duration

	presences  map[string]unchanged[PresenceEntry] // by launcher
	recoveries map[string]unchanged[uint64]        // revisions of records in recovery, by profile
}

// unchanged is a value with the instant since which it has been the same.
type unchanged[T any] struct {
	value T
	since boottime.Instant
}

// NewObserver returns the observer of the launcher own. After abandonAfter it abandons the
// recovery of a profile whose home is gone.
func NewObserver(own string, abandonAfter time.Duration) *Observer {
	return &Observer{own: own, abandonAfter: abandonAfter, presences: map[string]unchanged[PresenceEntry]{}, recoveries: map[string]unchanged[uint64]{}}
}

// Presences shows the observer the presences that are in the store at now. If a presence
// differs from before, whether it is newer or older, the wait for its launcher starts again,
// unless another launcher has only ended that stay, which is no sign of life.
func (o *Observer) Presences(all []PresenceEntry, now boottime.Instant) {
	shown := map[string]bool{}
	for _, p := range all {
		shown[p.Presence.LauncherID] = true
		o.notice(p.Presence.LauncherID, p, now)
	}
	for launcher := range o.presences {
		if !shown[launcher] {
			o.notice(launcher, PresenceEntry{}, now)
		}
	}
}

// notice keeps the entry of the launcher, with now as its time if the launcher has written
// another one.
func (o *Observer) notice(launcher string, p PresenceEntry, now boottime.Instant) {
	before, known := o.presences[launcher]
	if !known || before.value.Revision != p.Revision || before.value.Presence.Nonce != p.Presence.Nonce {
		since := now
		if known && p.EndedFrom(before.value) {
			since = before.since
		}
		o.presences[launcher] = unchanged[PresenceEntry]{p, since}
	}
}

// Of returns the last presence of the launcher that was shown; the zero Presence if there was
// none.
func (o *Observer) Of(launcher string) Presence { return o.presences[launcher].value.Presence }

// Start starts all waits again at now. It is called after the store went back, because every
// holder then needs time to write again what the store forgot.
func (o *Observer) Start(now boottime.Instant) {
	for launcher, w := range o.presences {
		w.since = now
		o.presences[launcher] = w
	}
	clear(o.recoveries)
}

// Step is what an observer may do about a lease. The zero Step means nothing.
type Step struct {
	// Fact is the transition to make: Suspected, Fenced or Abandoned.
	Fact Fact
	// Close is set if Fact is empty: a presence to store instead of Prev, which closes the stay
	// of a launcher that went silent.
	Close *Presence
	Prev  PresenceEntry
}

// Lease returns what has to be done about a lease of another launcher:
//
//   - If it is held, and the presence that it depends on has not changed for longer than its
//     holder may go without a renewal: close the presence.
//   - If it is held, and that presence is closed: suspect it, then fence it.
//   - If it is quarantined or inspected, and its home has been gone for the time that was given
//     to NewObserver: abandon the recovery.
//
// A launcher recovers the profiles whose home it is itself, so these get the zero Step.
func (o *Observer) Lease(e Entry, now boottime.Instant) Step {
	r := e.Record
	if r.State != Quarantined && r.State != Inspected {
		delete(o.recoveries, r.ProfileID)
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
		o.notice(r.LauncherID, PresenceEntry{}, now)
		return Step{}
	}
	p := w.value.Presence
	switch {
	case p.Epoch >= r.PresenceEpoch && p.Closed && r.State == Held:
		return Step{Fact: Suspected}
	case p.Epoch >= r.PresenceEpoch && p.Closed:
		return Step{Fact: Fenced}
	}
	// The presence is live, missing, or of an earlier stay. It counts as silent after the
	// longer of the two TTLs. If the launcher came back in a later stay, it recovers its own
	// leases, unless it goes silent again before that.
	ttl := max(p.TTL(), time.Duration(r.TTLSeconds*float64(time.Second)))
	if now.Sub(w.since) < (Timing{TTL: ttl}).ObserverWait() {
		return Step{}
	}
	next := p.Close(r.LauncherID, o.own, r.PresenceEpoch, time.Now())
	return Step{Close: &next, Prev: w.value}
}

// Silent tells whether a presence, closed or not, has not changed for longer than a launcher
// may go without a renewal: what depends only on that launcher's word may then be given to
// another one. A launcher that comes back sooner finds everything as it left it. ttl is that of
// the record in question. Silent is false for a launcher of which nothing was shown.
func (o *Observer) Silent(launcher string, ttl time.Duration, now boottime.Instant) bool {
	w, known := o.presences[launcher]
	if !known {
		o.notice(launcher, PresenceEntry{}, now)
		return false
	}
	return now.Sub(w.since) >= (Timing{TTL: max(w.value.Presence.TTL(), ttl)}).ObserverWait()
}

func (o *Observer) recovering(e Entry, now boottime.Instant) Step {
	r := e.Record
	home, known := o.presences[r.Home]
	if !known {
		o.notice(r.Home, PresenceEntry{}, now)
		return Step{}
	}
	p := home.value.Presence
	gone := p.Closed || now.Sub(home.since) >= (Timing{TTL: max(p.TTL(), time.Duration(r.TTLSeconds*float64(time.Second)))}).ObserverWait()
	w, waits := o.recoveries[r.ProfileID]
	switch {
	case !gone:
		delete(o.recoveries, r.ProfileID)
	case !waits || w.value != e.Revision:
		o.recoveries[r.ProfileID] = unchanged[uint64]{e.Revision, now}
	case now.Sub(w.since) >= o.abandonAfter:
		return Step{Fact: Abandoned}
	}
	return Step{}
}
