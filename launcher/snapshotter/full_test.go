package snapshotter

import (
	"slices"
	"testing"

	"leasehold/internal/test/objectstest"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// TestAFullListTakesTheNextSnapshot: the oldest one leaves for it, but for those that are named. Where fewer
// are kept than before, the others leave as well.
func TestAFullListTakesTheNextSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		keep int
		left []lease.Token
	}{
		"all are kept":               {0, []lease.Token{5, 4, 1}},
		"more than a list takes":     {9, []lease.Token{5, 4, 1}},
		"fewer are kept from now on": {1, []lease.Token{5, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Retention: snapshots.Retention{Keep: tt.keep}})
			w.store.Most = 4
			dir := w.profile("p", "x")
			for token := range lease.Token(4) {
				made, err := objectstest.Seal(t, w.store, "p", dir, token+1)
				if err != nil {
					t.Fatal(err)
				}
				if token == 0 {
					w.leases.change("p", func(r *lease.Record) { r.Moved = &lease.Move{ID: "mv_1", SnapshotID: made.ID, SnapshotToken: 1} })
				}
			}
			w.session("p", 5, func() { w.write(dir, "y") })
			w.drain()
			list, err := w.store.List(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			var left []lease.Token
			for _, s := range list {
				left = append(left, s.Token)
			}
			if !slices.Equal(left, tt.left) || !w.record("p").HasSnapshot() {
				t.Errorf("snapshots of tokens %v, want %v; the record names one: %v", left, tt.left, w.record("p").HasSnapshot())
			}
			if found, err := w.store.Verify(t.Context(), "p", ""); err != nil || !found.Whole() {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// TestAFullListWaitsForWhoMayWantOneOfIt: while another launcher asks for the profile, none leaves.
func TestAFullListWaitsForWhoMayWantOneOfIt(t *testing.T) {
	w := newWorld(t, Options{})
	w.store.Most = 2
	dir := w.profile("p", "x")
	for token := range lease.Token(2) {
		if _, err := objectstest.Seal(t, w.store, "p", dir, token+1); err != nil {
			t.Fatal(err)
		}
	}
	w.leases.change("p", func(r *lease.Record) { r.MoveRequest = &lease.MoveRequest{To: "other"} })
	newest := func() lease.Token {
		t.Helper()
		list, err := w.store.List(t.Context(), "p")
		if err != nil || len(list) == 0 {
			t.Fatalf("%d snapshots, %v; want some", len(list), err)
		}
		return list[0].Token
	}
	w.session("p", 3, func() { w.write(dir, "y") })
	w.drain()
	if n := newest(); n != 2 || w.count(resultFailed) != 1 {
		t.Errorf("the newest is of token %d, and %v attempts failed; want token 2, and one", n, w.count(resultFailed))
	}
	w.leases.change("p", func(r *lease.Record) { r.MoveRequest = nil })
	w.Vacated("p")
	w.drain()
	if n := newest(); n != 3 {
		t.Errorf("then the newest is of token %d, want 3", n)
	}
}
