package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold/lease"
)

func TestWhoseTurnItIs(t *testing.T) {
	r := lease.Record{ProfileID: "shop_1", AccountID: "store-1", State: lease.Available, Settings: lease.Settings{Labels: lease.Labels{"region": "us"}}}
	any := func(w lease.Waiter) lease.Waiter {
		w.Patterns = []string{"*"}
		return w
	}
	for name, tt := range map[string]struct {
		token   lease.Token
		state   lease.State
		task    string // of the record
		out     bool   // its account is signed out
		waiters []lease.Waiter
		want    string
	}{
		"nobody": {},
		"in the order of arrival": {waiters: []lease.Waiter{
			{ID: "c", ProfileID: "shop_1", Arrival: 9}, {ID: "a", ProfileID: "shop_1", Arrival: 3}, {ID: "b", ProfileID: "shop_1", Arrival: 4},
		}, want: "a b c"},
		"who is not stored yet came last": {waiters: []lease.Waiter{{ID: "a", ProfileID: "shop_1"}, {ID: "b", ProfileID: "shop_1", Arrival: 9}}, want: "b a"},
		"only those who could have it": {waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_2", Arrival: 1}, any(lease.Waiter{ID: "b", AccountID: "store-1", Arrival: 2}), any(lease.Waiter{ID: "c", AccountID: "store-2", Arrival: 3}),
			any(lease.Waiter{ID: "d", Labels: lease.Labels{"region": "u*"}, Arrival: 4}), any(lease.Waiter{ID: "e", Labels: lease.Labels{"region": "eu"}, Arrival: 5}),
			{ID: "f", Labels: lease.Labels{"region": "us"}, Patterns: []string{"bank_*"}, Arrival: 6}, {ID: "g", Labels: lease.Labels{"region": "us"}, Patterns: []string{"bank_*", "shop_*"}, Arrival: 7},
			any(lease.Waiter{ID: "h", AccountID: "store-1", Labels: lease.Labels{"tier": "1"}, Arrival: 8}),
		}, want: "b d g"},
		"priority, then round, then arrival": {waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1, Round: 3}, {ID: "b", ProfileID: "shop_1", Arrival: 2, Round: 1}, {ID: "c", ProfileID: "shop_1", Arrival: 3, Round: 1},
			{ID: "d", ProfileID: "shop_1", Arrival: 4, Round: 9, Priority: 1}, {ID: "e", ProfileID: "shop_1", Arrival: 5, Priority: -1},
		}, want: "d b c a e"},
		"some grants go by age alone": {token: 20, waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1, Round: 3, Priority: -5}, {ID: "b", ProfileID: "shop_1", Arrival: 2, Priority: 5},
		}, want: "a b"},
		"the next one does not": {token: 23, waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1, Round: 3, Priority: -5}, {ID: "b", ProfileID: "shop_1", Arrival: 2, Priority: 5},
		}, want: "b a"},
		"one that is kept for a task is waited for by that alone": {state: lease.ResumePending, task: "t-2", waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1, TaskID: "t-1"}, {ID: "b", ProfileID: "shop_1", Arrival: 2, TaskID: "t-2"},
		}, want: "b"},
		"one that is signed out is waited for by who signs it in": {out: true, waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1}, any(lease.Waiter{ID: "b", AccountID: "store-1", Arrival: 2}), {ID: "c", ProfileID: "shop_1", Arrival: 3, SignIn: true},
		}, want: "c"},
		"but by all while somebody has it": {out: true, state: lease.Held, waiters: []lease.Waiter{
			{ID: "a", ProfileID: "shop_1", Arrival: 1}, {ID: "b", ProfileID: "shop_1", Arrival: 2, SignIn: true},
		}, want: "a b"},
	} {
		r := r
		r.Token, r.TaskID = tt.token, tt.task
		if tt.out {
			r.SignedIn = lease.SignedInNo
		}
		if tt.state != "" {
			r.State = tt.state
		}
		var members []member
		for i := range tt.waiters {
			members = append(members, member{&tt.waiters[i], rankOf(&tt.waiters[i], 0)})
		}
		var got []string
		for _, m := range line(members, &r) {
			got = append(got, m.waiter.ID)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestRounds(t *testing.T) {
	e := func(principal, worker string, round uint64) Entrant {
		return Entrant{Principal: principal, Worker: worker, Round: round}
	}
	for name, tt := range map[string]struct {
		who    Entrant
		others []Entrant
		want   uint64
	}{
		"nobody waits":                   {e("p", "a", 0), nil, 0},
		"the first of a worker":          {e("p", "b", 0), []Entrant{e("p", "a", 7), e("p", "a", 8)}, 7},
		"the next of a worker":           {e("p", "a", 0), []Entrant{e("p", "a", 7), e("p", "a", 8), e("q", "a", 7)}, 9},
		"another priority has its own":   {e("p", "a", 0), []Entrant{{Principal: "p", Worker: "a", Round: 7, Priority: 1}}, 0},
		"many workers of one principal":  {e("p", "e", 0), []Entrant{e("p", "a", 7), e("p", "b", 7), e("p", "c", 7), e("p", "d", 7)}, 8},
		"those of another do not count":  {e("q", "e", 0), []Entrant{e("p", "a", 7), e("p", "b", 7), e("p", "c", 7), e("p", "d", 7)}, 7},
		"nor do names of other servants": {e("q", "a", 0), []Entrant{e("p", "a", 7)}, 7},
	} {
		if got := Round(tt.who, tt.others); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// However a profile's token rises from one grant to the next (by one, two or three), some
// grants of every period go by age.
func TestSomeGrantsGoByAge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		token := rapid.Uint64Range(0, 1<<40).Draw(rt, "token")
		since := 0
		for range 500 {
			token += rapid.Uint64Range(1, 3).Draw(rt, "rise")
			if since++; ByAge(token) {
				since = 0
			}
			if since > agePeriod {
				rt.Fatalf("%d grants went by rank, up to token %d", since, token)
			}
		}
	})
}

// simulation is one profile that many wait for, one grant after the other.
type simulation struct {
	r       lease.Record
	waiting []lease.Waiter
	arrived uint64
}

func (s *simulation) members() (all []member) {
	for i := range s.waiting {
		all = append(all, member{&s.waiting[i], rankOf(&s.waiting[i], 0)})
	}
	return all
}

func (s *simulation) arrive(principal, worker string, priority int) string {
	s.arrived++
	w := lease.Waiter{ID: fmt.Sprint(s.arrived), ProfileID: "p", Principal: principal, WorkerID: worker, Priority: priority, Arrival: s.arrived}
	var others []Entrant
	for i := range s.waiting {
		others = append(others, entrantOf(&s.waiting[i]))
	}
	w.Round = Round(entrantOf(&w), others)
	s.waiting = append(s.waiting, w)
	return w.ID
}

// grant gives the profile to whoever is next.
func (s *simulation) grant() lease.Waiter {
	next := *line(s.members(), &s.r)[0].waiter
	s.waiting = slices.DeleteFunc(s.waiting, func(w lease.Waiter) bool { return w.ID == next.ID })
	s.r.Token++
	return next
}

// TestAWorkerWithManyTasksIsNotFirstForAll: one that asks again after each grant gets every
// second one, whoever waits with a hundred, and whatever came before.
func TestAWorkerWithManyTasksIsNotFirstForAll(t *testing.T) {
	for before := range 30 {
		s := simulation{r: lease.Record{ProfileID: "p"}}
		for range 100 {
			s.arrive("ann", "batch", 0)
		}
		for range before {
			s.grant()
		}
		served := 0
		own := s.arrive("ann", "single", 0)
		for range 60 {
			if s.grant().ID == own {
				served++
				own = s.arrive("ann", "single", 0)
			}
		}
		if served < 24 || served > 34 {
			t.Errorf("after %d grants, %d of 60 went to the worker with one task at a time, want about every second", before, served)
		}
	}
}

// TestPrioritiesComeFirst, but for those that go by age.
func TestPrioritiesComeFirst(t *testing.T) {
	s := simulation{r: lease.Record{ProfileID: "p"}}
	for range 100 {
		s.arrive("ann", "low", 0)
	}
	high := 0
	for range 96 {
		s.arrive("bob", "high", 1)
		if s.grant().Priority == 1 {
			high++
		}
	}
	if high != 84 { // three of 24 go by age
		t.Errorf("%d of 96 went to the higher priority, want 84", high)
	}
}

// TestNobodyWaitsForEver: whoever else comes, with whatever priority and however often, a
// request is served after at most so many grants as there are in a period, for each that came
// before it and for itself.
func TestNobodyWaitsForEver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := simulation{r: lease.Record{ProfileID: "p", Token: lease.Token(rapid.IntRange(0, 100).Draw(rt, "token"))}}
		crowd := func(n int) {
			for range n {
				s.arrive(rapid.SampledFrom([]string{"ann", "bob", "eve"}).Draw(rt, "principal"), rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(rt, "worker"),
					rapid.IntRange(lease.MinPriority, lease.MaxPriority).Draw(rt, "priority"))
			}
		}
		crowd(rapid.IntRange(0, 6).Draw(rt, "before"))
		before := len(s.waiting)
		own := s.arrive("ann", "1", lease.MinPriority)
		bound := (before + 1) * agePeriod
		for range bound {
			crowd(rapid.IntRange(1, 2).Draw(rt, "arrive")) // more than are served
			if s.grant().ID == own {
				return
			}
			s.r.Token += lease.Token(rapid.IntRange(0, 2).Draw(rt, "rise"))
		}
		rt.Fatalf("not served within %d grants, with %d before it", bound, before)
	})
}
