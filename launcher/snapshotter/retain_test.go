package snapshotter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Old snapshots leave, and the one that the record names stays.
func TestOldSnapshotsLeave(t *testing.T) {
	w := newWorld(t, Options{Retention: snapshots.Retention{Keep: 2}})
	dir := w.profile("p", "x")
	for token := range lease.Token(5) {
		w.session("p", token+1, func() { w.write(dir, fmt.Sprint("of ", token)) })
		w.drain()
	}
	list, err := w.store.List(t.Context(), "p")
	if err != nil || len(list) < 2 || len(list) > 3 || list[0].Token != 5 {
		t.Errorf("%+v, %v", list, err)
	}
	if found, err := w.store.Verify(t.Context(), "p", ""); err != nil || !found.Whole() {
		t.Errorf("%+v, %v", found, err)
	}
}

// Many snapshots after browsers without a session push out none of earlier sessions: the newest after a
// session takes the place of the others, but for the one that the record named before.
func TestChecksPushOutNoSession(t *testing.T) {
	w := newWorld(t, Options{Retention: snapshots.Retention{Keep: 3}})
	dir := w.profile("p", "x")
	checked := map[lease.Token]string{}
	for token := range lease.Token(5) {
		w.session("p", token+1, func() { w.write(dir, fmt.Sprint("of ", token)) })
		w.drain()
		for n := range 3 {
			w.opened("p", func() { w.write(dir, fmt.Sprint("of ", token, ", rotated ", n)) })
			w.drain()
			checked[token+1] = w.record("p").SnapshotID
		}
	}
	list, err := w.store.List(t.Context(), "p")
	want := []string{"5 true", "5 false", "4 true", "3 true"}
	var got []string
	for _, s := range list {
		got = append(got, fmt.Sprint(s.Token, " ", s.ID == checked[s.Token]))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if found, err := w.store.Verify(t.Context(), "p", ""); err != nil || !found.Whole() {
		t.Errorf("%+v, %v", found, err)
	}
}

// Where the host's clock is not believed, no snapshot leaves for its age.
func TestNothingLeavesOnTheWordOfOneClock(t *testing.T) {
	for name, tt := range map[string]struct {
		wrong error
		left  int
	}{"believed": {nil, 2}, "not believed": {&lease.ClockError{}, 4}} { // the newest, and the one that the record named before
		w := newWorld(t, Options{
			Retention: snapshots.Retention{KeepFor: 24 * time.Hour},
			Now:       func(context.Context) (time.Time, error) { return time.Now().AddDate(1, 0, 0), tt.wrong },
		})
		dir := w.profile("p", "x")
		for token := range lease.Token(4) {
			w.session("p", token+1, func() { w.write(dir, fmt.Sprint("of ", token)) })
			w.drain()
		}
		if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) > tt.left || tt.wrong != nil && len(list) != tt.left {
			t.Errorf("%s: %d snapshots are left, want %d: %v", name, len(list), tt.left, err)
		}
	}
}

