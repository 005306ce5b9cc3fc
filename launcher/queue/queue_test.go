package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store of waiters, which a test can cut off and wipe.
type memory struct {
	mu       sync.Mutex
	revision uint64
	waiters  map[string]lease.WaiterEntry // by id
	changed  chan struct{}                // closed and replaced at each change
	round    int                          // counts losses
	away     bool
	full     bool // it takes nothing, and shows what it has
	takes    time.Duration
}

var errAway = errors.New("away")

func newMemory() *memory {
	return &memory{waiters: map[string]lease.WaiterEntry{}, changed: make(chan struct{})}
}

func (m *memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) do(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
	m.wake()
}

func (m *memory) PutWaiter(_ context.Context, w lease.Waiter) (uint64, error) {
	m.mu.Lock()
	takes := m.takes
	m.mu.Unlock()
	time.Sleep(takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away || m.full {
		return 0, errAway
	}
	m.revision++
	m.waiters[w.ID] = lease.WaiterEntry{Waiter: w, Revision: m.revision}
	m.wake()
	return m.revision, nil
}

func (m *memory) DropWaiter(_ context.Context, _, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	delete(m.waiters, id)
	m.wake()
	return nil
}

func (m *memory) WatchWaiters(ctx context.Context, see func(lease.WaiterSight)) error {
	shown, round := map[string]lease.WaiterEntry{}, -1
	for {
		m.mu.Lock()
		now, changed, away, lost := maps.Clone(m.waiters), m.changed, m.away, m.round != round
		round = m.round
		m.mu.Unlock()
		if away {
			return errAway
		}
		if lost {
			see(lease.WaiterSight{Fresh: true})
			clear(shown)
		}
		for id, e := range now {
			if shown[id].Revision != e.Revision {
				see(lease.WaiterSight{Entry: e})
			}
		}
		for id, e := range shown {
			if _, there := now[id]; !there {
				see(lease.WaiterSight{Entry: lease.WaiterEntry{Waiter: lease.Waiter{LauncherID: e.Waiter.LauncherID, ID: id}}, Gone: true})
			}
		}
		if lost {
			see(lease.WaiterSight{Complete: true})
		}
		shown = now
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// fleet are the queues of some launchers on one store.
type fleet struct {
	*testing.T
	store   *memory
	records []lease.Record
	work    sync.WaitGroup

	mu   sync.Mutex
	dead map[string]bool // launchers whose presence was seen to end
}

func inFleet(t *testing.T, test func(f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{T: t, store: newMemory(), dead: map[string]bool{}, records: []lease.Record{
			{ProfileID: "p", State: lease.Available, Settings: lease.Settings{Labels: lease.Labels{"region": "us"}}},
			{ProfileID: "q", State: lease.Available, Settings: lease.Settings{Labels: lease.Labels{"region": "us"}}},
		}}
		test(f)
		f.work.Wait()
	})
}

// launcher starts a queue, until the context ends.
func (f *fleet) launcher(ctx context.Context, id string) *Queue {
	q := New(Options{
		LauncherID: id, Store: f.store, Epoch: func() (uint64, bool) { return 1, true }, Belief: 30 * time.Second,
		Lives: func(launcher string, _ uint64) (bool, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return !f.dead[launcher], launcher != "unseen"
		},
		Profiles: func() []lease.Record { return f.records }, Changed: func() {}, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	})
	f.work.Go(func() { q.Run(ctx) })
	synctest.Wait()
	return q
}

func (f *fleet) dies(launcher string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[launcher] = true
}

// enters puts a request for p into the queue, and waits until all have seen it.
func (f *fleet) enters(q *Queue, worker string) *Ticket {
	f.Helper()
	return f.entersAs(q, lease.Waiter{ProfileID: "p", Principal: "ann", WorkerID: worker}, "")
}

func (f *fleet) entersAs(q *Queue, w lease.Waiter, turn string) *Ticket {
	f.Helper()
	t := q.Ticket(w, turn)
	for range 2 { // twice is once
		if !t.Enter() {
			f.Fatal("it may not wait")
		}
	}
	synctest.Wait()
	return t
}

// ahead is how many get the profile before the ticket.
func (f *fleet) ahead(q *Queue, t *Ticket, free bool) int {
	ahead, _ := q.Ahead(t, f.records[0], free)
	return ahead
}

// wants checks who waits, in the order of arrival, as each queue shows it.
func (f *fleet) wants(when, workers string, all ...*Queue) {
	f.Helper()
	for _, q := range all {
		var got []string
		for _, s := range q.Show() {
			got = append(got, s.WorkerID)
		}
		if strings.Join(got, " ") != workers {
			f.Errorf("%s: %s shows %q, want %q", when, q.o.LauncherID, got, workers)
		}
	}
}

// waits is how many waits a queue counted.
func waits(t *testing.T, q *Queue) (n uint64) {
	t.Helper()
	families, err := q.o.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n += m.GetHistogram().GetSampleCount()
		}
	}
	return n
}

