package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

// TestTheRoundThatIsServed is the lowest one, in whatever order others are looked at.
func TestTheRoundThatIsServed(t *testing.T) {
	t.Parallel()
	others := []Entrant{{Principal: "ann", Worker: "a", Round: 5}, {Principal: "ann", Worker: "b", Round: 2}}
	for range 2 {
		if round := Round(Entrant{Principal: "bob", Worker: "c"}, others); round != 2 {
			t.Errorf("among %v: round %d", others, round)
		}
		slices.Reverse(others)
	}
}

// TestATurnIsForTheSameRequest, in the same name.
func TestATurnIsForTheSameRequest(t *testing.T) {
	t.Parallel()
	us, eu := lease.Labels{"region": "us"}, lease.Labels{"region": "eu"}
	for _, tt := range []struct {
		name         string
		before, want lease.Waiter
		same         bool
	}{
		{"the same profile", lease.Waiter{ProfileID: "p", Principal: "ann"}, lease.Waiter{ProfileID: "p", Principal: "ann"}, true},
		{"another principal", lease.Waiter{ProfileID: "p", Principal: "ann"}, lease.Waiter{ProfileID: "p", Principal: "eve"}, false},
		{"another profile", lease.Waiter{ProfileID: "p"}, lease.Waiter{ProfileID: "q"}, false},
		{"any profile, which was sent on for one", lease.Waiter{ProfileID: "p", Labels: us}, lease.Waiter{Labels: us}, true},
		{"other labels", lease.Waiter{Labels: us}, lease.Waiter{Labels: eu}, false},
		{"another label", lease.Waiter{Labels: us}, lease.Waiter{Labels: lease.Labels{"tier": "us"}}, false},
		{"another account", lease.Waiter{AccountID: "a"}, lease.Waiter{AccountID: "b"}, false},
	} {
		if isSame(tt.before, tt.want) != tt.same {
			t.Errorf("%s: want %v", tt.name, tt.same)
		}
	}
}

// TestWhoStillWaitsKeepsItsPlace: nobody else gets it by naming it.
func TestWhoStillWaitsKeepsItsPlace(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		first := f.enters(a, "w")
		second := a.Ticket(lease.Waiter{ProfileID: "p", Principal: "ann", WorkerID: "w"}, first.ID())
		if n := f.ahead(a, second, true); n != 1 {
			t.Errorf("%d are ahead of who names a request that waits", n)
		}
	})
}

// TestAPlaceIsOneRound: who is sent on goes on in its round, and has one place also where it
// comes back to the launcher that had sent it on.
func TestAPlaceIsOneRound(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		w := lease.Waiter{ProfileID: "p", Principal: "ann", WorkerID: "w"}
		first, second := f.entersAs(a, w, ""), f.entersAs(a, w, "")
		first.Leave(Granted)
		time.Sleep(2 * tickEvery)
		f.wants("the first one was served", "w", a, b)
		if second.Rank().Round != 1 {
			t.Fatalf("rank %+v", second.Rank())
		}
		there := f.entersAs(b, w, second.HandOn("p"))
		if there.Rank().Round != 1 {
			t.Errorf("where it was sent to its rank is %+v", there.Rank())
		}
		f.wants("it is there", "w", a, b)
		back := f.entersAs(b, w, there.HandOn("p"))
		f.wants("it came back", "w", a, b)
		back.Leave(Granted)
		time.Sleep(2 * tickEvery)
		f.wants("it was served", "", a, b)
		if len(f.store.waiters) != 0 {
			t.Errorf("the store has %v", f.store.waiters)
		}
	})
}

// TestWhoDoesNotWaitComesAfterThoseWhoDo, in whatever round they are.
func TestWhoDoesNotWaitComesAfterThoseWhoDo(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		first := f.enters(a, "w")
		f.enters(a, "w") // in round 1
		first.Leave(Granted)
		passing := a.Ticket(lease.Waiter{ProfileID: "p", Principal: "bob", WorkerID: "x"}, "")
		if n := f.ahead(a, passing, true); n != 1 {
			t.Errorf("%d are ahead of who does not wait", n)
		}
	})
}

