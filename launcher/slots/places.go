package slots

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"leasehold/launcher/api"
	"leasehold/launcher/queue"
)

// maxQueue is how many requests may wait for a place on the host.
const maxQueue = 256

// placeRetry is after how many seconds a request for which there is no place may ask again.
const placeRetry = 5

// Waiter is a request that may have to wait for a place on the host. The zero value is
// not in the queue.
type Waiter struct {
	// Entrant is who asks, with the request's priority. Arrival is that of queue.Rank; where
	// it is zero, the request comes after those that were in the queue before it.
	Entrant queue.Entrant
	Arrival atomic.Uint64
	// ready says that the request waits for nothing but a place on this host. One that has its
	// place, or waits for its profile, keeps its position in the queue, but delays nobody.
	ready bool
	// round is the one in which it has its turn, among those that wait for a place.
	round uint64
}

// places is the limit of the browsers of this host, and the queue of requests for one,
// in the order of package queue. The zero value has no limit. The table's mutex guards it.
type places struct {
	max   int // zero for no limit
	queue []*Waiter
	// given is how many places were given away while somebody waited.
	given uint64
}

// ahead counts the requests that get a place before w.
func (q *places) ahead(w *Waiter) int {
	byAge, round := queue.ByAge(q.given), w.round
	at := slices.Index(q.queue, w)
	if at < 0 { // it would come last
		at, round = len(q.queue), q.roundOf(w)
	}
	latest := q.latest()
	own := w.rank(round, latest[at])
	n := 0
	for i, other := range q.queue {
		if other == w || !other.ready {
			continue
		}
		if c := queue.Compare(other.rank(other.round, latest[i]), own, byAge); c < 0 || c == 0 && i < at {
			n++
		}
	}
	return n
}

// latest has, for each position in the queue and for the one after the last, the highest arrival
// before it.
func (q *places) latest() []uint64 {
	latest := make([]uint64, len(q.queue)+1)
	for i, w := range q.queue {
		latest[i+1] = max(latest[i], w.Arrival.Load())
	}
	return latest
}

// rank is what the request is compared by. One without an arrival has the latest of those before it:
// so there is one order of all, and nobody who comes later gets in front.
func (w *Waiter) rank(round, latest uint64) queue.Rank {
	return queue.Rank{Priority: w.Entrant.Priority, Round: round, Arrival: cmp.Or(w.Arrival.Load(), latest)}
}

// roundOf is the round in which a request would begin to wait.
func (q *places) roundOf(w *Waiter) uint64 {
	others := make([]queue.Entrant, 0, len(q.queue))
	for _, other := range q.queue {
		if other != w {
			e := other.Entrant
			e.Round = other.round
			others = append(others, e)
		}
	}
	return queue.Round(w.Entrant, others)
}

// free tells whether w may have a place while used places are taken.
func (q *places) free(w *Waiter, used int) bool {
	return q.max == 0 || used+q.ahead(w) < q.max
}

// wait puts w into the queue, if it is not in it, and makes it ready. It is false if
// the queue is full.
func (q *places) wait(w *Waiter) bool {
	if !slices.Contains(q.queue, w) {
		if len(q.queue) >= maxQueue {
			return false
		}
		w.round = q.roundOf(w)
		q.queue = append(q.queue, w)
	}
	w.ready = true
	return true
}

// leave takes w out of the queue.
func (q *places) leave(w *Waiter) {
	q.queue = slices.DeleteFunc(q.queue, func(other *Waiter) bool { return other == w })
}

// waiting counts those who wait for nothing but a place on this host.
func (q *places) waiting() (n int) {
	for _, w := range q.queue {
		if w.ready {
			n++
		}
	}
	return n
}

// gave counts a place that was given away.
func (q *places) gave() {
	if len(q.queue) > 0 {
		q.given++
	}
}

// lets notes that w does not wait for a place, or not for a place alone: others may advance by that.
// The caller holds t.mu.
func (t *Table) lets(w *Waiter) {
	if w.ready {
		w.ready = false
		t.wake()
	}
}

// TakePlace gives an occupied slot a place on this host for its browser, or returns why
// there is none. A request with a place delays nobody in the queue any more.
func (s *Slot) TakePlace(w *Waiter) *api.Problem {
	why := s.takePlace(w)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.refused = why != nil
	return why
}

func (s *Slot) takePlace(w *Waiter) *api.Problem {
	t := s.t
	if p := t.Short(); p != nil {
		return p
	}
	for {
		t.mu.Lock()
		used := t.usedPlaces()
		had, free := s.placed, t.places.free(w, used)
		if !had && free {
			s.placed = true
			t.places.gave()
		}
		if had || free {
			t.lets(w)
		}
		t.mu.Unlock()
		switch {
		case had || free:
			return nil
		case !s.makeRoom(w):
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.places.full(w, t.usedPlaces())
		}
	}
}

// Use is how much of the host the table uses.
type Use struct {
	// Places is how many browsers take one, Warm how many of them wait for the next task of
	// their profile, and Waiting how many requests wait for a place.
	Places, Warm, Waiting int
}

// Use tells how much of the host is used now.
func (t *Table) Use() Use {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Use{Places: t.usedPlaces(), Warm: t.countWarm(), Waiting: t.places.waiting()}
}

// usedPlaces counts the places of this host that are taken. The caller holds t.mu.
func (t *Table) usedPlaces() (n int) {
	for _, s := range t.slots {
		if s.placed {
			n++
		}
	}
	return n
}

// makeRoom closes the browser that has been warm for the longest time, and gives its
// place to this slot. It is false if that would not make room for w.
func (s *Slot) makeRoom(w *Waiter) bool {
	t := s.t
	t.mu.Lock()
	victim := t.longestWarm()
	if victim == nil || !t.places.free(w, t.usedPlaces()-t.countWarm()) {
		t.mu.Unlock()
		return false
	}
	close(victim.warm.taken)
	victim.enter(Closing)
	t.places.gave()
	t.lets(w) // the victim's place counts until this slot has it
	t.mu.Unlock()
	victim.CloseWarm(WarmPlace, "")
	t.mu.Lock()
	victim.placed, s.placed = false, true
	t.mu.Unlock()
	victim.Vacate()
	return true
}

// full is the refusal of a request for which there is no place, while used places are taken. It
// says which position in the queue the request has, or would have.
func (q *places) full(w *Waiter, used int) *api.Problem {
	at := q.ahead(w) + 1
	p := api.Refuse(api.CodeHostFull, "all %d browsers of this host are in use: place %d in the queue; to queue, ask with wait", q.max, at).
		With("reason", api.ReasonBrowsers).With("max_browsers", q.max).With("browsers", used).With("queue_position", at).With("queue_length", q.waiting())
	p.RetryAfter = placeRetry
	return p
}

// QueueUp keeps the position in the queue of a request that was refused with p and goes on
// waiting. Only the lack of a place on this host puts it into the queue: one that was refused for
// another reason, such as the lack of a place on another host, delays nobody here. It returns a
// problem if the queue is full.
func (t *Table) QueueUp(w *Waiter, p *api.Problem) *api.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Code != api.CodeHostFull || p.More["reason"] != api.ReasonBrowsers {
		t.lets(w)
		return nil
	}
	if !t.places.wait(w) {
		q := p.With("queue_length", len(t.places.queue))
		q.Detail = fmt.Sprintf("all %d browsers of this host are in use, and its queue is full with %d requests: ask again later", t.places.max, len(t.places.queue))
		return q
	}
	return nil
}

// LeaveQueue takes a request out of the queue.
func (t *Table) LeaveQueue(w *Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places.leave(w)
	t.lets(w)
}