func TestOneQueueForAllLaunchers(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		first, second, third := f.enters(a, "1"), f.enters(b, "2"), f.enters(a, "3")
		f.wants("three wait", "1 2 3", a, b)
		if n, m, o := f.ahead(a, first, true), f.ahead(b, second, true), f.ahead(a, third, true); n != 0 || m != 1 || o != 2 {
			t.Errorf("%d, %d and %d are ahead", n, m, o)
		}
		newcomer := b.Ticket(lease.Waiter{ProfileID: "p", Principal: "ann", WorkerID: "4"}, "")
		if ahead, others := b.Ahead(newcomer, f.records[0], true); ahead != 3 || others != 3 {
			t.Errorf("who does not wait comes after %d of %d", ahead, others)
		}
		if ahead, _ := b.Ahead(newcomer, f.records[1], true); ahead != 0 {
			t.Errorf("at another profile %d are ahead", ahead)
		}
		first.Leave(Granted)
		first.Leave(Granted)
		synctest.Wait()
		f.wants("one left", "2 3", a, b)
		if n := f.ahead(b, second, true); n != 0 {
			t.Errorf("%d are ahead of the second", n)
		}
		if n := waits(t, a); n != 1 {
			t.Errorf("%d waits were counted, want one", n)
		}
		third.Leave(TimedOut)
		second.Leave(Gone)
		synctest.Wait()
		f.wants("all left", "", a, b)
		if len(f.store.waiters) != 0 {
			t.Errorf("the store still has %v", f.store.waiters)
		}
	})
}

// TestALauncherThatIsGoneHoldsUpNobody, whether its presence was seen to end, or it was never
// seen. One that ends in order takes its waiters along.
func TestALauncherThatIsGoneHoldsUpNobody(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		b := f.launcher(ctx, "b")
		for _, launcher := range []string{"a", "unseen"} {
			killed, kill := context.WithCancel(f.Context())
			a := f.launcher(killed, launcher)
			f.enters(a, "dead")
			own := f.enters(b, "alive")
			if n := f.ahead(b, own, true); n != 1 {
				t.Errorf("%s: %d are ahead", launcher, n)
			}
			f.store.do(func() { f.store.away = true }) // so that it cannot remove what it has
			kill()
			time.Sleep(3 * time.Second)
			f.store.do(func() { f.store.away = false })
			time.Sleep(3 * time.Second)
			if n := f.ahead(b, own, false); n != 1 {
				t.Errorf("%s: %d are ahead while its presence counts", launcher, n)
			}
			if launcher == "unseen" {
				time.Sleep(25 * time.Second)
			} else {
				f.dies(launcher)
			}
			if n := f.ahead(b, own, false); n != 0 {
				t.Errorf("%s: %d are ahead of a living one", launcher, n)
			}
			f.wants("it is gone", "alive", b)
			own.Leave(Granted)
			synctest.Wait()
			f.store.do(func() { clear(f.store.waiters) })
			synctest.Wait()
		}
		ends, end := context.WithCancel(f.Context())
		c := f.launcher(ends, "c")
		f.enters(c, "1")
		end()
		synctest.Wait()
		if len(f.store.waiters) != 0 {
			t.Errorf("a launcher that ended in order left %v", f.store.waiters)
		}
	})
}

