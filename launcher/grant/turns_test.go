package grant

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/queue"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// tableOf has the slots of a host with this many places.
func tableOf(t *testing.T, places int) *slots.Table {
	t.Helper()
	root, err := profiledir.Open(t.TempDir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); work.Wait() })
	return slots.NewTable(ctx, &work, slots.Options{MaxBrowsers: places, Root: root, DataDir: t.TempDir(), Metrics: prometheus.NewRegistry()})
}

// takes begins with a browser of a request whose profile is free, and ends at once. It returns the refusal.
func takes(table *slots.Table, w *slots.Waiter) *api.Problem {
	s := table.Occupy("another")
	defer s.Vacate()
	return s.TakePlace(w)
}

// A request for any profile whose free one is at a host without a place, while the others are held, waits
// for that host: it takes no place here, and keeps nobody from one.
func TestAPlaceThatIsMissingElsewhereIsNoneHere(t *testing.T) {
	found := []candidate{
		{Record: lease.Record{ProfileID: "here", State: lease.Held}, here: true, why: api.CodeConflict},
		{Record: lease.Record{ProfileID: "there", State: lease.Available}, why: api.CodeHostFull},
	}
	m := api.Manifest{Labels: lease.Labels{"pool": "x"}}
	table := tableOf(t, 1)
	var waiters [10]slots.Waiter
	for i := range waiters {
		waiters[i].Entrant = queue.Entrant{Principal: "uid", Worker: string(rune('a' + i))}
		if p := table.QueueUp(&waiters[i], noneFree(m, found, nil, time.Now())); p != nil {
			t.Fatal(p)
		}
	}
	if n := table.Use().Waiting; n != 0 {
		t.Errorf("%d requests wait for a place here", n)
	}
	if p := takes(table, &slots.Waiter{Entrant: queue.Entrant{Principal: "uid", Worker: "w"}}); p != nil {
		t.Errorf("no browser runs here, and a request for a free profile is refused: %s", p.Detail)
	}

	runs := table.Occupy("runs")
	if p := runs.TakePlace(&slots.Waiter{}); p != nil {
		t.Fatal(p)
	}
	full := takes(table, &waiters[0])
	if full == nil {
		t.Fatal("two browsers on a host with one place")
	}
	found[0].why = api.CodeHostFull
	table.QueueUp(&waiters[0], noneFree(m, found, full, time.Now()))
	if n := table.Use().Waiting; n != 1 {
		t.Errorf("%d requests wait for a place here, want the one whose profile is free here", n)
	}
	runs.Vacate()
}

// A free profile that is signed out is wanted by those only who would get it: others keep no check from it, which may
// find it signed in, and nobody who signs it in waits for them.
func TestASignedOutProfileIsWantedByWhoGetsIt(t *testing.T) {
	out := lease.Record{ProfileID: "p", State: lease.Available, Account: lease.Account{SignedIn: lease.SignedInNo}, Settings: lease.Settings{Labels: lease.Labels{"pool": "x"}}}
	ctx := principal.In(t.Context(), principal.Principal{Profiles: principal.EveryProfile})
	for name, tt := range map[string]struct {
		m      api.Manifest
		wanted bool
	}{
		"a task for any profile":              {api.Manifest{Labels: lease.Labels{"pool": "x"}}, false},
		"a task for this one":                 {api.Manifest{ProfileID: "p"}, false},
		"a task for any, which signs it in":   {api.Manifest{Labels: lease.Labels{"pool": "x"}, SignIn: true}, true},
		"a task for this, which signs it in":  {api.Manifest{ProfileID: "p", SignIn: true}, true},
		"a person who takes this one by hand": {api.Manifest{ProfileID: "p", ByHand: &api.ByHand{}}, true},
	} {
		q := queue.New(queue.Options{LauncherID: "l", Profiles: func() []lease.Record { return []lease.Record{out} }, Changed: func() {}, Metrics: prometheus.NewRegistry()})
		g := &Service{host: &host.Host{ID: "l", Queue: q}}
		if !g.asks(ctx, tt.m).ticket.Enter() {
			t.Fatal("nobody may wait")
		}
		ahead, _ := q.Ahead(g.asks(ctx, api.Manifest{ProfileID: "p", SignIn: true}).ticket, out, true)
		if wanted := q.Wanted(out); wanted != tt.wanted || (ahead > 0) != tt.wanted {
			t.Errorf("%s waits: it is wanted: %v, and %d are before who signs it in; want it wanted: %v", name, wanted, ahead, tt.wanted)
		}
	}
}

// A request that waited for a place leaves it to others while its profile goes to somebody else: it does not
// try to take one then.
func TestWhoIsBehindOthersForItsProfileWaitsForNoPlace(t *testing.T) {
	known := catalog.New()
	q := queue.New(queue.Options{LauncherID: "l", Profiles: known.Records, Changed: func() {}, Metrics: prometheus.NewRegistry()})
	table := tableOf(t, 1)
	g := &Service{host: &host.Host{ID: "l", Catalog: known, Queue: q, Store: &memory{}, Slots: table}}
	if _, err := catalog.Watched(&memory{}, known).Swap(t.Context(), lease.Entry{}, lease.Record{ProfileID: "p", State: lease.Available}); err != nil {
		t.Fatal(err)
	}
	runs := table.Occupy("runs")
	if p := runs.TakePlace(&slots.Waiter{}); p != nil {
		t.Fatal(p)
	}
	a := &asking{ticket: q.Ticket(lease.Waiter{ProfileID: "p", Principal: "one"}, "")}
	a.last = takes(table, &a.place)
	if p := table.QueueUp(&a.place, a.last); p != nil || !a.ticket.Enter() {
		t.Fatal("nobody may wait")
	}
	first := q.Ticket(lease.Waiter{ProfileID: "p", Principal: "two", Priority: 1}, "")
	if !first.Enter() {
		t.Fatal("nobody may wait")
	}

	_, err := g.tryInTurn(t.Context(), api.Manifest{ProfileID: "p"}, a)
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeConflict || p.More["reason"] != "queue" || p.More["queue_position"] != 2 {
		t.Fatalf("%v, %+v", err, p)
	}
	table.QueueUp(&a.place, p)
	runs.Vacate()
	if p := takes(table, &slots.Waiter{}); p != nil {
		t.Errorf("no browser runs here, and a request for a free profile is refused: %s", p.Detail)
	}
}
