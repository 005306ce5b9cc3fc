package lease

import (
	"sync/atomic"
	"time"

	"leasehold/internal/boottime"
)

// Stay is what a launcher knows of one stay of its own: the presence that it
// opened, what the store last showed of it, and the deadline that the fences of
// all its leases share. It holds the decisions of a Keeper, which is the one to
// use, and has no effects.
type Stay struct {
	own      Presence
	timing   Timing
	clock    boottime.Clock
	latest   PresenceEntry
	deadline atomic.Int64
}

// Begin is the stay that was stored as opened. sent is when that write was first
// sent: the store may have applied it at once.
func Begin(opened PresenceEntry, sent boottime.Instant, t Timing, clock boottime.Clock) *Stay {
	s := &Stay{own: opened.Presence, timing: t, clock: clock, latest: opened}
	s.extend(sent)
	return s
}

func (s *Stay) extend(sent boottime.Instant) {
	s.deadline.Store(int64(sent.Add(s.timing.TTL - s.timing.Margin())))
}

// Epoch names the stay; leases carry it.
func (s *Stay) Epoch() uint64 { return s.own.Epoch }

// Deadline is when the launcher stops, unless a renewal moves it.
func (s *Stay) Deadline() boottime.Instant { return boottime.Instant(s.deadline.Load()) }

// Fence returns an open fence for a lease that hangs on the stay.
func (s *Stay) Fence(t Token) *Fence {
	return &Fence{token: t, clock: s.clock, deadline: &s.deadline}
}

// Next is the renewal to send, and the entry to send it over. ErrExpired where the
// store shows that the stay is over.
func (s *Stay) Next(now time.Time) (prev PresenceEntry, next Presence, err error) {
	if err := s.latest.Presence.against(s.own); err != nil {
		return s.latest, Presence{}, err
	}
	return s.latest, s.own.renew(now), nil
}

// Shown takes in what the store shows instead of what was expected.
func (s *Stay) Shown(current PresenceEntry) { s.latest = current }

// Renewed moves the deadline after a renewal that is known to be applied, and
// that was first sent at sent. ErrExpired where the answer came too late: a
// message may have found the deadline passed, and was refused for good.
func (s *Stay) Renewed(stored PresenceEntry, sent boottime.Instant) error {
	s.latest = stored
	if s.clock() >= s.Deadline() {
		return ErrExpired
	}
	s.extend(sent)
	return nil
}

// Closed is the write that ends the stay in the store, over prev. Not due where
// the stay is over already.
func (s *Stay) Closed(now time.Time) (prev PresenceEntry, next Presence, due bool) {
	p := s.latest.Presence
	if p.against(s.own) != nil {
		return s.latest, Presence{}, false
	}
	return s.latest, p.Close(s.own.LauncherID, s.own.LauncherID, s.own.Epoch, now), true
}

// End shuts every fence of the stay.
func (s *Stay) End() { s.deadline.Store(0) }
