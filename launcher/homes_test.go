package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// A home that was away while a person gave its profile another one marks its directory as soon as
// it sees that, so that it is never opened again, whatever the store forgets later.
func TestADirectoryThatWasLeftIsMarked(t *testing.T) {
	for _, granted := range []bool{true, false} {
		t.Run(fmt.Sprintf("granted before: %v", granted), func(t *testing.T) { testLeftIsMarked(t, granted) })
	}
}

func testLeftIsMarked(t *testing.T, granted bool) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	if granted {
		s, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "t"})
		mustIn(t)(err)
		r.end(s)
	}
	e, err := lease.ChangeExisting(t.Context(), r.o.Store, "p", func(e lease.Entry) (lease.Record, error) {
		return e.Record.Move(lease.MoveRequest{To: "elsewhere", Move: lease.Move{ID: "m", Person: "ann", Directory: lease.DirectoryEmpty}}, e.Record.Token, time.Now())
	})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var left *profiledir.DepartedError
	for !errors.As(r.o.Root.MayOpen("p"), &left) {
		mustIn(t)(context.Cause(ctx))
		time.Sleep(time.Millisecond)
	}
	if left.Home != "elsewhere" || left.Token != e.Record.HomeToken || left.Pending {
		t.Errorf("%+v", left)
	}
}

// A directory that may lack something of the account goes to a person: its home does not give the profile up
// before, since that doubt would stay behind with the directory.
func TestAProfileInDoubtIsNotGivenUp(t *testing.T) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustIn(t)(r.snapshotter.Drain(ctx))
	slot := r.host.Slots.OccupyCold("p") // nobody looks at it before both are there
	lock, err := r.o.Root.Lock("p")
	mustIn(t)(err)
	mustIn(t)(errors.Join(lock.DisbelieveDirectory("a cookie is not on the disk"), lock.Unlock()))
	_, err = lease.ChangeExisting(ctx, r.o.Store, "p", func(e lease.Entry) (lease.Record, error) {
		return e.Record.Ask(lease.MoveRequest{To: "elsewhere", Move: lease.Move{ID: "m", Person: "ann", Directory: lease.DirectoryEmpty}}, e.Record.Token)
	})
	mustIn(t)(err)
	slot.Vacate()
	for {
		e, err := r.o.Store.Get(ctx, "p")
		mustIn(t)(err)
		if e.Record.Home != "here" {
			t.Fatalf("it went to %s: %+v", e.Record.Home, e.Record)
		}
		if e.Record.State == lease.ManualReview {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, left, err := r.o.Root.Departed("p"); left || err != nil {
		t.Errorf("its directory is marked as left: %v, %v", left, err)
	}
}

// A home that may be there is asked for its profile, which stays with it unless it says yes.
func TestAHomeThatIsThereIsAsked(t *testing.T) {
	r := startReading(t, 2, nil)
	s := r.snapshot("156.0.8078.79", 7, nil)
	for _, says := range []string{"no", "yes"} {
		before := r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = s.ID, 7 })
		type answer struct {
			api.Profile
			error
		}
		moves := make(chan answer, 1)
		go func() {
			moved, err := r.MoveProfile(t.Context(), "acct", api.ProfileMove{Write: api.Write{Token: before.Token}, Person: "ann"})
			moves <- answer{moved, err}
		}()
		for asked := false; !asked; time.Sleep(time.Millisecond) {
			e, err := r.o.Store.Get(t.Context(), "acct")
			mustIn(t)(err)
			if e.Record.Home != "elsewhere" {
				t.Fatalf("%s: it has another home, and its home was not asked", says)
			}
			asked = e.Record.MoveRequest != nil
		}
		_, err := lease.ChangeExisting(t.Context(), r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) {
			if says == "yes" {
				return e.Record.GiveUp(time.Now())
			}
			kept, _ := e.Record.Withdraw(e.Record.MoveRequest.Move.ID)
			return kept, nil
		})
		mustIn(t)(err)
		got := <-moves
		e, err := r.o.Store.Get(t.Context(), "acct")
		mustIn(t)(err)
		_, here := r.o.Root.Path("acct")
		if _, arriving, err := r.o.Root.Arriving("acct"); err != nil || arriving {
			t.Errorf("%s: a directory is still on its way, %v", says, err)
		}
		switch {
		case says == "yes" && (got.error != nil || e.Record.Home != "here" || e.Record.Token != 8 || here != nil):
			t.Errorf("given up: %v, token %d at %s, %v", got.error, e.Record.Token, e.Record.Home, here)
		case says == "no" && (codeOf(got.error) != api.CodeConflict || e.Record.Home != "elsewhere" || e.Record.Token != 7 || here == nil || len(r.left()) > 0):
			t.Errorf("kept: %v, token %d at %s, left %q", got.error, e.Record.Token, e.Record.Home, r.left())
		}
	}
}