// TestAProfileIsNotKeptForEver for a waiter whose launcher lives, and does not take it.
func TestAProfileIsNotKeptForEver(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		f.enters(a, "stuck")
		own := f.enters(b, "next")
		if f.ahead(b, own, true) != 1 {
			t.Error("the first one does not count")
		}
		time.Sleep(followTime - time.Second)
		if f.ahead(b, own, true) != 1 {
			t.Error("it was not waited for")
		}
		time.Sleep(time.Second)
		if f.ahead(b, own, true) != 0 {
			t.Error("a free profile is still kept for it")
		}
		f.records[0].Token++
		if f.ahead(b, own, true) != 1 {
			t.Error("it is not asked the next time")
		}
	})
}

// TestWhoWantsAProfileAloneIsNotLate while others share it: it cannot take the profile before they have ended.
func TestWhoWantsAProfileAloneIsNotLate(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a := f.launcher(ctx, "a")
		f.enters(a, "alone")
		shares := lease.Waiter{ProfileID: "p", Principal: "bob", WorkerID: "shares", Shares: true}
		f.entersAs(a, shares, "")
		next := a.Ticket(shares, "")
		for _, tt := range []struct {
			state      lease.State
			soon, late int
		}{{lease.Held, 2, 1}, {lease.Available, 2, 0}} {
			f.records[0].State = tt.state
			f.records[0].Token++
			soon := f.ahead(a, next, true)
			time.Sleep(followTime)
			if late := f.ahead(a, next, true); soon != tt.soon || late != tt.late {
				t.Errorf("%s: %d are ahead, and later %d; want %d and %d", tt.state, soon, late, tt.soon, tt.late)
			}
		}
	})
}

// TestAPlaceGoesAlong to another launcher, and is kept for who comes back after a timeout.
func TestAPlaceGoesAlong(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		us := lease.Waiter{Labels: lease.Labels{"region": "us"}, Patterns: []string{"*"}, Principal: "ann", WorkerID: "moves"}
		moves := f.entersAs(a, us, "")
		other := f.enters(b, "other")
		turn := moves.HandOn("p")
		moves.Leave(Refused)
		synctest.Wait()
		if n := f.ahead(b, other, true); n != 1 {
			t.Errorf("%d are ahead while it is on its way", n)
		}
		if n, _ := b.Ahead(other, f.records[1], true); n != 0 {
			t.Errorf("it is waited for at %d other profiles", n)
		}
		eve := us
		eve.Principal = "eve"
		if thief := b.Ticket(eve, turn); f.ahead(b, thief, true) != 2 {
			t.Error("another principal took its place")
		}
		there := b.Ticket(us, turn)
		if n := f.ahead(b, there, true); n != 0 {
			t.Errorf("%d are ahead of it where it was sent to", n)
		}
		there.Enter()
		synctest.Wait()
		f.wants("it is there", "moves other", a, b)
		there.Leave(TimedOut)
		synctest.Wait()
		f.wants("it gave up", "other", a, b)
		late := f.enters(b, "late")
		again := f.entersAs(b, us, there.ID())
		if f.ahead(b, again, true) != 0 || f.ahead(b, late, true) != 2 {
			t.Error("it lost its place")
		}
		again.Leave(TimedOut)
		time.Sleep(rememberTime)
		if again = b.Ticket(us, again.ID()); f.ahead(b, again, false) != 2 {
			t.Error("its place is kept for ever")
		}
		// One whose client does not go there.
		lost := f.entersAs(a, lease.Waiter{ProfileID: "q", Principal: "ann", WorkerID: "lost"}, "")
		lost.HandOn("q")
		time.Sleep(followTime + 2*tickEvery)
		f.wants("it went nowhere", "other late", a, b)
	})
}

