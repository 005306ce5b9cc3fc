package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"leasehold/lease"
)

// memoryStore is a lease store that checks each write against lease.Table and the
// rule that tokens only grow, and tells a test of each write before it counts. What the
// recovery has no business with fails the test.
type memoryStore struct {
	lease.Store // nil: a call of anything else panics

	t testing.TB
	// write is asked before a record is stored, and may store it by itself.
	write func(prev, next lease.Record, store func()) error

	events []lease.Event // what History returns

	mu      sync.Mutex
	entries map[string]lease.Entry
	writes  uint64
}

// History has no events: those of the tests' records are never published.
func (s *memoryStore) History(context.Context, string) ([]lease.Event, error) { return s.events, nil }

func newMemoryStore(t testing.TB) *memoryStore {
	return &memoryStore{t: t, entries: map[string]lease.Entry{}}
}

func (s *memoryStore) Get(_ context.Context, profile string) (lease.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[profile]
	if !ok {
		return lease.Entry{}, lease.ErrNotFound
	}
	return lease.Entry{Record: e.Record.Clone(), Revision: e.Revision}, nil
}

func (s *memoryStore) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	if err := ctx.Err(); err != nil {
		return lease.Entry{}, errors.Join(lease.ErrUnavailable, err)
	}
	profile := next.ProfileID
	now, err := s.Get(ctx, profile)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return lease.Entry{}, err
	}
	if now.Revision != prev.Revision {
		return lease.Entry{}, &lease.MovedError{Profile: profile, Current: &now}
	}
	s.judge(now.Record, next)
	var stored lease.Entry
	store := func() { stored = s.put(next) }
	if s.write == nil {
		store()
		return stored, nil
	}
	if err := s.write(now.Record, next, store); err != nil {
		return lease.Entry{}, err
	}
	return stored, nil
}

// judge fails the test where a step is not in the table, or takes a token back.
func (s *memoryStore) judge(prev, next lease.Record) {
	legal := prev.State == next.State || slices.ContainsFunc(lease.Table(), func(t lease.Transition) bool { return t.From == prev.State && t.To == next.State })
	if !legal || next.Token < prev.Token || next.Sequence < prev.Sequence {
		s.t.Errorf("from %s with token %d to %s with token %d", prev.State, prev.Token, next.State, next.Token)
	}
}

// put stores a record, whoever writes it.
func (s *memoryStore) put(r lease.Record) lease.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	r = r.Clone()
	r.Outbox = nil // it is on the stream
	e := lease.Entry{Record: r, Revision: s.writes}
	s.entries[r.ProfileID] = e
	return e
}

// record is what is stored of the test's profile.
func (s *memoryStore) record() lease.Record {
	e, err := s.Get(context.Background(), profile)
	if err != nil {
		s.t.Fatal(err)
	}
	return e.Record
}

// said names a write as a trace has it: the state that it leads to, or what else it
// changes.
func said(prev, next lease.Record) string {
	switch {
	case prev.State != next.State:
		return string(next.State)
	case len(prev.Runs) != len(next.Runs):
		return fmt.Sprintf("runs=%d+%d", len(next.Runs), len(next.LostRuns))
	case prev.EvidenceID != next.EvidenceID:
		return "named"
	}
	return "written"
}