// A move that is asked for right after a session check goes with the snapshot that its home makes then.
func TestAMoveWaitsForTheSnapshotAfterACheck(t *testing.T) {
	r := startReading(t, 2, nil)
	s := r.snapshot("156.0.8078.79", 7, nil)
	before := r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.Opened = "snap_before", 7, 1 })
	looks, enough := make(chan struct{}), make(chan struct{})
	r.leases.set(hooks{get: func(string) {
		select {
		case looks <- struct{}{}:
		case <-enough:
		}
	}})
	moves := make(chan error, 1)
	go func() {
		_, err := r.MoveProfile(t.Context(), "acct", api.ProfileMove{Write: api.Write{Token: before.Token}, Person: "ann"})
		moves <- err
	}()
	stop := sync.OnceFunc(func() { close(enough) })
	defer stop()
	for n := range 20 {
		select {
		case <-looks:
		case err := <-moves:
			t.Fatalf("after %d looks: %v", n, err)
		case <-time.After(time.Minute):
			t.Fatal("nobody looks for the snapshot")
		}
	}
	stop()
	_, err := lease.ChangeExisting(t.Context(), r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) {
		return e.Record.Snapshotted(s.ID, 7, 1)
	})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		e, err := r.o.Store.Get(ctx, "acct")
		mustIn(t)(err)
		asked = e.Record.MoveRequest != nil
	}
	_, err = lease.ChangeExisting(ctx, r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) { return e.Record.GiveUp(time.Now()) })
	mustIn(t)(err)
	if err := <-moves; err != nil {
		t.Error(err)
	}
	if e, err := r.o.Store.Get(t.Context(), "acct"); err != nil || e.Record.Home != "here" || e.Record.Moved.SnapshotID != s.ID {
		t.Errorf("%+v, %v", e.Record, err)
	}
}

// A directory that was prepared for a move of which it is not known whether it was stored stays until that
// is known: the home may follow the request, and leaves its own directory for good. Whoever asks again
// meanwhile is told so.
func TestASecondMoveKeepsWhatTheFirstOnePrepared(t *testing.T) {
	r := startReading(t, 2, nil)
	s := r.snapshot("156.0.8078.79", 7, nil)
	before := r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = s.ID, 7 })
	var home atomic.Bool // only it reaches the store for writes
	r.leases.set(hooks{
		swap: func(next lease.Record) error {
			if next.MoveRequest == nil && !home.Load() {
				return lease.ErrUnavailable
			}
			return nil
		},
		swapped: func(next lease.Record) error {
			if next.MoveRequest != nil {
				return lease.ErrUnavailable // it was stored, and nobody is told
			}
			return nil
		},
	})
	move := func() error {
		_, err := r.MoveProfile(t.Context(), "acct", api.ProfileMove{Write: api.Write{Token: before.Token}, Person: "ann"})
		return err
	}
	if err := move(); codeOf(err) != api.CodeStoreUnavailable {
		t.Fatalf("a move of which nobody knows whether it was stored: %v", err)
	}
	first, arriving, err := r.o.Root.Arriving("acct")
	mustIn(t)(err)
	if !arriving {
		t.Fatal("the directory that was prepared for it is gone")
	}
	for range 2 { // the launcher may be about to find out, and then it is busy with the profile
		if err := move(); codeOf(err) != api.CodeConflict {
			t.Errorf("a second move: %v", err)
		}
	}
	if now, arriving, err := r.o.Root.Arriving("acct"); err != nil || !arriving || now.MoveID != first.MoveID {
		t.Errorf("on its way is %q, %v, %v, and the first move is %q", now.MoveID, arriving, err, first.MoveID)
	}
	home.Store(true)
	_, err = lease.ChangeExisting(t.Context(), r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) { return e.Record.GiveUp(time.Now()) })
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, missing := r.o.Root.Path("acct"); missing != nil; _, missing = r.o.Root.Path("acct") {
		mustIn(t)(context.Cause(ctx))
		time.Sleep(time.Millisecond)
	}
}

