package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"leasehold/lease"
)

const (
	// tickEvery is how often the queue looks for what is not stored yet, or is over, while it
	// has anything.
	tickEvery = time.Second
	// stalledTime is longer than any request waits.
	stalledTime = 15 * time.Minute
	// rewatchPause is the time between two tries to follow the store.
	rewatchPause = 2 * time.Second
	// clearTime bounds the removal of this launcher's waiters at its end.
	clearTime = time.Second
)

// tick calls do when there is something to store, and every second while there is anything that
// may have to be stored again or removed, until ctx ends.
func (q *Queue) tick(ctx context.Context, do func()) {
	every := time.NewTicker(tickEvery)
	defer every.Stop()
	for {
		select {
		case <-q.kick:
			every.Reset(tickEvery)
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if do(); q.isEmpty() { // an idle launcher is not woken up for nothing
			every.Stop()
		}
	}
}

// isEmpty tells whether nothing of this launcher's is in the queue, or has to be removed. What is
// put there kicks.
func (q *Queue) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.own) == 0 && len(q.left) == 0 && len(q.stalled) == 0
}

// drop removes requests that were sent on and did not arrive at the other launcher.
func (q *Queue) drop() {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.own {
		if !t.until.IsZero() && now.After(t.until) {
			q.takeOut(t)
		}
	}
	for s, since := range q.stalled {
		if now.Sub(since) > stalledTime {
			delete(q.stalled, s)
		}
	}
	if q.o.Store == nil {
		clear(q.left)
	}
}

// write stores what changed. What is not stored is tried again at the next tick.
func (q *Queue) write(ctx context.Context) {
	epoch, present := q.o.Epoch()
	q.mu.Lock()
	q.epoch = max(q.epoch, epoch)
	if !q.shared {
		q.mu.Unlock()
		return
	}
	var puts []*Ticket
	for _, t := range q.own {
		if present && (t.dirty || t.waiter.Epoch != epoch) {
			t.waiter.Arrival = cmp.Or(t.waiter.Arrival, t.revision)
			t.waiter.Epoch = epoch
			puts = append(puts, t)
		}
	}
	// Those that began to wait first are stored first.
	slices.SortFunc(puts, func(a, b *Ticket) int { return cmp.Compare(a.number, b.number) })
	waiters := make([]lease.Waiter, len(puts))
	for i, t := range puts {
		t.dirty = false
		waiters[i] = t.waiter
	}
	left := q.mayDrop()
	q.mu.Unlock()
	// again leaves the rest to the next tick.
	again := func(rest []*Ticket) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, t := range rest {
			t.dirty = true
		}
	}
	for _, w := range left {
		if q.o.Store.DropWaiter(ctx, w.LauncherID, w.ID) != nil {
			again(puts)
			return
		}
		q.mu.Lock()
		delete(q.left, w.ID)
		q.mu.Unlock()
	}
	for i, t := range puts {
		revision, err := q.o.Store.PutWaiter(ctx, waiters[i])
		if err != nil {
			again(puts[i:])
			q.o.Log.Debug().Err(err).Msg("a request that waits is not in the queue of all launchers yet")
			return
		}
		q.stored(t, waiters[i], revision)
	}
	if len(puts) > 0 {
		q.o.Changed()
	}
}

// mayDrop are the waiters that have to be removed from the store. Those of a later epoch than any
// of this launcher's are of another launcher with the same id. The caller holds q.mu.
func (q *Queue) mayDrop() (left []lease.Waiter) {
	for _, w := range q.left {
		if w.LauncherID != q.o.LauncherID || w.Epoch <= q.epoch {
			left = append(left, w)
		}
	}
	return left
}

// stored notes under which revision the store has a ticket's waiter.
func (q *Queue) stored(t *Ticket, w lease.Waiter, revision uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-t.stored:
	default:
		if t.waiter.ProfileID == w.ProfileID {
			close(t.stored)
		}
	}
	t.revision = revision
	if t.before.ID != "" { // it is now stored in its own name
		before := t.before
		t.before = lease.Waiter{}
		q.forget(before)
	}
	if q.own[t.waiter.ID] != t { // it has left meanwhile
		q.left[t.waiter.ID] = t.waiter
		q.store()
	}
}

// clear removes the waiters of this launcher from the store.
func (q *Queue) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), clearTime)
	defer cancel()
	q.mu.Lock()
	left := q.mayDrop()
	for _, t := range q.own {
		left = append(left, t.waiter)
	}
	shared := q.shared
	q.mu.Unlock()
	for _, w := range left {
		if !shared || q.o.Store.DropWaiter(ctx, w.LauncherID, w.ID) != nil {
			return // nobody counts them after the presence is closed
		}
	}
}

// watch follows the waiters of all launchers.
func (q *Queue) watch(ctx context.Context) {
	for said := ""; ; {
		err := q.o.Store.WatchWaiters(ctx, q.see)
		if ctx.Err() != nil {
			return
		}
		q.mu.Lock()
		q.shared = false
		q.mu.Unlock()
		if err != nil && err.Error() != said {
			said = err.Error()
			q.o.Log.Warn().Err(err).Msg("requests that wait at other launchers are not seen: each launcher serves its own in order (docs/routing.md)")
		}
		select {
		case <-time.After(rewatchPause):
		case <-ctx.Done():
			return
		}
	}
}

// see takes in what the store shows.
func (q *Queue) see(s lease.WaiterSight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := s.Entry.Waiter
	switch {
	case s.Fresh:
		q.missing = map[string]bool{}
		for id := range q.others {
			q.missing[id] = true
		}
		for id, t := range q.own {
			q.missing[id] = t.revision != 0
		}
		return
	case s.Complete:
		for id, had := range q.missing {
			delete(q.others, id)
			if t := q.own[id]; t != nil {
				t.dirty = true
				if had { // the store was lost, and began its numbers again
					t.revision, t.waiter.Arrival, t.stored = 0, 0, make(chan struct{})
				}
			}
		}
		q.missing, q.shared = nil, true
		q.store()
	case s.Gone:
		delete(q.others, w.ID)
		// Another launcher removes a waiter of this one when its request goes on there.
		if t := q.own[w.ID]; t != nil && !t.until.IsZero() {
			q.takeOut(t)
		}
	case w.LauncherID != q.o.LauncherID:
		delete(q.missing, w.ID)
		if _, left := q.left[w.ID]; left { // it is being removed
			return
		}
		since := time.Now()
		if known, ok := q.others[w.ID]; ok {
			since = known.since
		}
		q.others[w.ID] = sighted{s.Entry, since}
	case q.own[w.ID] == nil: // an earlier process of this launcher left it
		q.left[w.ID] = w
		q.store()
		return
	default:
		delete(q.missing, w.ID)
		return
	}
	q.o.Changed()
}
