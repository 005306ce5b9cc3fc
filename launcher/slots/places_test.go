package slots

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	q.leave(&first)
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
// the first of those who wait for nothing but a place is the first who gets one, everybody is
// woken when one comes nearer, and who has to wait for something else meanwhile loses nothing.
func TestPlacesGoToWhoCameFirst(t *testing.T) {
	t.Parallel()
	type request struct {
		name  string
		turn  Waiter
		slot  *Slot // while it has a place
		first int   // counts those who waited for a place; zero: it never did
	}
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(rt, "places")
		table := newTable(t, Options{MaxBrowsers: limit})
		var placed, queue, elsewhere []*request // elsewhere are those who wait for something else
		arrived, waited := 0, 0
		ahead := func(r *request) int {
			n := 0
			for _, other := range queue {
				if r.first == 0 || other.first < r.first {
					n++
				}
			}
			return n
		}
		pick := func(rt *rapid.T, from ...*request) *request {
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
		// leaves does what takes the request out of the queue.
		leaves := func(what string, r *request, do func()) {
			woken(what, slices.Contains(queue, r), do)
			queue, elsewhere = drop(queue, r), drop(elsewhere, r)
		}
		try := func(r *request) {
			before := ahead(r)
			s := table.Occupy(r.name)
			if len(placed)+before < limit {
				leaves("who gets a place", r, func() {
					if p := s.TakePlace(&r.turn); p != nil {
						rt.Fatalf("%s, with %d ahead and %d of %d places taken, is told %v", r.name, before, len(placed), limit, p)
					}
				})
				r.slot = s
				placed = append(placed, r)
				return
			}
			p := s.TakePlace(&r.turn)
			if refused(p) != api.CodeHostFull || p.RetryAfter != placeRetry ||
				p.More["queue_position"] != before+1 || p.More["queue_length"] != len(queue) || p.More["browsers"] != len(placed) {
				rt.Fatalf("%s is told %+v, with %d ahead of it in %d", r.name, p, before, len(queue))
			}
			woken("who got no place, and gives the profile back,", false, s.Vacate)
			woken("who waits for a place", false, func() {
				if q := table.QueueUp(&r.turn, p); q != nil {
					rt.Fatal(q)
				}
			})
			if r.first == 0 {
				waited++
				r.first = waited
			}
			queue, elsewhere = append(drop(queue, r), r), drop(elsewhere, r)
			slices.SortFunc(queue, func(a, b *request) int { return a.first - b.first })
		}
		rt.Repeat(map[string]func(*rapid.T){
			"arrive": func(*rapid.T) {
				arrived++
				try(&request{name: fmt.Sprint("p", arrived)})
			},
			"ask again": func(rt *rapid.T) { try(pick(rt, slices.Concat(queue, elsewhere)...)) },
			"wait for something else": func(rt *rapid.T) { // the profile itself is in use, or a place is missing elsewhere
				r := pick(rt, slices.Concat(queue, elsewhere)...)
				code := rapid.SampledFrom([]string{api.CodeConflict, api.CodeHostFull}).Draw(rt, "code")
				leaves("who waits for something else", r, func() { table.QueueUp(&r.turn, api.Refuse(code, "")) })
				elsewhere = append(elsewhere, r)
			},
			"wait for a profile": func(rt *rapid.T) { // of which somebody is done in a moment
				r := pick(rt, slices.Concat(queue, elsewhere)...)
				passing := table.OccupyPassing(r.name)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				leaves("who waits for a profile", r, func() { table.OccupyNext(ctx, r.name, &r.turn) })
				elsewhere = append(elsewhere, r)
				passing.Vacate()
			},
			"give up": func(rt *rapid.T) {
				r := pick(rt, slices.Concat(queue, elsewhere)...)
				leaves("who gives up", r, func() { table.LeaveQueue(&r.turn) })
			},
			"start none": func(rt *rapid.T) { // it has a place, and its browser cannot be started
				r := pick(rt, placed...)
				woken("who gives a place back", true, r.slot.Vacate)
				placed, elsewhere = drop(placed, r), append(elsewhere, r)
			},
			"end": func(rt *rapid.T) {
				r := pick(rt, placed...)
				woken("who has a place and waits for none", false, func() { table.LeaveQueue(&r.turn) })
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
				if use := table.Use(); use.Places != len(placed) || use.Waiting != len(queue) || len(table.slots) != len(placed) {
					rt.Fatalf("%+v, %d profiles are at work; want %d places, and %d who wait", use, len(table.slots), len(placed), len(queue))
				}
			},
		})
	})
}

