package slots

import (
	"testing"
	"time"
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
		if q.wait(one); !q.wait(one) { // a second wait changes nothing
			t.Fatal("the queue is full")
		}
	}
	if len(q.queue) != 3 {
		t.Fatalf("%d wait", len(q.queue))
	}
	check("three wait", 1, map[*Waiter]bool{&first: true, &second: false, &third: false, &newcomer: false})
	check("three wait", 0, map[*Waiter]bool{&first: true, &second: true, &third: false, &newcomer: false})
	first.ready = false // its profile is in use, so it holds up nobody
	check("the first is not ready", 1, map[*Waiter]bool{&second: true, &third: false, &newcomer: false})
	q.wait(&first)
	check("the first is ready again", 1, map[*Waiter]bool{&first: true, &second: false})
	if !q.leave(&first) || q.leave(&first) || q.leave(&newcomer) {
		t.Error("leave is not true once, or is true for a request that did not wait")
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

func TestEstimate(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		name  string
		held  time.Duration
		since []time.Duration
		ahead int
		want  time.Duration
		known bool
	}{
		{"nothing ended yet", 0, []time.Duration{minute}, 0, 0, false},
		{"next", 10 * minute, []time.Duration{4 * minute}, 0, 6 * minute, true},
		{"one before it", 10 * minute, []time.Duration{4 * minute}, 1, 16 * minute, true},
		{"two places", 10 * minute, []time.Duration{4 * minute, 9 * minute}, 1, 6 * minute, true},
		{"two places, two before it", 10 * minute, []time.Duration{4 * minute, 9 * minute}, 2, 11 * minute, true},
		{"late", 10 * minute, []time.Duration{20 * minute}, 0, time.Second, true},
	} {
		q := places{max: len(tt.since), averageStay: tt.held}
		if got, known := q.estimate(tt.since, tt.ahead); got != tt.want || known != tt.known {
			t.Errorf("%s: %v %v, want %v %v", tt.name, got, known, tt.want, tt.known)
		}
	}
	var q places
	q.observe(8 * time.Second)
	q.observe(16 * time.Second)
	if q.averageStay != 9*time.Second {
		t.Errorf("sessions of 8 s and 16 s: %v", q.averageStay)
	}
	p := (&places{max: 1, averageStay: minute}).full(&Waiter{}, []time.Duration{20 * time.Second})
	if p.More["queue_position"] != 1 || p.More["estimated_wait_seconds"] != 40 || p.RetryAfter != 40 || p.Status != 429 {
		t.Errorf("%+v", p)
	}
}