// TestAStoreThatIsLost is filled again, and one that is away keeps nobody from waiting.
func TestAStoreThatIsLost(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		f.store.away = true
		a, b := f.launcher(ctx, "a"), f.launcher(ctx, "b")
		one, two := f.enters(a, "1"), f.enters(b, "2")
		if f.ahead(a, one, true)+f.ahead(b, two, true) != 0 {
			t.Error("somebody is ahead in a store that is away")
		}
		f.store.do(func() { f.store.away = false })
		time.Sleep(2 * rewatchPause)
		if sum := f.ahead(a, one, true) + f.ahead(b, two, true); sum != 1 || len(f.store.waiters) != 2 {
			t.Errorf("%d are ahead, in all; the store has %v", sum, f.store.waiters)
		}
		f.store.do(func() { clear(f.store.waiters); f.store.revision, f.store.round = 0, 1 })
		time.Sleep(2 * tickEvery)
		if sum := f.ahead(a, one, true) + f.ahead(b, two, true); sum != 1 || len(f.store.waiters) != 2 {
			t.Errorf("after it was lost %d are ahead, in all; it has %v", sum, f.store.waiters)
		}
		if ids := slices.Collect(maps.Keys(f.store.waiters)); !slices.Contains(ids, one.ID()) || !slices.Contains(ids, two.ID()) {
			t.Errorf("it has %q", ids)
		}
	})
}

// What an earlier process of a launcher left in the store is removed.
func TestWhatAnEarlierProcessLeft(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		if _, err := f.store.PutWaiter(ctx, lease.Waiter{ID: "old", LauncherID: "a", ProfileID: "p"}); err != nil {
			t.Fatal(err)
		}
		a := f.launcher(ctx, "a")
		time.Sleep(2 * tickEvery)
		f.wants("at its start", "", a)
		if len(f.store.waiters) != 0 {
			t.Errorf("the store has %v", f.store.waiters)
		}
	})
}

func TestTooManyWait(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, stop := context.WithCancel(f.Context())
		defer stop()
		q := New(Options{
			LauncherID: "a", Lives: func(string, uint64) (bool, bool) { return false, false }, Profiles: func() []lease.Record { return nil }, Changed: func() {},
			Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
		})
		f.work.Go(func() { q.Run(ctx) })
		for range maxOwn {
			if !q.Ticket(lease.Waiter{ProfileID: "p"}, "").Enter() {
				t.Fatal("it may not wait")
			}
		}
		if q.Ticket(lease.Waiter{ProfileID: "p"}, "").Enter() {
			t.Error("there is no bound")
		}
	})
}

// TestAnEmptyQueueRests: nothing wakes it up until a request enters.
func TestAnEmptyQueueRests(t *testing.T) {
	inFleet(t, func(f *fleet) {
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		q := New(Options{LauncherID: "a", Changed: func() {}, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
		var looks atomic.Int32
		f.work.Go(func() { q.tick(ctx, func() { looks.Add(1); q.drop() }) })
		wants := func(when string, act func(), least, most int32) {
			t.Helper()
			looks.Store(0)
			act()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := looks.Load(); n < least || n > most {
				t.Errorf("%s it looked %d times in a minute, want %d to %d", when, n, least, most)
			}
		}
		nothing := func() {}
		ticket := q.Ticket(lease.Waiter{ProfileID: "p", WorkerID: "w"}, "")
		wants("at first", nothing, 1, 1)
		wants("while it is empty", nothing, 0, 0)
		wants("while a request waits", func() { ticket.Enter() }, 59, 61)
		wants("when that leaves", func() { ticket.Leave(Gone) }, 1, 2)
		wants("when it is empty again", nothing, 0, 0)
	})
}