// TestANewStayOfALauncher: its requests are stored again, under their numbers.
func TestANewStayOfALauncher(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		var epoch atomic.Uint64
		epoch.Store(1)
		q := New(Options{
			LauncherID: "a", Store: f.store, Epoch: func() (uint64, bool) { return epoch.Load(), true }, Lives: func(string, uint64) (bool, bool) { return true, true },
			Profiles: func() []lease.Record { return f.records }, Changed: func() {}, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
		})
		f.work.Go(func() { q.Run(ctx) })
		time.Sleep(tickEvery)
		t1 := f.enters(q, "w")
		arrival := t1.Rank().Arrival
		f.enters(q, "v")
		epoch.Store(2)
		time.Sleep(2 * tickEvery)
		f.store.do(func() {
			if e := f.store.waiters[t1.ID()]; e.Waiter.Epoch != 2 || e.Waiter.Arrival != arrival {
				t.Errorf("stored as %+v, want epoch 2 and arrival %d", e, arrival)
			}
		})
		if t1.Rank().Arrival != arrival {
			t.Errorf("its arrival was %d, and is %d", arrival, t1.Rank().Arrival)
		}
	})
}

// TestWhatCannotBeStoredIsTriedAgain, in the order in which the requests began to wait.
func TestWhatCannotBeStoredIsTriedAgain(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		f.store.do(func() { f.store.full = true })
		var tickets []*Ticket
		for _, worker := range []string{"1", "2", "3", "4", "5"} {
			tickets = append(tickets, f.enters(a, worker))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * tickEvery)
		f.store.do(func() { f.store.full = false })
		time.Sleep(2 * tickEvery)
		for i, ticket := range tickets {
			if got := ticket.Rank().Arrival; got != uint64(i+1) {
				t.Errorf("request %d arrived as %d", i+1, got)
			}
		}
	})
}

// TestNumbersOfALostStoreAreOver: who comes after the loss comes later, although the store counts
// from the beginning; and who was only in that store does not wait any more.
func TestNumbersOfALostStoreAreOver(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		f.store.revision = 100
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		if _, err := f.store.PutWaiter(ctx, lease.Waiter{ID: "ghost", LauncherID: "c", ProfileID: "p", WorkerID: "ghost"}); err != nil {
			t.Fatal(err)
		}
		early := f.enters(a, "early")
		f.wants("before the loss", "ghost early", a, b)
		f.store.do(func() { clear(f.store.waiters); f.store.revision, f.store.round = 0, 1 })
		time.Sleep(2 * tickEvery)
		late := f.enters(b, "late")
		f.wants("after the loss", "early late", a, b)
		if f.ahead(a, early, true) != 0 || f.ahead(b, late, true) != 1 {
			t.Errorf("%+v, %+v", early.Rank(), late.Rank())
		}
	})
}

// twice is a store whose watch begins twice. It says that it has shown everything when the test says so.
type twice struct {
	*memory
	again, everything chan struct{}
}

func (s twice) WatchWaiters(ctx context.Context, see func(lease.WaiterSight)) error {
	see(lease.WaiterSight{Fresh: true})
	see(lease.WaiterSight{Complete: true})
	<-s.again
	see(lease.WaiterSight{Fresh: true})
	<-s.everything
	see(lease.WaiterSight{Complete: true})
	<-ctx.Done()
	return nil
}

// TestWhatIsStoredWhileEverythingIsShownKeepsItsPlace: the watch of a launcher begins again, for example
// because its connection broke. A request is stored after the watch has asked for everything, and its
// answer comes before it is shown. It was not lost, so that who comes later stays behind it.
func TestWhatIsStoredWhileEverythingIsShownKeepsItsPlace(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		store := twice{f.store, make(chan struct{}), make(chan struct{})}
		q := New(Options{
			LauncherID: "a", Store: store, Epoch: func() (uint64, bool) { return 1, true }, Lives: func(string, uint64) (bool, bool) { return true, true },
			Profiles: func() []lease.Record { return f.records }, Changed: func() {}, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
		})
		f.work.Go(func() { q.Run(ctx) })
		synctest.Wait()
		f.store.do(func() { f.store.takes = time.Millisecond })
		early := f.enters(q, "early") // it is on its way to the store
		close(store.again)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := early.Rank().Arrival; got != 1 {
			t.Fatalf("it arrived as %d", got)
		}
		if _, err := f.store.PutWaiter(ctx, lease.Waiter{ID: "late", LauncherID: "b", ProfileID: "p"}); err != nil {
			t.Fatal(err)
		}
		close(store.everything)
		time.Sleep(2 * tickEvery)
		f.store.do(func() {
			e := f.store.waiters[early.ID()]
			if got := rankOf(&e.Waiter, e.Revision).Arrival; got != 1 || early.Rank().Arrival != 1 {
				t.Errorf("it arrived as 1; then the store has it as %d, and its launcher as %d", got, early.Rank().Arrival)
			}
		})
	})
}

