package bubble

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/lease"
)

// server is the lease store of a world: what NATS keeps. Each method locks it. Revisions are
// never given twice, also not after it went back.
type server struct {
	w *world

	mu        sync.Mutex
	revision  uint64
	number    uint64    // of this store, from those before
	born      time.Time // since when it is there
	records   map[string]lease.Entry
	presences map[string]lease.PresenceEntry
	old       map[string][]lease.Entry // the records before, by profile
	stream    map[string][]lease.Event
	applied   map[string]lease.Entry // by nonce
	opened    map[string]lease.PresenceEntry
	saved     []snapshot
	away      atomic.Bool   // whoever checks a promise may ask, whatever it has locked
	changed   chan struct{} // closed and replaced with every change
	sights    []lease.Sight // everything that was stored since number
	waiters   map[string]lease.WaiterEntry
}

// snapshot is what the store goes back to. The stream is none of it: it lies elsewhere.
type snapshot struct {
	at        time.Time
	records   map[string]lease.Entry
	presences map[string]lease.PresenceEntry
}

func newServer(w *world) *server {
	return &server{
		w: w, number: 1, born: time.Now().Add(-time.Hour), records: map[string]lease.Entry{}, presences: map[string]lease.PresenceEntry{},
		old: map[string][]lease.Entry{}, stream: map[string][]lease.Event{},
		applied: map[string]lease.Entry{}, opened: map[string]lease.PresenceEntry{}, changed: make(chan struct{}),
		waiters: map[string]lease.WaiterEntry{},
	}
}

