package snapshotter

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/objects"
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

// small are objects on a disk with room for so many pieces of snapshots; zero: for any number.
type small struct {
	objects.Objects
	mu     sync.Mutex
	pieces map[string]bool
	room   int
}

func (o *small) Put(ctx context.Context, key string, content []byte, version string) error {
	o.mu.Lock()
	fits := !strings.Contains(key, "/chunks/") || o.pieces[key] || o.room == 0 || len(o.pieces) < o.room
	if fits && strings.Contains(key, "/chunks/") {
		o.pieces[key] = true
	}
	o.mu.Unlock()
	if !fits {
		return &fs.PathError{Op: "write", Path: key, Err: unix.ENOSPC}
	}
	return o.Objects.Put(ctx, key, content, version)
}

func (o *small) Delete(ctx context.Context, key string) error {
	err := o.Objects.Delete(ctx, key)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pieces, key)
	return err
}

// leave sets for how many more pieces there is room, and returns how many there are.
func (o *small) leave(room int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room > 0 {
		o.room = len(o.pieces) + room
	}
	return len(o.pieces)
}

// TestAFullDiskKeepsNoRoomFromTheNextSnapshot: what an attempt has sent, for which there was no room, leaves, and
// so do old snapshots, for which the next attempt has room then.
func TestAFullDiskKeepsNoRoomFromTheNextSnapshot(t *testing.T) {
	inAYear := func(context.Context) (time.Time, error) { return time.Now().AddDate(1, 0, 0), nil }
	for name, tt := range map[string]struct {
		keepFor time.Duration
		made    bool
	}{"all snapshots stay": {0, false}, "one is too old": {24 * time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Now: inAYear})
			dir := w.profile("p", "x")
			store := &small{Objects: w.objects.Objects, pieces: map[string]bool{}}
			w.objects.Objects = store
			const own = 20 // files of each session
			use := func(token lease.Token) {
				w.session("p", token, func() {
					tree := objectstest.Tree{}
					for n := range own {
						tree[fmt.Sprintf("Default/own %d", n)] = fmt.Sprint(n, " of ", token)
					}
					tree.WriteTo(t, dir)
				})
				w.drain()
			}
			use(1)
			use(2)
			before := store.leave(own / 2)
			w.o.Retention.KeepFor = tt.keepFor
			use(3)
			if left := store.leave(0); left > before || w.count(resultFailed) != 1 {
				t.Errorf("%d pieces, and %d before; %v attempts failed, want one", left, before, w.count(resultFailed))
			}
			w.Vacated("p")
			w.drain()
			if w.record("p").HasSnapshot() != tt.made {
				t.Errorf("another attempt: the record names a snapshot: %v, want %v", !tt.made, tt.made)
			}
			if found, err := w.store.Verify(t.Context(), "p", ""); err != nil || !found.Whole() {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// TestAFullDiskOfThisHostHoldsNoOldSnapshot: it may be the store's, too.
func TestAFullDiskOfThisHostHoldsNoOldSnapshot(t *testing.T) {
	w := newWorld(t, Options{KeepFree: 1 << 62, Retention: snapshots.Retention{Keep: 1}})
	dir := w.profile("p", "x")
	for token := range lease.Token(3) {
		if _, err := objectstest.Seal(t, w.store, "p", dir, token+1); err != nil {
			t.Fatal(err)
		}
	}
	w.session("p", 4, func() {})
	w.drain()
	if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) != 1 || list[0].Token != 3 || w.count(resultFailed) != 1 {
		t.Errorf("%+v, %v; %v attempts failed", list, err, w.count(resultFailed))
	}
}