// An attempt that finds no place frees none: it wakes nobody who waits for one, itself included, who would try again
// at once and for ever. The end of a browser does, and the end of such an attempt a drain.
func TestAnAttemptWithoutAPlaceWakesNobody(t *testing.T) {
	t.Parallel()
	table := newTable(t, Options{MaxBrowsers: 1})
	runs := table.Occupy("runs")
	if p := runs.TakePlace(&Waiter{}); p != nil {
		t.Fatal(p)
	}
	woken := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	changed := table.Changed()
	attempt := table.Occupy("another")
	if attempt.TakePlace(&Waiter{}) == nil {
		t.Fatal("there is a second place")
	}
	attempt.Vacate()
	if woken(changed) {
		t.Error("an attempt for which there was no place wakes who waits for one")
	}
	attempt = table.Occupy("another")
	if runs.Vacate(); !woken(changed) {
		t.Error("nobody is woken where a place is free again")
	}
	_, changed = table.Drain()
	if attempt.Vacate(); !woken(changed) {
		t.Error("a drain does not learn that the last attempt is over")
	}
}

// A request that has its place has it once, from then on and not only when its browser runs: the place
// beside it is for who waits behind it, also where a warm browser is closed for it.
func TestAPlaceCountsOnce(t *testing.T) {
	t.Parallel()
	takes := func(table *Table, profile string, w *Waiter) *api.Problem {
		s := table.Occupy(profile)
		p := s.TakePlace(w)
		if p != nil {
			s.Vacate()
			table.QueueUp(w, p)
		}
		return p
	}
	for name, warm := range map[string]bool{"both are free": false, "one of them is a warm browser's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := forAnHour
			o.MaxBrowsers = 2
			h := newHost(t, o)
			if warm {
				h.warm("a")
			}
			a, b := h.table.Occupy("a"), h.table.Occupy("b")
			var first, second, newcomer Waiter
			if p := cmp.Or(a.TakePlace(&Waiter{}), b.TakePlace(&Waiter{})); p != nil {
				t.Fatal(p)
			}
			if takes(h.table, "one", &first) == nil || takes(h.table, "two", &second) == nil {
				t.Fatal("there is a third place")
			}
			a.Vacate()
			b.Vacate()
			if p := takes(h.table, "one", &first); p != nil {
				t.Fatal(p)
			}
			// The first one's browser starts now. Its request goes on until it runs.
			if p := takes(h.table, "two", &second); p != nil {
				t.Errorf("one of two places is taken, and the next who waits is refused: %s", p.Detail)
			}
			if takes(h.table, "three", &newcomer) == nil {
				t.Error("there is a third place")
			}
			for _, profile := range []string{"one", "two"} {
				if s := h.table.Find(profile); s != nil {
					s.Vacate()
				}
			}
		})
	}
}

// Nobody waits for a place behind a request that does not try to take it, since it waits for the end of
// another's work with its profile.
func TestWhoWaitsForAProfileKeepsNobodyFromAPlace(t *testing.T) {
	t.Parallel()
	table := newTable(t, Options{MaxBrowsers: 1})
	a := table.Occupy("a")
	var first Waiter
	if p := a.TakePlace(&Waiter{}); p != nil {
		t.Fatal(p)
	}
	passing := table.Occupy("p")
	table.QueueUp(&first, passing.TakePlace(&first))
	passing.enter(Closing)
	got := make(chan *Slot)
	go func() { got <- table.OccupyNext(context.Background(), "p", &first) }()
	for end := time.Now().Add(time.Minute); table.Use().Waiting > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request is in the queue for a place while it waits for its profile")
		}
	}
	a.Vacate()
	other := table.Occupy("other")
	if p := other.TakePlace(&Waiter{}); p != nil {
		t.Errorf("no browser runs, and who wants to start one is refused: %s", p.Detail)
	}
	passing.Vacate()
	s := <-got
	if p := s.TakePlace(&first); refused(p) != api.CodeHostFull || p.More["queue_position"] != 1 {
		t.Errorf("it is told %v", p)
	}
	other.Vacate()
	if p := s.TakePlace(&first); p != nil {
		t.Error(p)
	}
	s.Vacate()
}

func TestAFullQueueTakesNobody(t *testing.T) {
	table := newTable(t, Options{MaxBrowsers: 1})
	full := api.Refuse(api.CodeHostFull, "").With("reason", api.ReasonBrowsers)
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
