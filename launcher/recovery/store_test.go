package recovery_test

import (
	"context"
	"fmt"
	"testing"

	"leasehold/internal/test/leasetest"
	"leasehold/lease"
)

// memoryStore is a lease store in memory whose history is what a test says: the events of the tests'
// records are never published.
type memoryStore struct {
	*leasetest.Store
	t      testing.TB
	events []lease.Event
}

func newMemoryStore(t testing.TB) *memoryStore { return &memoryStore{Store: leasetest.New(t), t: t} }

func (s *memoryStore) History(context.Context, string) ([]lease.Event, error) { return s.events, nil }

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
