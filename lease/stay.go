package lease

import (
	"sync/atomic"
	"time"

	"leasehold/internal/boottime"
)

// Stay is what a launcher knows about one stay of its own: the presence that it
// opened, what the store last showed of it, and the deadline that the fences of all
// its leases share. It makes the decisions of a Keeper and writes nothing itself;
// launchers use a Keeper.
type Stay struct {
	own      Presence
	timing   Timing
	clock    boottime.Clock
	latest   PresenceEntry
	deadline atomic.Int64
}

// Begin returns the stay whose presence was stored as opened. sent is a reading of the clock
// from before that write was first sent, because the store may have applied the write at once,
// however late its answer came.
func Begin(opened PresenceEntry, sent boottime.Instant, t Timing, clock boottime.Clock) *Stay {
	s := &Stay{own: opened.Presence, timing: t, clock: clock, latest: opened}
	s.extend(sent)
	return s
}

func (s *Stay) extend(sent boottime.Instant) {
	s.deadline.Store(int64(sent.Add(s.timing.TTL - s.timing.Margin())))
}

// Epoch is the number of the stay. Its leases name it.
func (s *Stay) Epoch() uint64 { return s.own.Epoch }

// Deadline is when all fences of the stay shut, unless a renewal moves it.
func (s *Stay) Deadline() boottime.Instant { return boottime.Instant(s.deadline.Load()) }

// Fence returns a fence, not shut yet, for a lease that depends on the stay.
func (s *Stay) Fence(t Token) *Fence {
	return &Fence{token: t, clock: s.clock, deadline: &s.deadline}
}

// Next returns the next renewal, and the entry that it has to replace. The error is ErrExpired
// if the store has shown that the stay is over.
func (s *Stay) Next(now time.Time) (prev PresenceEntry, next Presence, err error) {
	if err := s.latest.Presence.allows(s.own); err != nil {
		return s.latest, Presence{}, err
	}
	return s.latest, s.own.renew(now), nil
}

// Shown tells the stay what the store has, after a renewal found something other than it
// expected. The next renewal replaces that.
func (s *Stay) Shown(current PresenceEntry) { s.latest = current }

// Renewed moves the deadline after a renewal that is known to be stored. sent is a reading of
// the clock from before it was first sent. The error is ErrExpired if the deadline passed
// before the answer came: by then a message may have been refused, and a fence never opens
// again.
func (s *Stay) Renewed(stored PresenceEntry, sent boottime.Instant) error {
	s.latest = stored
	if s.clock() >= s.Deadline() {
		return ErrExpired
	}
	s.extend(sent)
	return nil
}

// Closed returns the write that ends the stay in the store, and the entry that it has to
// replace. due is false if the stay is over already.
func (s *Stay) Closed(now time.Time) (prev PresenceEntry, next Presence, due bool) {
	p := s.latest.Presence
	if p.allows(s.own) != nil {
		return s.latest, Presence{}, false
	}
	return s.latest, p.Close(s.own.LauncherID, s.own.LauncherID, s.own.Epoch, now), true
}

// End sets the deadline to the past, which shuts every fence of the stay.
func (s *Stay) End() { s.deadline.Store(0) }
