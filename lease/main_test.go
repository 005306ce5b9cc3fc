package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"leasehold/internal/boottime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 30 * time.Second

var timing = Timing{TTL: ttl}

// memory is a store in memory that can be cut off, lose answers, or go back. It has
// only the methods that keepers and holdings call.
type memory struct {
	Store // nil, so that any other method panics

	mu        sync.Mutex
	revision  uint64
	records   map[string]Entry
	presences map[string]PresenceEntry
	writes    int
	// away loses requests; silent applies them and loses the answers.
	away, silent bool
	// noReads answers Get and Presence with ErrUnavailable.
	noReads bool
	// hangs leaves Get without an answer until its context ends.
	hangs bool
	// applied, if set, is called after each applied write, before its answer.
	applied func()
	// noCurrent leaves the current entry out of refusals.
	noCurrent bool
}

func newMemory() *memory {
	return &memory{records: map[string]Entry{}, presences: map[string]PresenceEntry{}}
}

// reachable waits until blocked is false, and then returns with mu locked. It returns
// ErrUnavailable, without the lock, if ctx ends first.
func (s *memory) reachable(ctx context.Context, blocked func() bool) error {
	for {
		s.mu.Lock()
		if !blocked() {
			return nil
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ErrUnavailable
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *memory) isAway() bool   { return s.away }
func (s *memory) isSilent() bool { return s.silent }

func (s *memory) Get(ctx context.Context, _ string) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return Entry{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if s.noReads {
		return Entry{}, ErrUnavailable
	}
	e, ok := s.records["p"]
	if !ok {
		return Entry{}, ErrNotFound
	}
	return e, nil
}

func (s *memory) Swap(ctx context.Context, prev Entry, next Record) (Entry, error) {
	if err := s.reachable(ctx, s.isAway); err != nil {
		return Entry{}, err
	}
	current := s.records[next.ProfileID]
	if prev.Revision != current.Revision {
		defer s.mu.Unlock()
		if s.noCurrent {
			return Entry{}, &MovedError{Profile: next.ProfileID}
		}
		return Entry{}, &MovedError{Profile: next.ProfileID, Current: &current}
	}
	s.revision++
	stored := Entry{Record: next, Revision: s.revision}
	s.records[next.ProfileID] = stored
	return stored, s.answer(ctx)
}

func (s *memory) Presence(_ context.Context, launcher string) (PresenceEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noReads {
		return PresenceEntry{}, ErrUnavailable
	}
	return s.presences[launcher], nil
}

func (s *memory) SwapPresence(ctx context.Context, prev PresenceEntry, next Presence) (PresenceEntry, error) {
	if err := s.reachable(ctx, s.isAway); err != nil {
		return PresenceEntry{}, err
	}
	current := s.presences[next.LauncherID]
	if prev.Revision != current.Revision {
		defer s.mu.Unlock()
		if s.noCurrent {
			return PresenceEntry{}, &PresenceMovedError{Launcher: next.LauncherID}
		}
		return PresenceEntry{}, &PresenceMovedError{Launcher: next.LauncherID, Current: &current}
	}
	s.revision++
	stored := PresenceEntry{Presence: next, Revision: s.revision}
	s.presences[next.LauncherID] = stored
	return stored, s.answer(ctx)
}

// answer counts an applied write, unlocks, and waits until answers get through.
func (s *memory) answer(ctx context.Context) error {
	s.writes++
	if s.applied != nil {
		s.applied()
	}
	s.mu.Unlock()
	if err := s.reachable(ctx, s.isSilent); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}

func (s *memory) set(change func(*memory)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// back returns a function that sets the store back to what it is now.
func (s *memory) back() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, records, presences := s.revision, maps.Clone(s.records), maps.Clone(s.presences)
	return func() {
		s.set(func(s *memory) {
			s.revision, s.records, s.presences = revision, maps.Clone(records), maps.Clone(presences)
		})
	}
}

func (s *memory) record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records["p"].Record
}

func (s *memory) presence() Presence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presences["l"].Presence
}

// change writes the record as another launcher would.
func (s *memory) change(t *testing.T, fn func(Record) (Record, error)) {
	t.Helper()
	if _, err := Change(t.Context(), s, "p", func(e Entry) (Record, error) { return fn(e.Record) }); err != nil {
		t.Fatal(err)
	}
}

// closeBy closes the launcher's presence as the observer of another launcher would.
func (s *memory) closeBy(t *testing.T, by string) {
	t.Helper()
	s.mu.Lock()
	prev := s.presences["l"]
	s.mu.Unlock()
	if _, err := s.SwapPresence(t.Context(), prev, prev.Presence.Close("l", by, prev.Presence.Epoch, time.Now())); err != nil {
		t.Fatal(err)
	}
}

// bench is a keeper at work, in the virtual time of a synctest bubble.
type bench struct {
	*testing.T
	s *memory
	k *Keeper
	// ahead is how far the boot-time clock is ahead of the timers, as after the host
	// slept or the process was stopped.
	ahead    atomic.Int64
	start    time.Time
	expiring atomic.Int32
	// sent is when the store last applied a renewal. The renewal was not sent later.
	sent atomic.Int64
}

func (b *bench) clock() boottime.Instant {
	return boottime.Instant(time.Since(b.start)) + boottime.Instant(b.ahead.Load())
}

// latest is the last moment at which the launcher has to have stopped.
func (b *bench) latest() boottime.Instant {
	return boottime.Instant(b.sent.Load()).Add(timing.TTL - timing.Margin())
}

func (b *bench) options() KeeperOptions {
	return KeeperOptions{Store: b.s, Timing: timing, Clock: b.clock, Expiring: func(time.Duration) { b.expiring.Add(1) }}
}

func keeping(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, s: newMemory(), start: time.Now()}
		b.s.applied = func() { b.sent.Store(int64(b.clock())) }
		k, err := Keep(t.Context(), Presence{LauncherID: "l"}, PresenceEntry{}, 0, b.options())
		if err != nil {
			t.Fatal(err)
		}
		b.k = k
		defer k.Stop()
		test(b)
		k.Stop()
	})
}

// lost waits until the presence is lost, and returns the cause.
func (b *bench) lost() error {
	b.Helper()
	select {
	case <-b.k.Context().Done():
	case <-time.After(10 * time.Minute):
		b.Fatal("the presence is not lost")
	}
	return context.Cause(b.k.Context())
}

func (b *bench) tokens(r Record) (all []Token) {
	for _, run := range r.Runs {
		all = append(all, run.Token)
	}
	return slices.Sorted(slices.Values(all))
}
