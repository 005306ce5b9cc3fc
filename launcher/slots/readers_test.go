package slots

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"leasehold/launcher/queue"
)

// waiterOf is a request of a worker. A reader has no arrival.
func waiterOf(worker string, priority int, arrival uint64) *Waiter {
	w := &Waiter{Entrant: queue.Entrant{Principal: worker, Worker: worker, Priority: priority}}
	w.Arrival.Store(arrival)
	return w
}

// TestReadersKeepNobodyWaiting: a request for a lease gets a place, however many readers come after it,
// also one that the lease store does not have yet.
func TestReadersKeepNobodyWaiting(t *testing.T) {
	for _, arrival := range []uint64{5, queue.NotStored} {
		q := places{max: 1}
		asks := waiterOf("a", 0, arrival)
		q.wait(asks)
		reader := waiterOf("first", 0, 0)
		q.wait(reader)
		for i := 0; !q.free(asks, 0); i++ {
			if i > 2*maxQueue {
				t.Fatalf("%d readers came after a request for a lease with arrival %d, and had a place before it", i, arrival)
			}
			next := waiterOf(fmt.Sprint("r", i), 0, 0)
			q.wait(next) // there is always one
			q.gave()
			q.leave(reader)
			reader = next
		}
	}
}

// TestPlacesHaveOneOrder: whoever waits, with arrivals or without, there is one who is first, one who is
// second, and so on.
func TestPlacesHaveOneOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		q := places{max: 1}
		arrived, came := uint64(0), 0
		come := func() *Waiter {
			came++
			arrival := uint64(0)
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				arrival = queue.NotStored
			case 1: // it came a while ago, and waited for its profile
				arrival = uint64(rapid.IntRange(1, int(arrived)+1).Draw(rt, "earlier"))
			case 2:
				arrived++
				arrival = arrived
			}
			w := waiterOf(fmt.Sprint("w", came), rapid.IntRange(-1, 1).Draw(rt, "priority"), arrival)
			q.wait(w)
			w.ready = rapid.IntRange(0, 3).Draw(rt, "ready") > 0
			return w
		}
		inOrder := func() []*Waiter {
			var ready []*Waiter
			for _, w := range q.queue {
				if w.ready {
					ready = append(ready, w)
				}
			}
			order := make([]*Waiter, len(ready))
			for _, w := range ready {
				at := q.ahead(w)
				if at >= len(order) || order[at] != nil {
					rt.Fatalf("%d requests before %s, and before another one", at, w.Entrant.Worker)
				}
				order[at] = w
			}
			return order
		}
		for range rapid.IntRange(1, 12).Draw(rt, "at first") {
			come()
		}
		for range rapid.IntRange(0, 30).Draw(rt, "steps") {
			q.given = uint64(rapid.IntRange(0, 23).Draw(rt, "given"))
			order := inOrder()
			if len(order) == 0 {
				break
			}
			q.leave(order[0])
			come()
		}
	})
}
