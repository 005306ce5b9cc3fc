package grant

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/host"
	"leasehold/launcher/queue"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// A request with wait waits for every refusal that ends by itself, and for no other.
func TestWhatIsWaitedFor(t *testing.T) {
	ends := []string{
		api.CodeConflict, api.CodeQuarantined, api.CodeCoolingDown, api.CodeHostFull,
		api.CodeStoreUnavailable, // an election, a restart, a presence that is opened again, a store that is young
		api.CodeProfileStore, api.CodeEvidenceStore,
	}
	for _, code := range slices.Sorted(maps.Keys(api.Meanings)) {
		if got, want := canEnd(api.Refuse(code, "")), slices.Contains(ends, code); got != want {
			t.Errorf("%s: waited for %v, want %v", code, got, want)
		}
	}
	if canEnd(api.Refuse(api.CodeStoreUnavailable, "").With("reason", api.ReasonServers)) {
		t.Error("servers that are not one store are waited for")
	}
	if canEnd(api.Refuse(api.CodeConflict, "").With("reason", api.ReasonDirectoryMissing)) {
		t.Error("a person is waited for who brings a directory back")
	}
}

// memory is a lease store that takes every write, and counts the reads, of which none is answered.
type memory struct {
	lease.Store
	revision uint64
	reads    int
}

func (m *memory) Get(context.Context, string) (lease.Entry, error) {
	m.reads++
	return lease.Entry{}, lease.ErrUnavailable
}

func (m *memory) Swap(_ context.Context, _ lease.Entry, next lease.Record) (lease.Entry, error) {
	m.revision++
	return lease.Entry{Record: next, Revision: m.revision}, nil
}

// A request that waits for a profile asks the store again when the record of that profile was
// changed, and not at each write of another one.
func TestAWriteWakesWhoWaitsForItsProfile(t *testing.T) {
	for waits, wrote := range map[string]map[string]bool{"p": {"q": false, "p": true}, "": {"q": true}} {
		for profile, want := range wrote {
			synctest.Test(t, func(t *testing.T) {
				known := catalog.New()
				store := catalog.Watched(&memory{}, known)
				g := &Service{host: &host.Host{Catalog: known}}
				begun, woken := time.Now(), false
				version, _ := known.Version(waits)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = g.waitFor(t.Context(), waits, version, nil, time.Now().Add(time.Hour))
					woken = time.Since(begun) < pollEvery
				}()
				synctest.Wait()
				if _, err := store.Swap(t.Context(), lease.Entry{}, lease.Record{ProfileID: profile, State: lease.Held}); err != nil {
					t.Fatal(err)
				}
				<-done
				if woken != want {
					t.Errorf("who waits for %q is woken by a write of %s: %v, want %v", waits, profile, woken, want)
				}
			})
		}
	}
}

// Who would share a profile comes after a request that wants it to itself and waits until others have ended,
// however long that takes, and whether it waits, too, or does not. A request that could share it, and does not, keeps
// it from them no longer than a free one.
func TestWhoWantsASharedProfileAloneIsNotOvertaken(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			known, store := catalog.New(), &memory{}
			q := queue.New(queue.Options{LauncherID: "l", Profiles: known.Records, Changed: func() {}, Metrics: prometheus.NewRegistry()})
			g := &Service{host: &host.Host{ID: "l", Catalog: known, Queue: q, Store: store, Sessions: &session.Registry{}}}
			r := lease.Record{ProfileID: "p", State: lease.Held, LauncherID: "l", Token: 1, Runs: []lease.Run{{Token: 1}}, Settings: lease.Settings{MaxActiveRuns: 3}}
			if _, err := catalog.Watched(store, known).Swap(t.Context(), lease.Entry{}, r); err != nil {
				t.Fatal(err)
			}
			asks := func(principal string) *asking {
				return &asking{ticket: q.Ticket(lease.Waiter{ProfileID: "p", Principal: principal, Shares: principal != "first" || !alone}, ""), last: api.Refuse(api.CodeConflict, "")}
			}
			first, second := asks("first"), asks("second")
			if !first.ticket.Enter() || !second.ticket.Enter() {
				t.Fatal("nobody may wait")
			}
			m, newcomers := api.Manifest{ProfileID: "p", RequiresExclusiveProfileLock: new(false)}, 0
			for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(pollEvery) {
				_, _ = g.tryInTurn(t.Context(), m, second)
				if g.behind(r, m, asks("newcomer")) == nil {
					newcomers++
				}
			}
			if alone && (store.reads > 0 || newcomers > 0) || !alone && (store.reads == 0 || newcomers == 0) {
				t.Errorf("the first one wants the profile to itself: %v; who waited after it was tried %d times, and %d newcomers were before it", alone, store.reads, newcomers)
			}
		})
	}
}

// Nobody can take a profile while it cools down: who comes first is not late then, and keeps its turn for as
// long as after any other end.
func TestACooldownCostsNobodyTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, writes := catalog.New(), &memory{}
		q := queue.New(queue.Options{LauncherID: "l", Profiles: known.Records, Changed: func() {}, Metrics: prometheus.NewRegistry()})
		g := &Service{host: &host.Host{ID: "l", Catalog: known, Queue: q, Store: writes}}
		const cooldown, follow = 30 * time.Second, 15 * time.Second
		begun := time.Now()
		if _, err := catalog.Watched(writes, known).Swap(t.Context(), lease.Entry{}, lease.Record{ProfileID: "p", State: lease.Available, ReleasedAt: begun, AvailableAfter: begun.Add(cooldown)}); err != nil {
			t.Fatal(err)
		}
		first := q.Ticket(lease.Waiter{ProfileID: "p", Principal: "one", Priority: 1}, "")
		second := &asking{ticket: q.Ticket(lease.Waiter{ProfileID: "p", Principal: "two"}, ""), last: api.Refuse(api.CodeCoolingDown, "")}
		if !first.Enter() || !second.ticket.Enter() {
			t.Fatal("nobody may wait")
		}
		for writes.reads == 0 && time.Since(begun) < time.Hour {
			_, _ = g.tryInTurn(t.Context(), api.Manifest{ProfileID: "p"}, second)
			time.Sleep(pollEvery)
		}
		if after := time.Since(begun) - cooldown; after < follow {
			t.Errorf("the second one's turn came %v after the end of the cooldown, while the first one had %v", after, follow)
		} else if after > 2*follow {
			t.Errorf("a profile that is not taken is kept for %v", after)
		}
	})
}
