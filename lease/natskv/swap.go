package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"leasehold/internal/id"
	"leasehold/lease"
)

// Swap is part of lease.Store. One attempt takes at most two seconds; the call takes as long as
// its context allows, or five seconds if that has no deadline. A key whose record was deleted
// is treated as one that never had a record. After lease.ErrUnavailable, Flush waits until the
// write is settled. The record is stored as lease.Record.Fit cuts it; events that leave its
// outbox are published from this Store's memory.
func (s *Store) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	profile := next.ProfileID
	if err := lease.CheckProfileID(profile); err != nil {
		return lease.Entry{}, err
	}
	if prev.Revision != 0 && prev.Record.ProfileID != profile {
		return lease.Entry{}, fmt.Errorf("lease of %s: cannot replace the record of %s", profile, prev.Record.ProfileID)
	}
	if s.settler.full() {
		s.settler.drop(&write{dropped: prev.Dropped})
		return lease.Entry{}, fmt.Errorf("lease of %s: %w: too many writes that were not answered are still to be settled", profile, lease.ErrUnavailable)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()

	next = next.Clone()
	next.Nonce = id.New("write")
	next.Outbox = s.pub.outbox(prev.Record.Sequence, next)
	next, dropped, err := next.Fit(s.leases.room(s.nc))
	if err != nil {
		return lease.Entry{}, fmt.Errorf("lease of %s: %w", profile, err)
	}
	before := prev.Record.Clone()
	w, err := newWrite(s.leases, lease.Key(profile), prev.Revision, next.Nonce, next, func() any {
		before.Nonce = id.New("write")
		return before
	})
	if err != nil {
		return lease.Entry{}, fmt.Errorf("lease of %s: %w", profile, err)
	}
	w.dropped = prev.Dropped
	if w.create {
		w.number = prev.Number
	}
	revision, err := s.cas(ctx, w)
	var moved *movedError
	switch {
	case err == nil:
		s.pub.enqueue(profile, slices.Concat(dropped, next.Outbox))
		if len(dropped) > 0 {
			s.log.Warn().Str("profile", profile).Int("events", len(dropped)).Int("kept", len(next.Outbox)).
				Msg("the record has no room for all events that are not published: the oldest are only in this launcher's memory until the event stream takes them")
		}
		return lease.Entry{Record: next, Revision: revision}, nil
	case errors.As(err, &moved):
		lost := &lease.MovedError{Profile: profile}
		if m := moved.now; m != nil {
			lost.Current = &lease.Entry{Record: lease.Record{ProfileID: profile}, Revision: m.Seq}
			if m.Seq != 0 {
				lost.Current.Record, _ = decodeRecord(w.key, m.Data)
			}
		}
		return lease.Entry{}, lost
	case errors.Is(err, errUntraceable), errors.Is(err, errMade):
		// If it was stored after all, its events have to be published.
		s.pub.sweep()
	}
	return lease.Entry{}, fmt.Errorf("lease of %s: %w", profile, err)
}

// SwapPresence is part of lease.Store. It does with presences what Swap does with records.
func (s *Store) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	launcher := next.LauncherID
	if err := checkLauncherID(launcher); err != nil {
		return lease.PresenceEntry{}, err
	}
	if prev.Revision != 0 && prev.Presence.LauncherID != launcher {
		return lease.PresenceEntry{}, fmt.Errorf("presence of launcher %s: cannot replace the one of %s", launcher, prev.Presence.LauncherID)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()

	next.Nonce = id.New("write")
	before := prev.Presence
	w, err := newWrite(s.hosts, launcherKey(launcher), prev.Revision, next.Nonce, next, func() any {
		before.Nonce = id.New("write")
		return before
	})
	if err != nil {
		return lease.PresenceEntry{}, fmt.Errorf("presence of launcher %s: %w", launcher, err)
	}
	revision, err := s.cas(ctx, w)
	var moved *movedError
	switch {
	case err == nil:
		return lease.PresenceEntry{Presence: next, Revision: revision}, nil
	case errors.As(err, &moved):
		lost := &lease.PresenceMovedError{Launcher: launcher}
		if m := moved.now; m != nil {
			lost.Current = &lease.PresenceEntry{Revision: m.Seq}
			if m.Seq != 0 {
				lost.Current.Presence, _ = decodePresence(w.key, m.Data)
			}
		}
		return lease.PresenceEntry{}, lost
	}
	return lease.PresenceEntry{}, fmt.Errorf("presence of launcher %s: %w", launcher, err)
}
