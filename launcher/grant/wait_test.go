package grant

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/host"
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
}

// memory is a lease store that takes every write.
type memory struct {
	lease.Store
	revision uint64
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
