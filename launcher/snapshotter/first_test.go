package snapshotter

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/internal/test/objectstest"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// made makes the record that of a profile that nobody used yet.
func (w *world) made(profile string) {
	w.leases.change(profile, func(r *lease.Record) { r.Home, r.State = "home", lease.Available })
}

// A profile that was made of something, and that nobody used yet, has a snapshot, under its own
// token.
func TestAProfileThatNobodyUsedHasASnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	w.profile("p", "as imported")
	slot := w.slots.OccupyCold("p") // whoever makes it has it
	w.made("p")
	slot.Vacate()
	w.drain()
	r := w.record("p")
	list, err := w.store.List(t.Context(), "p")
	if err != nil || len(list) != 1 || !r.HasSnapshot() || r.SnapshotID != list[0].ID || list[0].Token != 0 || list[0].SessionID != "" || r.Token != 0 {
		t.Fatalf("%+v, %v; the record names %q of %d", list, err, r.SnapshotID, r.SnapshotToken)
	}
	if floor, kept, err := w.root.Kept("p"); err != nil || floor != 0 || kept.SnapshotID != r.SnapshotID {
		t.Errorf("the home keeps %d, %+v, %v", floor, kept, err)
	}
	if f, err := w.store.Fetch(t.Context(), "p", "", filepath.Join(t.TempDir(), "x"), snapshots.FetchOptions{}); err != nil || f.Token != 0 {
		t.Errorf("%+v, %v", f.Snapshot, err)
	}
	// The first session's goes on from there.
	w.session("p", 1, func() {})
	w.drain()
	if r := w.record("p"); r.SnapshotToken != 1 || !r.HasSnapshot() {
		t.Errorf("after the first session the record names %q of %d", r.SnapshotID, r.SnapshotToken)
	}
}

// An empty directory has nothing to be lost, and is no failure that is told again and again.
func TestAnEmptyProfileHasNoSnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	if _, err := w.root.Create("p"); err != nil {
		t.Fatal(err)
	}
	w.made("p")
	w.Vacated("p")
	w.drain()
	if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) != 0 || w.count(resultFailed) != 0 {
		t.Errorf("%+v, %v, %v failed", list, err, w.count(resultFailed))
	}
	if waited := waiting(w.leases.known(), w.due, time.Now()); waited != 0 {
		t.Errorf("waits since %v", waited)
	}
}

// A session that begins while the first snapshot is made has the profile at once, and the record
// never names what was sealed of before as what is now.
func TestAFirstSessionDoesNotWaitForTheFirstSnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "as imported")
	held, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.objects.set(func() error {
		once.Do(func() { close(reached) })
		<-held
		return nil
	})
	w.made("p")
	w.Vacated("p")
	<-reached
	w.session("p", 1, func() {
		w.write(dir, "of the session")
		close(held)
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // until the first one is sealed
			if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) == 1 || time.Now().After(deadline) {
				break
			}
		}
		if r := w.record("p"); r.SnapshotID != "" {
			t.Errorf("a record that is held names %s", r.SnapshotID)
		}
	})
	w.drain()
	list, err := w.store.List(t.Context(), "p")
	if r := w.record("p"); err != nil || len(list) != 2 || list[1].Token != 0 || r.SnapshotID != list[0].ID || r.SnapshotToken != 1 {
		t.Fatalf("%+v, %v; the record names %s of %d", list, err, r.SnapshotID, r.SnapshotToken)
	}
	for _, s := range list {
		to, want := filepath.Join(t.TempDir(), "x"), map[lease.Token]string{0: "as imported ", 1: "of the session "}[s.Token]
		if _, err := w.store.Fetch(t.Context(), "p", s.ID, to, snapshots.FetchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := objectstest.ReadTree(t, to)["Default/00"]; got != strings.Repeat(want, 3000) {
			t.Errorf("the snapshot of token %d begins with %.20q", s.Token, got)
		}
	}
}
