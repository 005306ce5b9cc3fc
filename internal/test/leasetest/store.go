// Package leasetest has a lease store in memory, for the tests of those who hold and inspect leases.
package leasetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"leasehold/lease"
)

// Store is a lease store in memory. It checks each write against lease.Table and the rule that tokens only
// grow. Its fields are set before it is used, or with Do.
type Store struct {
	lease.Store // nil: a call of anything else panics

	t testing.TB
	// Away says that it cannot be reached.
	Away bool
	// Write is called with the record there is and the one to be stored, and stores it or does not.
	Write func(now, next lease.Record, store func()) error

	Revision  uint64
	Records   map[string]lease.Entry
	Launchers map[string]lease.PresenceEntry
	Events    []lease.Event // of transitions and others, in order

	mu sync.Mutex
}

// New returns an empty store.
func New(t testing.TB) *Store {
	return &Store{t: t, Records: map[string]lease.Entry{}, Launchers: map[string]lease.PresenceEntry{}}
}

// Do runs a function with the store locked.
func (s *Store) Do(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Put stores a record over whatever is there, as another launcher does.
func (s *Store) Put(r lease.Record) lease.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(r)
}

func (s *Store) put(r lease.Record) lease.Entry {
	s.Revision++
	r = r.Clone()
	s.Events = append(s.Events, r.Outbox...)
	r.Outbox = nil
	s.Records[r.ProfileID] = lease.Entry{Record: r, Revision: s.Revision}
	return s.Records[r.ProfileID]
}

// Named are the events with the name.
func (s *Store) Named(event string) (found []lease.Event) {
	s.Do(func() {
		for _, e := range s.Events {
			if e.Event == event {
				found = append(found, e)
			}
		}
	})
	return found
}

// reached says why the store cannot be reached, if it cannot.
func (s *Store) reached(ctx context.Context) error {
	if s.Away || ctx.Err() != nil {
		return errors.Join(lease.ErrUnavailable, ctx.Err())
	}
	return nil
}

// Get is part of lease.Store.
func (s *Store) Get(ctx context.Context, profile string) (lease.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reached(ctx); err != nil {
		return lease.Entry{}, err
	}
	e, ok := s.Records[profile]
	if !ok {
		return lease.Entry{}, lease.ErrNotFound
	}
	e.Record = e.Record.Clone()
	return e, nil
}

// Swap is part of lease.Store.
func (s *Store) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (stored lease.Entry, err error) {
	stored, write, err := s.swap(ctx, prev, next)
	if err == nil && write != nil {
		err = write(func() { stored = s.Put(next) }) // it may use the store, and may panic
	}
	return stored, err
}

// swap stores a record, or returns what Write has to do with it.
func (s *Store) swap(ctx context.Context, prev lease.Entry, next lease.Record) (stored lease.Entry, write func(store func()) error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reached(ctx); err != nil {
		return stored, nil, err
	}
	now := s.Records[next.ProfileID]
	if now.Revision != prev.Revision {
		return stored, nil, &lease.MovedError{Profile: next.ProfileID, Current: &now}
	}
	s.judge(now.Record, next)
	if s.Write == nil {
		return s.put(next), nil, nil
	}
	asked, before := s.Write, now.Record.Clone()
	return stored, func(store func()) error { return asked(before, next, store) }, nil
}

// judge fails the test where a step is not in the table, or takes a token back.
func (s *Store) judge(now, next lease.Record) {
	legal := now.State == next.State || slices.ContainsFunc(lease.Table(), func(t lease.Transition) bool { return t.From == now.State && t.To == next.State })
	if !legal || next.Token < now.Token || next.Sequence < now.Sequence {
		s.t.Errorf("from %s with token %d to %s with token %d", now.State, now.Token, next.State, next.Token)
	}
}

// Presence is part of lease.Store.
func (s *Store) Presence(_ context.Context, launcher string) (lease.PresenceEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Launchers[launcher], nil
}

// SwapPresence is part of lease.Store.
func (s *Store) SwapPresence(_ context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.Launchers[next.LauncherID]; now.Revision != prev.Revision {
		return lease.PresenceEntry{}, &lease.PresenceMovedError{Launcher: next.LauncherID, Current: &now}
	}
	s.Revision++
	s.Launchers[next.LauncherID] = lease.PresenceEntry{Presence: next, Revision: s.Revision}
	return s.Launchers[next.LauncherID], nil
}

// Announce is part of lease.Store.
func (s *Store) Announce(ctx context.Context, e lease.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reached(ctx); err != nil {
		return err
	}
	s.Events = append(s.Events, e)
	return nil
}
