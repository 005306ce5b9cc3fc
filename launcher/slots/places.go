package slots

import (
	"fmt"
	"math"
	"slices"
	"time"

	"leasehold/launcher/api"
)

// maxQueue is how many requests may wait for a place on the host.
const maxQueue = 256

// Waiter is a request that waits, or may come to wait, for a place on the host. The
// zero value does not wait yet.
type Waiter struct {
	// ready says that a place is all that it waits for. One whose profile is in use
	// keeps its turn, and holds up nobody.
	ready bool
}

// places are the browsers that this host may run, and the queue for them: first come,
// first served. The zero value has no limit. The table's mutex guards it.
type places struct {
	max   int // zero: no limit
	queue []*Waiter
	// usual is how long sessions had their places lately: a moving average, zero while
	// there was none.
	usual time.Duration
}

// ahead counts the requests that a place is due to before t.
func (q *places) ahead(t *Waiter) int {
	n := 0
	for _, other := range q.queue {
		if other == t {
			break
		}
		if other.ready {
			n++
		}
	}
	return n
}

// free tells whether t may have a place while used ones are taken.
func (q *places) free(t *Waiter, used int) bool {
	return q.max == 0 || used+q.ahead(t) < q.max
}

// wait puts t into the queue, where it is not there yet. It is false where the queue
// is full.
func (q *places) wait(t *Waiter) bool {
	if !slices.Contains(q.queue, t) {
		if len(q.queue) >= maxQueue {
			return false
		}
		q.queue = append(q.queue, t)
	}
	t.ready = true
	return true
}

// leave takes t out of the queue; it is true where others come nearer by that.
func (q *places) leave(t *Waiter) bool {
	nearer := t.ready && slices.Contains(q.queue, t)
	q.queue = slices.DeleteFunc(q.queue, func(other *Waiter) bool { return other == t })
	t.ready = false
	return nearer
}

// observe counts a session's stay.
func (q *places) observe(stay time.Duration) {
	if q.usual == 0 {
		q.usual = stay
		return
	}
	q.usual += (stay - q.usual) / 8
}

// estimate is how long the request with ahead others before it waits for a place,
// if sessions last as long as they did lately. Since are the ages of those that
// live. It is false where no session has ended yet.
func (q *places) estimate(since []time.Duration, ahead int) (time.Duration, bool) {
	if q.usual == 0 || len(since) == 0 {
		return 0, false
	}
	ends := make([]time.Duration, len(since))
	for i, age := range since {
		ends[i] = max(q.usual-age, time.Second) // one that is late may end any moment
	}
	var at time.Duration
	for range ahead + 1 {
		next := 0
		for i := range ends {
			if ends[i] < ends[next] {
				next = i
			}
		}
		at = ends[next]
		ends[next] += q.usual
	}
	return at, true
}

// TakePlace gives an occupied profile a place on this host for its browser, or says why
// there is none.
func (s *Slot) TakePlace(w *Waiter) *api.Problem {
	t := s.t
	if p := t.diskProblem(); p != nil {
		return p
	}
	for {
		t.mu.Lock()
		now := time.Now()
		ages := t.placeAges(now)
		had, free := !s.placed.IsZero(), t.places.free(w, len(ages))
		if !had && free {
			s.placed = now
		}
		t.mu.Unlock()
		switch {
		case had || free:
			return nil
		case !s.makeRoom(w):
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.places.full(w, ages)
		}
	}
}

// placeAges lists for how long each place of this host has been taken. The caller holds
// t.mu.
func (t *Table) placeAges(now time.Time) []time.Duration {
	var ages []time.Duration
	for _, s := range t.slots {
		if !s.placed.IsZero() {
			ages = append(ages, now.Sub(s.placed))
		}
	}
	return ages
}

// makeRoom closes the browser that has been warm for the longest time, and gives its
// place to this slot. It is false where that would not help.
func (s *Slot) makeRoom(w *Waiter) bool {
	t := s.t
	t.mu.Lock()
	victim := t.longestWarm()
	if victim == nil || !t.places.free(w, len(t.placeAges(time.Now()))-t.countWarm()) {
		t.mu.Unlock()
		return false
	}
	close(victim.warm.taken)
	victim.enter(Cooling)
	t.mu.Unlock()
	victim.Cool(WarmPlace, "")
	t.mu.Lock()
	victim.placed, s.placed = time.Time{}, time.Now()
	t.mu.Unlock()
	victim.Vacate()
	return true
}

// full refuses for want of a place, with where in the queue the request stands, or
// would, and for how long.
func (q *places) full(t *Waiter, ages []time.Duration) *api.Problem {
	ahead := q.ahead(t)
	text := "not known yet"
	p := api.Refuse(api.CodeHostFull, "").With("reason", "browsers").With("max_browsers", q.max).With("browsers", len(ages)).
		With("queue_position", ahead+1).With("queue_length", len(q.queue))
	p.RetryAfter = 5
	if wait, known := q.estimate(ages, ahead); known {
		seconds := int(math.Ceil(wait.Seconds()))
		p = p.With("estimated_wait_seconds", seconds)
		p.RetryAfter = min(max(seconds, 1), 300)
		text = "about " + (time.Duration(seconds) * time.Second).String()
	}
	p.Detail = fmt.Sprintf("all %d browsers of this host are in use: place %d in the queue, wait %s; to queue, ask with wait", q.max, ahead+1, text)
	return p
}

// QueueUp keeps the turn of a request that was refused with p and goes on waiting. It
// returns the problem of a queue that is full.
func (t *Table) QueueUp(w *Waiter, p *api.Problem) *api.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Code == api.CodeHostFull {
		if !t.places.wait(w) {
			q := p.With("queue_length", len(t.places.queue))
			q.Detail = fmt.Sprintf("all %d browsers of this host are in use, and its queue is full with %d requests: ask again later", t.places.max, len(t.places.queue))
			return q
		}
	} else if w.ready {
		w.ready = false
		t.wake()
	}
	return nil
}

// LeaveQueue ends a request's wait.
func (t *Table) LeaveQueue(w *Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.places.leave(w) {
		t.wake()
	}
}
