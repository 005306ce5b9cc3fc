package session

import (
	"context"
	"sync"
	"testing"

	"leasehold/lease"
)

// memory is a lease store in memory. What sessions have no need of fails the test.
type memory struct {
	t testing.TB

	mu        sync.Mutex
	revision  uint64
	records   map[string]lease.Entry
	presences map[string]lease.PresenceEntry
	events    []lease.Event // of transitions and others, in order
	away      bool          // it cannot be reached
	// before is called with each record that is to be stored, and may refuse it.
	before func(lease.Record) error
}

var _ lease.Store = (*memory)(nil)

func newMemory(t testing.TB) *memory {
	return &memory{t: t, records: map[string]lease.Entry{}, presences: map[string]lease.PresenceEntry{}}
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// put stores a record over whatever is there, as another launcher does.
func (m *memory) put(r lease.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision++
	m.records[r.ProfileID] = lease.Entry{Record: r, Revision: m.revision}
}

// named are the events with the name.
func (m *memory) named(event string) (found []lease.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.Event == event {
			found = append(found, e)
		}
	}
	return found
}

func (m *memory) Look(context.Context) (lease.Sight, error) {
	m.t.Error("a session looks how old the store is")
	return lease.Sight{}, lease.ErrUnavailable
}

func (m *memory) Get(_ context.Context, profile string) (lease.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return lease.Entry{}, lease.ErrUnavailable
	}
	e, ok := m.records[profile]
	if !ok {
		return lease.Entry{}, lease.ErrNotFound
	}
	e.Record = e.Record.Clone()
	return e, nil
}

func (m *memory) Swap(_ context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		if err := before(next); err != nil {
			return lease.Entry{}, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return lease.Entry{}, lease.ErrUnavailable
	}
	now := m.records[next.ProfileID]
	if now.Revision != prev.Revision {
		return lease.Entry{}, &lease.MovedError{Profile: next.ProfileID, Current: &now}
	}
	m.revision++
	next = next.Clone()
	m.events = append(m.events, next.Outbox...)
	next.Outbox = nil
	m.records[next.ProfileID] = lease.Entry{Record: next, Revision: m.revision}
	return m.records[next.ProfileID], nil
}

func (m *memory) Presence(_ context.Context, launcher string) (lease.PresenceEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.presences[launcher], nil
}

func (m *memory) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.presences[next.LauncherID]; now.Revision != prev.Revision {
		return lease.PresenceEntry{}, &lease.PresenceMovedError{Launcher: next.LauncherID, Current: &now}
	}
	m.revision++
	m.presences[next.LauncherID] = lease.PresenceEntry{Presence: next, Revision: m.revision}
	return m.presences[next.LauncherID], nil
}

func (m *memory) Announce(_ context.Context, e lease.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return lease.ErrUnavailable
	}
	m.events = append(m.events, e)
	return nil
}

func (m *memory) List(context.Context) ([]lease.Entry, error) {
	m.t.Error("a session lists the records")
	return nil, lease.ErrUnavailable
}

func (m *memory) Presences(context.Context) ([]lease.PresenceEntry, error) {
	m.t.Error("a session lists the presences")
	return nil, lease.ErrUnavailable
}

func (m *memory) Watch(context.Context, func(lease.Sight)) error {
	m.t.Error("a session watches the store")
	return lease.ErrUnavailable
}

func (m *memory) History(context.Context, string) ([]lease.Event, error) {
	m.t.Error("a session reads the history")
	return nil, lease.ErrUnavailable
}