// TestItIsLookedAgainWhenOthersChange: it may be somebody's turn now.
func TestItIsLookedAgainWhenOthersChange(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		var looks atomic.Int64
		q := New(Options{
			LauncherID: "a", Store: f.store, Epoch: func() (uint64, bool) { return 1, true }, Lives: func(string, uint64) (bool, bool) { return true, true },
			Profiles: func() []lease.Record { return f.records }, Changed: func() { looks.Add(1) }, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
		})
		f.work.Go(func() { q.Run(ctx) })
		b := f.launcher(ctx, "b")
		other := f.enters(b, "other")
		before := looks.Load()
		other.Leave(Granted)
		time.Sleep(2 * tickEvery)
		if looks.Load() == before {
			t.Error("who came first at another launcher has left, and nobody looks")
		}
	})
}

// TestThePositionIsTheBestOne of the profiles that a request could be given.
func TestThePositionIsTheBestOne(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		f.enters(a, "of-p")
		f.entersAs(a, lease.Waiter{ProfileID: "p", Principal: "bob", WorkerID: "of-p-too"}, "")
		f.entersAs(a, lease.Waiter{Labels: lease.Labels{"region": "us"}, Patterns: []string{"*"}, Principal: "carl", WorkerID: "any"}, "")
		for range 10 { // the records may be looked at in any order
			shown := a.Show()
			if i := slices.IndexFunc(shown, func(s Shown) bool { return s.WorkerID == "any" }); i < 0 || shown[i].Ahead != 0 || len(shown[i].Profiles) != 2 {
				t.Fatalf("%+v", shown)
			}
			slices.Reverse(f.records)
		}
	})
}

// TestAPlaceIsKnownElsewhereFirst: a client is sent on when the store has its place, so that it is
// found there.
func TestAPlaceIsKnownElsewhereFirst(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		us := lease.Waiter{Labels: lease.Labels{"region": "us"}, Patterns: []string{"*"}, Principal: "ann", WorkerID: "w"}
		waits := f.entersAs(a, us, "")
		f.store.do(func() { f.store.takes = storeTime / 2 })
		for name, ticket := range map[string]*Ticket{"that waits": waits, "that does not wait": a.Ticket(us, "")} {
			turn := ticket.HandOn("q")
			f.store.do(func() {
				if got := f.store.waiters[turn].Waiter.ProfileID; got != "q" {
					t.Errorf("a request %s is sent on, and the store has it for %q", name, got)
				}
			})
		}
	})
}

// TestWithoutASharedQueueWhoCameFirstIsServedFirst: each launcher serves its own requests in the order in which they
// began to wait. One that gave up comes back to its place.
func TestWithoutASharedQueueWhoCameFirstIsServedFirst(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		f.store.away = true
		a := f.launcher(ctx, "a")
		var all []*Ticket
		var names []string
		asks := func(n int) lease.Waiter { // each of a principal of its own: all are in one round
			return lease.Waiter{ProfileID: "p", Principal: fmt.Sprint("p", n), WorkerID: fmt.Sprint(n)}
		}
		for n := range 20 {
			all, names = append(all, f.entersAs(a, asks(n), "")), append(names, fmt.Sprint(n))
		}
		inOrder := func(when string) {
			t.Helper()
			f.wants(when, strings.Join(names, " "), a)
			for n, ticket := range all {
				if ahead := f.ahead(a, ticket, true); ahead != n {
					t.Errorf("%s: %d are ahead of number %d", when, ahead, n)
				}
			}
		}
		inOrder("they wait")
		newcomer := a.Ticket(asks(20), "")
		if ahead := f.ahead(a, newcomer, true); ahead != len(all) {
			t.Errorf("%d are ahead of who does not wait", ahead)
		}
		all[3].Leave(TimedOut)
		if back := a.Ticket(asks(3), all[3].ID()); f.ahead(a, back, true) != 3 {
			t.Errorf("%d are ahead of who comes back", f.ahead(a, back, true))
		}
		all[3] = f.entersAs(a, asks(3), all[3].ID())
		inOrder("one came back")
		f.store.do(func() { f.store.away = false })
		time.Sleep(rewatchPause + tickEvery)
		synctest.Wait()
		inOrder("the queue is shared by now")
	})
}