// tell wakes the watches. The caller holds mu.
func (s *server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// put stores a record whatever was there. The caller holds mu.
func (s *server) put(r lease.Record) lease.Entry {
	s.revision++
	e := lease.Entry{Record: r, Revision: s.revision}
	s.old[r.ProfileID] = append(s.old[r.ProfileID], s.records[r.ProfileID])
	s.records[r.ProfileID] = e
	s.sights = append(s.sights, lease.Sight{Entry: e})
	s.tell()
	return e
}

func (s *server) do(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// save takes a snapshot.
func (s *server) save() {
	s.do(func() {
		s.saved = append(s.saved, snapshot{time.Now(), maps.Clone(s.records), maps.Clone(s.presences)})
	})
}

// goBack loses everything that was stored after the last snapshot that is older than that.
func (s *server) goBack(by time.Duration) {
	s.do(func() {
		to := snapshot{records: map[string]lease.Entry{}, presences: map[string]lease.PresenceEntry{}}
		for _, old := range s.saved {
			if time.Since(old.at) >= by {
				to = old
			}
		}
		s.records, s.presences = maps.Clone(to.records), maps.Clone(to.presences)
		s.another(s.born)
	})
}

// wipe loses everything, the stream too.
func (s *server) wipe() {
	s.do(func() {
		clear(s.records)
		clear(s.presences)
		clear(s.stream)
		clear(s.waiters)
		s.saved = nil
		s.another(time.Now())
	})
}

// loseBucket loses the records or the presences alone, and no connection ends.
func (s *server) loseBucket(records bool) {
	s.do(func() {
		if records {
			clear(s.records)
			s.another(time.Now())
		} else {
			clear(s.presences)
			s.w.check.forgotPresences()
		}
		s.saved = nil
	})
}

// another makes this store another one than before. The caller holds mu.
func (s *server) another(born time.Time) {
	s.number++
	s.born, s.sights = born, nil
	clear(s.old)
	s.w.check.forgot()
	s.tell()
}

// client is the lease store of one launcher.
type client struct {
	*server
	p *process

	choice sync.Mutex
	rng    *rand.Rand
}

// callTime bounds a call whose context has no deadline.
const callTime = 5 * time.Second

// fate is what becomes of a call.
type fate int

const (
	answered   fate = iota
	lost            // it does not arrive
	unanswered      // it arrives, and the answer does not
	late            // it arrives after its sender gave up
)

// chance draws the latency and the fate of one call.
func (c *client) chance() (latency time.Duration, f fate) {
	c.choice.Lock()
	defer c.choice.Unlock()
	latency = time.Millisecond + time.Duration(c.rng.Int64N(int64(20*time.Millisecond)))
	if n := c.rng.IntN(100); n < int(c.p.host.bad.Load()) {
		f = []fate{lost, unanswered, late}[n%3]
		c.p.w.count("calls " + []string{"", "lost", "unanswered", "late"}[f])
	}
	return latency, f
}

// arrives waits until the launcher can reach the store, and tells whether it did in time.
func (c *client) arrives(ctx context.Context) bool {
	for {
		c.p.step()
		if ctx.Err() != nil {
			return false
		}
		if !c.away.Load() && !c.p.host.cut() {
			return true
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// call makes one call until it is answered, or its context ends. do is made with mu locked,
// and again where the answer was lost: it recognizes its own work.
func call[T any](ctx context.Context, c *client, do func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	locked := func() (T, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return do()
	}
	for {
		latency, f := c.chance()
		if !sleep(ctx, latency) || !c.arrives(ctx) {
			c.p.step()
			var none T
			return none, lease.ErrUnavailable
		}
		var got T
		var err error
		switch f {
		case answered, unanswered:
			got, err = locked()
		case late:
			c.p.w.late.Go(func() {
				time.Sleep(1500 * time.Millisecond)
				_, _ = locked()
			})
		}
		sleep(ctx, latency)
		c.p.step()
		if f == answered {
			return got, err
		}
		sleep(ctx, time.Second)
	}
}

// Get is part of lease.Store. The answer may be an old one.
func (c *client) Get(ctx context.Context, profile string) (lease.Entry, error) {
	c.choice.Lock()
	stale := c.rng.IntN(100) < int(c.p.host.bad.Load())
	c.choice.Unlock()
	return call(ctx, c, func() (lease.Entry, error) {
		e := c.records[profile]
		if n := len(c.old[profile]); stale && n > 0 {
			e = c.old[profile][n-1]
			c.p.w.count("stale reads")
		}
		if e.Revision == 0 {
			return lease.Entry{}, lease.ErrNotFound
		}
		e.Record = e.Record.Clone()
		return e, nil
	})
}

// List is part of lease.Store.
func (c *client) List(ctx context.Context) ([]lease.Entry, error) {
	return call(ctx, c, func() ([]lease.Entry, error) { return slices.Collect(maps.Values(c.records)), nil })
}

// Swap is part of lease.Store.
func (c *client) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	next = next.Clone()
	next.Nonce = c.p.w.nonce()
	return call(ctx, c, func() (lease.Entry, error) {
		now := c.records[next.ProfileID]
		switch before, was := c.applied[next.Nonce]; {
		case was: // others may have written since
			return before, nil
		case now.Revision != prev.Revision:
			now.Record.ProfileID = next.ProfileID // also where there is none any more
			return lease.Entry{}, &lease.MovedError{Profile: next.ProfileID, Current: &now}
		case prev.Revision == 0 && prev.Number != 0 && prev.Number != c.number:
			return lease.Entry{}, lease.ErrUnavailable
		}
		c.p.w.check.record(c.p, ctx.Value(aPerson{}) != nil, now.Record, next)
		kept := next
		kept.Outbox = nil // it is on the stream
		c.applied[next.Nonce] = c.put(kept)
		return c.applied[next.Nonce], nil
	})
}

// Presence is part of lease.Store.
func (c *client) Presence(ctx context.Context, launcher string) (lease.PresenceEntry, error) {
	return call(ctx, c, func() (lease.PresenceEntry, error) { return c.presences[launcher], nil })
}

// Presences is part of lease.Store.
func (c *client) Presences(ctx context.Context) ([]lease.PresenceEntry, error) {
	return call(ctx, c, func() ([]lease.PresenceEntry, error) { return slices.Collect(maps.Values(c.presences)), nil })
}

// SwapPresence is part of lease.Store.
func (c *client) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	next.Nonce = c.p.w.nonce()
	return call(ctx, c, func() (lease.PresenceEntry, error) {
		now := c.presences[next.LauncherID]
		switch before, was := c.opened[next.Nonce]; {
		case was:
			return before, nil
		case now.Revision != prev.Revision:
			return lease.PresenceEntry{}, &lease.PresenceMovedError{Launcher: next.LauncherID, Current: &now}
		}
		c.p.w.check.presence(c.p, now.Presence, next)
		c.revision++
		c.presences[next.LauncherID] = lease.PresenceEntry{Presence: next, Revision: c.revision}
		c.opened[next.Nonce] = c.presences[next.LauncherID]
		return c.opened[next.Nonce], nil
	})
}

// Watch is part of lease.Store. Where the store was lost without a reconnect, it learns that
// after a while.
func (c *client) Watch(ctx context.Context, see func(lease.Sight)) error {
	var number uint64
	seen := 0
	for {
		if !c.arrivesEver(ctx) {
			return nil
		}
		c.mu.Lock()
		changed := c.changed
		if number != c.number {
			stepped := number != 0
			c.mu.Unlock()
			if stepped && !sleep(ctx, 3*time.Second) {
				return nil
			}
			c.mu.Lock()
			number = c.number
			all := slices.Collect(maps.Values(c.records))
			seen = len(c.sights)
			fresh := lease.Sight{Fresh: true, Stepped: stepped, Number: number, Age: time.Since(c.born)}
			c.mu.Unlock()
			see(fresh)
			for _, e := range all {
				see(lease.Sight{Entry: e})
			}
			see(lease.Sight{Complete: true})
			continue
		}
		more := slices.Clone(c.sights[seen:])
		seen = len(c.sights)
		c.mu.Unlock()
		if len(more) > 0 {
			for _, s := range more {
				see(s)
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *client) arrivesEver(ctx context.Context) bool {
	for !c.arrives(ctx) {
		if ctx.Err() != nil {
			return false
		}
	}
	return sleep(ctx, 5*time.Millisecond)
}

// Look is part of lease.Store.
func (c *client) Look(ctx context.Context) (lease.Sight, error) {
	return call(ctx, c, func() (lease.Sight, error) {
		return lease.Sight{Fresh: true, Number: c.number, Age: time.Since(c.born)}, nil
	})
}

// Announce is part of lease.Store. Nobody here reads such events.
func (c *client) Announce(context.Context, lease.Event) error { return nil }

// History is part of lease.Store.
func (c *client) History(ctx context.Context, profile string) ([]lease.Event, error) {
	return call(ctx, c, func() ([]lease.Event, error) { return slices.Clone(c.stream[profile]), nil })
}

// nonce is another one each time.
func (w *world) nonce() string { return fmt.Sprint("write ", w.writes.Add(1)) }