// A profile that was archived gets no other snapshot, and its old ones leave all the same, but for the newest. While a
// person decides, and where another launcher is the home, all stay.
func TestOldSnapshotsLeaveWhereNoOtherFollows(t *testing.T) {
	w := newWorld(t, Options{Now: func(context.Context) (time.Time, error) { return time.Now().AddDate(1, 0, 0), nil }})
	changes := map[string]func(*lease.Record){
		"archived": func(r *lease.Record) { r.Token, r.SnapshotID, r.SnapshotToken = 4, "", 0 },
		"reviewed": func(r *lease.Record) { r.State = lease.ManualReview },
		"moved":    func(r *lease.Record) { r.Home = "other" },
	}
	for profile, change := range changes {
		dir := w.profile(profile, "x")
		for token := range lease.Token(3) {
			w.session(profile, token+1, func() { w.write(dir, fmt.Sprint("of ", token)) })
			w.drain()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		w.leases.change(profile, change)
	}
	w.o.Retention.KeepFor = 24 * time.Hour
	w.age()
	w.drain()
	for profile := range changes {
		left := map[bool]int{true: 1, false: 3}[profile == "archived"]
		if list, err := w.store.List(t.Context(), profile); err != nil || len(list) != left || list[0].Token != 3 {
			t.Errorf("%s: %+v, %v, want %d snapshots", profile, list, err, left)
		}
		if found, err := w.store.Verify(t.Context(), profile, ""); err != nil || !found.Whole() {
			t.Errorf("%s: %+v, %v", profile, found, err)
		}
	}
}

// What an attempt left that failed leaves the store with the next snapshot, also where all
// snapshots stay.
func TestWhatFailedAttemptsLeaveIsCollected(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "x")
	used := func(token lease.Token) int {
		t.Helper()
		w.session("p", token, func() { w.write(dir, fmt.Sprint("of ", token)) })
		w.drain()
		keys, err := w.objects.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	before := used(1)
	var puts atomic.Int32
	w.objects.set(func() error {
		if puts.Add(1) == 1 {
			return nil
		}
		// Several are stored at a time, and the first failure ends the others.
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if keys, err := w.objects.List(t.Context(), ""); err == nil && len(keys) > before {
				break
			}
		}
		return errors.New("the store is away")
	})
	if left := used(2); left <= before || w.count(resultFailed) != 1 {
		t.Fatalf("%d objects, and %d before: the attempt left nothing, and the test tests nothing", left, before)
	}
	w.objects.set(nil)
	after := used(3)
	if err := w.store.Collect(t.Context(), "p", 3); err != nil {
		t.Fatal(err)
	}
	if keys, err := w.objects.List(t.Context(), ""); err != nil || len(keys) != after || !w.record("p").HasSnapshot() {
		t.Errorf("%d of %d objects belong to a snapshot, %v", len(keys), after, err)
	}
}

// What the profile's move was made of stays, and what a person, or a launcher that asks for the
// profile, may be about to name.
func TestSnapshotsThatAreNamedStay(t *testing.T) {
	w := newWorld(t, Options{Retention: snapshots.Retention{Keep: 1}})
	dir := w.profile("p", "x")
	used := func(token lease.Token) snapshots.Snapshot {
		t.Helper()
		w.session("p", token, func() { w.write(dir, fmt.Sprint("of ", token)) })
		w.drain()
		list, err := w.store.List(t.Context(), "p")
		if err != nil || len(list) == 0 || list[0].Token != token {
			t.Fatalf("after token %d: %+v, %v", token, list, err)
		}
		return list[0]
	}
	moved := used(1)
	w.leases.change("p", func(r *lease.Record) { r.Moved = &lease.Move{ID: "mv_1", SnapshotID: moved.ID, SnapshotToken: 1} })
	used(2)
	old := used(3)
	used(4)
	for n, change := range []func(*lease.Record){
		func(r *lease.Record) { r.State = lease.ManualReview },
		func(r *lease.Record) { r.State = lease.Quarantined },
		func(r *lease.Record) { r.State, r.MoveRequest = lease.Available, &lease.MoveRequest{To: "other"} },
	} {
		w.leases.change("p", change)
		if err := w.retain(t.Context(), lease.Record{}, snapshots.Snapshot{ProfileID: "p", Token: 4}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Fetch(t.Context(), "p", old.ID, filepath.Join(t.TempDir(), "x"), snapshots.FetchOptions{}); err != nil {
			t.Errorf("case %d: one that may be wanted: %v", n, err)
		}
	}
	w.leases.change("p", func(r *lease.Record) { r.MoveRequest = nil })
	used(5)
	used(6)
	list, err := w.store.List(t.Context(), "p")
	if err != nil || len(list) != 3 || list[0].Token != 6 || list[1].Token != 5 || list[2].ID != moved.ID {
		t.Errorf("%+v, %v, want those of token 6 and 5, and the one that the move names", list, err)
	}
}
