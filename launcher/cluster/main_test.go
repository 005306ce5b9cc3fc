package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/boottime"
	"leasehold/internal/test/testlog"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var timing = lease.Timing{TTL: 30 * time.Second}

// world is what a launcher finds around it, in the time of a bubble.
type world struct {
	*testing.T
	store *memory
	dir   string // the launcher's data directory
	start time.Time
	said  testlog.Buffer
}

// inWorld runs a test in a bubble, where the boot-time clock is the bubble's, too.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	s := &memory{start: time.Now(), records: map[string]lease.Entry{}, presences: map[string]lease.PresenceEntry{}, more: make(chan struct{}, 1)}
	return &world{T: t, store: s, dir: t.TempDir(), start: time.Now()}
}

func (w *world) clock() boottime.Instant { return boottime.Instant(time.Hour + time.Since(w.start)) }

func (w *world) log() zerolog.Logger { return zerolog.New(&w.said) }

// memory is a lease store in memory, which a test can cut off, change behind everybody's
// back, and have report what it likes. It has only the methods that this package calls.
type memory struct {
	lease.Store // nil, so that any other method panics
	start       time.Time

	mu        sync.Mutex
	revision  uint64
	records   map[string]lease.Entry
	presences map[string]lease.PresenceEntry
	away      bool // no call arrives
	noWatch   bool
	number    uint64        // of the store, where Look finds another one than the watch has said
	sights    []lease.Sight // that the watch has not reported yet
	more      chan struct{}
	writes    []write
	// refuse has the errors of writes that are refused, once.
	refuse map[string]error
	// meanwhile has what happens, once, just before a write is applied, with mu locked.
	meanwhile map[string]func()
}

// write is a record's, or one that closed a presence, that was stored.
type write struct {
	what string
	at   time.Duration // since the start of the test
}

// callTime bounds a call whose context has no deadline.
const callTime = 5 * time.Second

// arrive waits until the store can be reached, and returns with mu locked.
func (s *memory) arrive(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	for {
		s.mu.Lock()
		if !s.away && ctx.Err() == nil {
			return nil
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return lease.ErrUnavailable
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *memory) Look(ctx context.Context) (lease.Sight, error) {
	if err := s.arrive(ctx); err != nil {
		return lease.Sight{}, err
	}
	defer s.mu.Unlock()
	return lease.Sight{Fresh: true, Number: s.number}, nil
}

func (s *memory) Presence(ctx context.Context, launcher string) (lease.PresenceEntry, error) {
	if err := s.arrive(ctx); err != nil {
		return lease.PresenceEntry{}, err
	}
	defer s.mu.Unlock()
	return s.presences[launcher], nil
}

func (s *memory) Presences(ctx context.Context) ([]lease.PresenceEntry, error) {
	if err := s.arrive(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.presences)), nil
}

func (s *memory) List(ctx context.Context) ([]lease.Entry, error) {
	if err := s.arrive(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.records)), nil
}

func (s *memory) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	if err := s.arrive(ctx); err != nil {
		return lease.PresenceEntry{}, err
	}
	defer s.mu.Unlock()
	what := fmt.Sprintf("%s closed by %s", next.LauncherID, next.ClosedBy)
	if next.Closed {
		s.interfere(what)
	}
	current := s.presences[next.LauncherID]
	if current.Revision != prev.Revision {
		return lease.PresenceEntry{}, &lease.PresenceMovedError{Launcher: next.LauncherID, Current: &current}
	}
	if next.Closed {
		s.writes = append(s.writes, write{what, time.Since(s.start)})
	}
	return s.put(next), nil
}

// put stores a presence, whatever was there. The caller holds mu.
func (s *memory) put(p lease.Presence) lease.PresenceEntry {
	s.revision++
	s.presences[p.LauncherID] = lease.PresenceEntry{Presence: p, Revision: s.revision}
	return s.presences[p.LauncherID]
}

func (s *memory) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	if err := s.arrive(ctx); err != nil {
		return lease.Entry{}, err
	}
	defer s.mu.Unlock()
	what := fmt.Sprintf("%s %s", next.ProfileID, next.State)
	s.interfere(what)
	if err := s.refuse[what]; err != nil {
		delete(s.refuse, what)
		return lease.Entry{}, err
	}
	current := s.records[next.ProfileID]
	if current.Revision != prev.Revision {
		return lease.Entry{}, &lease.MovedError{Profile: next.ProfileID, Current: &current}
	}
	s.writes = append(s.writes, write{what, time.Since(s.start)})
	return s.store(next), nil
}

// store stores a record, whatever was there, and has the watch report it. The caller
// holds mu.
func (s *memory) store(r lease.Record) lease.Entry {
	s.revision++
	e := lease.Entry{Record: r, Revision: s.revision}
	s.records[r.ProfileID] = e
	s.report(lease.Sight{Entry: e})
	return e
}

// report has the watch report sights. The caller holds mu.
func (s *memory) report(sights ...lease.Sight) {
	s.sights = append(s.sights, sights...)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// interfere has happen what is to happen before a write. The caller holds mu.
func (s *memory) interfere(what string) {
	if do := s.meanwhile[what]; do != nil {
		delete(s.meanwhile, what)
		do()
	}
}

func (s *memory) Watch(ctx context.Context, see func(lease.Sight)) error {
	for {
		s.mu.Lock()
		sights, none := s.sights, s.noWatch
		s.sights = nil
		s.mu.Unlock()
		if none {
			return lease.ErrUnavailable
		}
		for _, sight := range sights {
			see(sight)
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil
		}
	}
}

// do runs fn with the store locked.
func (s *memory) do(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// sees has the watch report sights, and waits until whoever watches has dealt with them.
func (w *world) sees(sights ...lease.Sight) {
	w.store.do(func() { w.store.report(sights...) })
	synctest.Wait()
}

// stored is the presence that the store has of the launcher.
func (w *world) stored(launcher string) (p lease.Presence) {
	w.store.do(func() { p = w.store.presences[launcher].Presence })
	return p
}

// entry is that with its revision.
func (w *world) entry(launcher string) (e lease.PresenceEntry) {
	w.store.do(func() { e = w.store.presences[launcher] })
	return e
}

// record is the record that the store has of the profile.
func (w *world) record(profile string) (r lease.Record) {
	w.store.do(func() { r = w.store.records[profile].Record })
	return r
}

// until lets time pass, a second at a time, until a condition is true.
func (w *world) until(what string, patience time.Duration, holds func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Second) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: not within %v; log:\n%s", what, patience, w.said.String())
		}
	}
}
