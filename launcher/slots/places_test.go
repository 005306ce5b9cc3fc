package slots

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold/launcher/api"
)

func TestPlacesAreTakenInTurn(t *testing.T) {
	q := places{max: 2}
	var first, second, third, newcomer Waiter
	check := func(when string, used int, may map[*Waiter]bool) {
		t.Helper()
		for waiter, want := range may {
			if got := q.free(waiter, used); got != want {
				t.Errorf("%s, %d used: waiter %d ahead of it may: %v, want %v", when, used, q.ahead(waiter), got, want)
			}
		}
	}
	check("nobody waits", 1, map[*Waiter]bool{&newcomer: true})
	check("nobody waits", 2, map[*Waiter]bool{&newcomer: false})
	for _, one := range []*Waiter{&first, &second, &third} {
		if q.wait(one); !q.wait(one) { // twice is once
			t.Fatal("the queue is full")
		}
	}
	if len(q.queue) != 3 {
		t.Fatalf("%d wait", len(q.queue))
	}
	check("three wait", 1, map[*Waiter]bool{&first: true, &second: false, &third: false, &newcomer: false})
	check("three wait", 0, map[*Waiter]bool{&first: true, &second: true, &third: false, &newcomer: false})
	first.ready = false // its profile is in use: it delays nobody
	check("the first is not ready", 1, map[*Waiter]bool{&second: true, &third: false, &newcomer: false})
	q.wait(&first)
	check("the first is ready again", 1, map[*Waiter]bool{&first: true, &second: false})
	if !q.leave(&first) || q.leave(&first) || q.leave(&newcomer) {
		t.Error("who waits behind is not told once, or is told of somebody who did not wait")
	}
	check("the first left", 1, map[*Waiter]bool{&second: true, &third: false})
	q.leave(&second)
	q.leave(&third)
	check("all left", 1, map[*Waiter]bool{&newcomer: true})

	for range maxQueue {
		q.wait(&Waiter{})
	}
	if q.wait(&newcomer) {
		t.Error("the queue has no bound")
	}
	if none := (places{}); !none.free(&newcomer, 1000) {
		t.Error("no limit is a limit")
	}
}

// TestPlacesGoToWhoCameFirst compares the host's places and its queue with a model of them:
// the first of those who wait for nothing but a place is the first who gets one, and
// everybody is woken when one comes nearer.
func TestPlacesGoToWhoCameFirst(t *testing.T) {
	t.Parallel()
	type request struct {
		name  string
		turn  Waiter
		slot  *Slot // while it has a place
		waits bool  // for a place alone
	}
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(rt, "places")
		table := newTable(t, Options{MaxBrowsers: limit})
		var placed, queue []*request
		arrived := 0
		ahead := func(r *request) int {
			n := 0
			for _, other := range queue {
				if other == r {
					break
				}
				if other.waits {
					n++
				}
			}
			return n
		}
		pick := func(rt *rapid.T, from []*request) *request {
			if len(from) == 0 {
				rt.Skip("there is none")
			}
			return from[rapid.IntRange(0, len(from)-1).Draw(rt, "which")]
		}
		drop := func(from []*request, r *request) []*request {
			return slices.DeleteFunc(slices.Clone(from), func(o *request) bool { return o == r })
		}
		// woken tells whether something wakes those who wait.
		woken := func(what string, want bool, do func()) {
			changed := table.Changed()
			do()
			got := false
			select {
			case <-changed:
				got = true
			default:
			}
			if got != want {
				rt.Fatalf("%s wakes those who wait: %v, want %v", what, got, want)
			}
		}
		try := func(r *request) {
			before := ahead(r)
			s := table.Occupy(r.name)
			p := s.TakePlace(&r.turn)
			if free := len(placed)+before < limit; free != (p == nil) {
				rt.Fatalf("%s, with %d ahead and %d of %d places taken, is told %v", r.name, before, len(placed), limit, p)
			}
			if p == nil {
				r.slot = s
				placed = append(placed, r)
				woken("who leaves the queue for a place", slices.Contains(queue, r) && r.waits, func() { table.LeaveQueue(&r.turn) })
				queue = drop(queue, r)
				return
			}
			if p.Code != api.CodeHostFull || p.RetryAfter != placeRetry ||
				p.More["queue_position"] != before+1 || p.More["queue_length"] != len(queue) || p.More["browsers"] != len(placed) {
				rt.Fatalf("%s is told %+v, with %d ahead of it in %d", r.name, p, before, len(queue))
			}
			woken("who gives an unused profile back", true, s.Vacate)
			if q := table.QueueUp(&r.turn, p); q != nil {
				rt.Fatal(q)
			}
			if r.waits = true; !slices.Contains(queue, r) {
				queue = append(queue, r)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"arrive": func(*rapid.T) {
				arrived++
				try(&request{name: fmt.Sprint("p", arrived)})
			},
			"ask again": func(rt *rapid.T) { try(pick(rt, queue)) },
			"wait for something else": func(rt *rapid.T) { // the profile itself is in use
				r := pick(rt, queue)
				woken("who waits for something else", r.waits, func() { table.QueueUp(&r.turn, api.Refuse(api.CodeConflict, "")) })
				r.waits = false
			},
			"give up": func(rt *rapid.T) {
				r := pick(rt, queue)
				woken("who gives up", r.waits, func() { table.LeaveQueue(&r.turn) })
				queue = drop(queue, r)
			},
			"end": func(rt *rapid.T) {
				r := pick(rt, placed)
				woken("who ends", true, r.slot.Vacate)
				placed = drop(placed, r)
			},
			"adopt": func(*rapid.T) { // what is found has a place, whatever the limit is
				arrived++
				r := &request{name: fmt.Sprint("p", arrived)}
				r.slot = table.Occupy(r.name)
				r.slot.Place()
				placed = append(placed, r)
			},
			"": func(rt *rapid.T) {
				if busy := len(table.slots); busy != len(placed) {
					rt.Fatalf("%d profiles are at work, want %d", busy, len(placed))
				}
			},
		})
	})
}

func TestAFullQueueTakesNobody(t *testing.T) {
	table := newTable(t, Options{MaxBrowsers: 1})
	full := api.Refuse(api.CodeHostFull, "")
	for range maxQueue {
		if p := table.QueueUp(&Waiter{}, full); p != nil {
			t.Fatal(p)
		}
	}
	p := table.QueueUp(&Waiter{}, full)
	if refused(p) != api.CodeHostFull || !strings.Contains(p.Detail, "its queue is full with 256 requests") || p.More["queue_length"] != maxQueue {
		t.Errorf("%+v", p)
	}
}