// What cannot be fetched does not move: the profile stays where it was, its home is not asked, and
// nothing half is left here.
func TestWhatCannotBeFetchedStays(t *testing.T) {
	r := startReading(t, 2, nil)
	s := r.sealed(7, "it")
	before := r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = s.ID, 7 })
	damage(t, filepath.Join(r.dir, "store"))
	_, err := r.MoveProfile(t.Context(), "acct", api.ProfileMove{Write: api.Write{Token: before.Token}, Person: "ann"})
	if codeOf(err) != api.CodeSnapshotDamaged {
		t.Errorf("a move of a damaged snapshot: %v", err)
	}
	after, err := r.o.Store.Get(t.Context(), "acct")
	if err != nil || after.Record.Home != "elsewhere" || after.Record.Nonce != before.Nonce {
		t.Errorf("its record was written: %+v, %v", after.Record, err)
	}
	_, arriving, err := r.o.Root.Arriving("acct")
	staged, globErr := filepath.Glob(filepath.Join(r.dir, "profiles", ".leasehold", ".arrival*"))
	if err := errors.Join(err, globErr); err != nil || arriving || len(staged)+len(r.left()) > 0 {
		t.Errorf("left %v, %v, on its way %v, %v", staged, r.left(), arriving, err)
	}
}

// TestAHomeThatHasAPlaceKeepsItsProfile from a task that asked for it while it had none, or was
// away. A person has it moved all the same.
func TestAHomeThatHasAPlaceKeepsItsProfile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		places int // of which one is taken
		person string
		home   string
	}{
		{"it has a place", 2, "", "here"},
		{"it has none", 1, "", "elsewhere"},
		{"a person asks", 2, "ann", "elsewhere"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startReading(t, tt.places, nil)
			free := lease.MobilityFree
			_, err := r.PutProfile(t.Context(), "acct", api.ProfileSettings{Mobility: &free})
			mustIn(t)(err)
			_, err = r.Acquire(t.Context(), api.Manifest{ProfileID: "other", WorkerID: "w", TaskID: "t", Create: true})
			mustIn(t)(err)
			asked, err := lease.ChangeExisting(t.Context(), r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) {
				rec := e.Record
				rec.SnapshotID, rec.SnapshotToken = "snap_1", rec.Token
				return rec.Ask(lease.MoveRequest{To: "elsewhere", Move: lease.Move{ID: "mv_1", Person: tt.person, Directory: lease.DirectorySnapshot, SnapshotID: "snap_1", SnapshotToken: rec.Token}}, rec.Token)
			})
			mustIn(t)(err)
			for now := asked.Record; now.Home == "here" && now.MoveRequest != nil; time.Sleep(time.Millisecond) {
				e, err := r.o.Store.Get(t.Context(), "acct")
				mustIn(t)(err)
				now = e.Record
				asked = e
			}
			if asked.Record.Home != tt.home {
				t.Errorf("its home is %s, want %s", asked.Record.Home, tt.home)
			}
		})
	}
}

// A launcher that was killed after a move was stored, and before its directory was in its place,
// puts it there; that of a move which never came to be is removed.
func TestADirectoryThatWasPreparedComesIntoItsPlace(t *testing.T) {
	for move, comes := range map[string]bool{"stored": true, "another": false} {
		r := startReading(t, 2, nil)
		r.profile(func(*lease.Record) {})
		write := func(change func(lease.Record) (lease.Record, error)) lease.Record {
			t.Helper()
			e, err := lease.ChangeExisting(t.Context(), r.o.Store, "acct", func(e lease.Entry) (lease.Record, error) { return change(e.Record) })
			mustIn(t)(err)
			return e.Record
		}
		moved := write(func(rec lease.Record) (lease.Record, error) {
			return rec.Move(lease.MoveRequest{To: "here", Move: lease.Move{ID: "stored", Person: "ann", Directory: lease.DirectoryCopied}}, rec.Token, time.Now())
		})
		lock, err := r.o.Root.Lock("acct")
		mustIn(t)(err)
		mustIn(t)(lock.PrepareArrival(t.Context(), profiledir.Arrival{MoveID: move, At: time.Now()}, func(_ context.Context, dir string) (map[string][]byte, error) {
			return nil, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "says"), []byte("it"), 0o600))
		}))
		mustIn(t)(lock.Unlock())
		write(func(rec lease.Record) (lease.Record, error) { return rec.Clone(), nil }) // it is looked at
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for arriving := true; arriving; time.Sleep(time.Millisecond) {
			mustIn(t)(context.Cause(ctx))
			_, arriving, err = r.o.Root.Arriving("acct")
			mustIn(t)(err)
		}
		says, err := os.ReadFile(filepath.Join(r.o.Root.Dir(), "acct", "says"))
		floor, floorErr := r.o.Root.Floor("acct")
		if comes && (err != nil || string(says) != "it" || floor != moved.Token || floorErr != nil) {
			t.Errorf("it says %q, %v, and the floor is %d, %v", says, err, floor, floorErr)
		}
		if !comes && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of a move that was not stored says %q, %v", says, err)
		}
	}
}
