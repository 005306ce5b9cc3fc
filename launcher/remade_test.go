package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// startImporting starts a launcher that may import, and returns its store.
func startImporting(t *testing.T) (*reading, *natskv.Store) {
	t.Helper()
	var store *natskv.Store
	r := startReading(t, 2, func(o *Options) { o.ImportRoots, store = []string{os.TempDir()}, o.Store.(*natskv.Store) })
	return r, store
}

// published are the events of a profile's transitions on the stream, once all are there.
func published(t *testing.T, store *natskv.Store, profile string) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustIn(t)(store.Flush(ctx))
	events, err := store.History(ctx, profile)
	mustIn(t)(err)
	for _, e := range events {
		if e.Sequence != 0 {
			names = append(names, fmt.Sprintf("%s/%d/%d", e.Event, e.Token, e.Sequence))
		}
	}
	return names
}

// A profile that was put aside is had nowhere else from its snapshot, nor read there, also where a
// snapshot of it was on its way.
func TestAProfileThatWasPutAsideIsHadNowhere(t *testing.T) {
	r, _ := startImporting(t)
	free := lease.MobilityFree
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{Mobility: &free})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustIn(t)(r.snapshotter.Drain(ctx))
	e, err := r.o.Store.Get(ctx, "p")
	mustIn(t)(err)
	if err := e.Record.MayMove(); err != nil {
		t.Fatalf("before: %v", err)
	}
	snapshot := e.Record
	_, err = r.ArchiveProfile(ctx, "p", api.ProfileArchive{})
	mustIn(t)(err)
	aside := func(when string) {
		t.Helper()
		e, err := r.o.Store.Get(ctx, "p")
		mustIn(t)(err)
		_, kept, err := r.o.Root.Kept("p")
		mustIn(t)(err)
		if err := e.Record.MayMove(); err == nil || e.Record.SnapshotID != "" || kept.SnapshotID != "" || e.Record.Token != snapshot.Token {
			t.Errorf("%s: %+v, the home's copy %+v, %v", when, e.Record, kept, err)
		}
	}
	aside("put aside")
	r.snapshotter.Vacated("p")
	mustIn(t)(r.snapshotter.Drain(ctx))
	aside("looked at again")

	// Where the store did not answer then, it is done again.
	_, err = lease.Change(ctx, r.o.Store, "p", func(e lease.Entry) (lease.Record, error) {
		return e.Record.Snapshotted(snapshot.SnapshotID, snapshot.Token, snapshot.Opened)
	})
	mustIn(t)(err)
	var refused *api.Problem
	if _, err := r.ArchiveProfile(ctx, "p", api.ProfileArchive{}); !errors.As(err, &refused) || refused.Code != api.CodeUnknownProfile {
		t.Errorf("put aside again: %v", err)
	}
	aside("put aside again")
}

// A launcher that is killed while it puts a profile aside leaves no record that names a snapshot of what is
// gone: the record is written first, and where that fails nothing is done.
func TestTheSnapshotIsForgottenBeforeTheDirectoryGoes(t *testing.T) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	_, err = r.CloneProfile(t.Context(), "p", api.ProfileClone{To: "q"})
	mustIn(t)(err)
	for profile, aside := range map[string]func() error{
		"p": func() error { _, err := r.ArchiveProfile(t.Context(), "p", api.ProfileArchive{}); return err },
		"q": func() error { _, err := r.RemoveClone(t.Context(), "q", api.ProfileRemove{}); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustIn(t)(r.snapshotter.Drain(ctx))
		e, err := r.o.Store.Get(ctx, profile)
		mustIn(t)(err)
		if !e.Record.HasSnapshot() {
			t.Fatalf("%s has no snapshot: %+v", profile, e.Record)
		}
		r.leases.set(hooks{swap: func(next lease.Record) error {
			if next.SnapshotID == "" {
				return lease.ErrUnavailable
			}
			return nil
		}})
		if err := aside(); codeOf(err) != api.CodeStoreUnavailable {
			t.Errorf("%s: %v, want a refusal, since the store is away", profile, err)
		}
		if _, err := r.o.Root.Path(profile); err != nil {
			t.Errorf("%s: its record names a snapshot, and its directory is gone: %v", profile, err)
		}
		there := false
		mustIn(t)(r.snapshotter.Drain(ctx))
		first := sync.OnceFunc(func() {
			_, err := r.o.Root.Path(profile)
			there = err == nil
		})
		r.leases.set(hooks{swap: func(next lease.Record) error {
			if next.SnapshotID == "" {
				first()
			}
			return nil
		}})
		if err := aside(); err != nil || !there {
			t.Errorf("%s: %v, and its directory was there when its record was written: %v", profile, err, there)
		}
		r.leases.set(hooks{})
		if e, err := r.o.Store.Get(ctx, profile); err != nil || e.Record.SnapshotID != "" {
			t.Errorf("%s: the record names %q, %v", profile, e.Record.SnapshotID, err)
		}
	}
}

// Whoever follows the events of a profile learns of each raise of its token, also where another
// directory comes into the place of one that was put aside or removed.
func TestAnotherDirectoryIsTold(t *testing.T) {
	r, stream := startImporting(t)
	told := func(profile string, want ...string) lease.Record {
		t.Helper()
		if got := published(t, stream, profile); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", profile, got, want)
		}
		e, err := r.o.Store.Get(t.Context(), profile)
		mustIn(t)(err)
		if floor, err := r.o.Root.Floor(profile); err != nil || floor != e.Record.Token {
			t.Errorf("%s: token %d and floor %d, %v", profile, e.Record.Token, floor, err)
		}
		return e.Record
	}
	imports := func() {
		t.Helper()
		_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
		mustIn(t)(err)
	}
	archives := func() {
		t.Helper()
		_, err := r.ArchiveProfile(t.Context(), "p", api.ProfileArchive{})
		mustIn(t)(err)
	}
	imports()
	told("p")
	archives()
	imports() // nobody used the one before, and its snapshot may be on its way
	told("p", "remade/1/1")
	drained := func() { // a snapshot has the profile for a moment when it is done
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustIn(t)(r.snapshotter.Drain(ctx))
	}
	drained()
	s, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "t"})
	mustIn(t)(err)
	r.end(s)
	drained()
	archives()
	imports()
	now := told("p", "remade/1/1", "granted/2/2", "released/2/3", "remade/3/4")
	if now.State != lease.Available || now.Reason != lease.ReasonRemade || !now.AtRest() {
		t.Errorf("%+v", now)
	}

	// A clone that was removed, and that is set up again as an empty profile.
	drained()
	_, err = r.CloneProfile(t.Context(), "p", api.ProfileClone{To: "q"})
	mustIn(t)(err)
	drained()
	if clone := told("q"); !clone.HasSnapshot() {
		t.Fatalf("the clone has no snapshot: %+v", clone)
	}
	_, err = r.RemoveClone(t.Context(), "q", api.ProfileRemove{})
	mustIn(t)(err)
	account := "ann"
	put, err := r.PutProfile(t.Context(), "q", api.ProfileSettings{AccountID: &account})
	if err != nil || put.Token != 1 || put.HasSnapshot() || put.AccountID != account {
		t.Errorf("%+v, %v", put, err)
	}
	told("q", "remade/1/1")
	if again, err := r.PutProfile(t.Context(), "q", api.ProfileSettings{}); err != nil || again.Token != 1 {
		t.Errorf("settings of a profile that has its directory: %+v, %v", again, err)
	}
	content, err := r.store.Read(t.Context(), "q", closedInOrder(t, "removed"), snapshots.ReadOptions{Spool: t.TempDir()})
	mustIn(t)(err)
	var stale *snapshots.StaleTokenError
	if _, err := r.store.Seal(t.Context(), content, snapshots.About{LauncherID: "here", CreatedAt: time.Now()}); !errors.As(err, &stale) {
		t.Errorf("a late seal of the clone that was removed: %v", err)
	}
}

// A making that is cut short again and again leaves a floor that the record explains: else a person
// would have to find out who put an old one in its place.
func TestAMakingThatIsCutShortLeavesTheFloorBehindByOne(t *testing.T) {
	r, stream := startImporting(t)
	unanswered := errors.New("killed here")
	from := closedInOrder(t, "it")
	for token := range lease.Token(4) {
		r.leases.set(hooks{swapped: func(next lease.Record) error {
			if next.ProfileID != "p" {
				return nil
			}
			return unanswered
		}})
		if _, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: from}); !errors.Is(err, unanswered) {
			t.Fatalf("error %v, want %v", err, unanswered)
		}
		r.leases.set(hooks{})
		e, err := r.leases.Get(t.Context(), "p")
		mustIn(t)(err)
		floor, kept, err := r.o.Root.Kept("p")
		if err != nil || e.Record.Token != token || !e.Record.ExplainsFloor(floor, kept) {
			t.Errorf("token %d, want %d, and floor %d, %v", e.Record.Token, token, floor, err)
		}
	}
	if made, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: from}); err != nil || made.Token != 4 || made.State != lease.Available {
		t.Errorf("%+v, %v", made, err)
	}
	if got, want := published(t, stream, "p"), []string{"remade/1/1", "remade/2/2", "remade/3/3", "remade/4/4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The decision that a task may resume was about the directory that it left. Where that is gone,
// nothing comes into its place unless a person says so.
func TestATaskResumesInItsOwnDirectoryOnly(t *testing.T) {
	r, _ := startImporting(t)
	waiting := lease.Record{ProfileID: "acct", State: lease.ResumePending, Home: "here", Token: 1, SessionID: "ses_lost", TaskID: "t", OwnerWorkerID: "w", ResumeFrom: "pay"}
	waiting.MaxActiveRuns = 1
	lock, err := r.o.Root.Lock("acct")
	mustIn(t)(err)
	mustIn(t)(errors.Join(lock.RaiseFloor(waiting), lock.Unlock()))
	r.profile(func(rec *lease.Record) { *rec = waiting })
	_, err = r.ImportProfile(t.Context(), "other", api.ProfileImport{From: closedInOrder(t, "other")})
	mustIn(t)(err)
	for name, ask := range map[string]func() error{
		"import": func() error {
			_, err := r.ImportProfile(t.Context(), "acct", api.ProfileImport{From: closedInOrder(t, "it")})
			return err
		},
		"clone": func() error {
			_, err := r.CloneProfile(t.Context(), "other", api.ProfileClone{To: "acct"})
			return err
		},
		"settings": func() error { _, err := r.PutProfile(t.Context(), "acct", api.ProfileSettings{}); return err },
		"the task itself": func() error {
			_, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "acct", WorkerID: "w", TaskID: "t", Create: true})
			return err
		},
	} {
		if err := ask(); codeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "rehome acct") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.o.Root.Path("acct"); err == nil {
			t.Errorf("%s: there is a directory", name)
		}
		if e, err := r.o.Store.Get(t.Context(), "acct"); err != nil || e.Record.State != lease.ResumePending || e.Record.Token != 1 {
			t.Errorf("%s: %s, token %d, %v", name, e.Record.State, e.Record.Token, err)
		}
	}
	person := api.ProfileRehome{Write: api.Write{Token: 1}, Empty: true, AcceptLoss: true, Person: "ann", Note: "the disk died"}
	if now, err := r.RehomeProfile(t.Context(), "acct", person); err != nil || now.State != lease.ManualReview || now.Token != 2 {
		t.Errorf("%s, token %d, %v", now.State, now.Token, err)
	}
}

// Two who set up a profile at the same time both get it: whoever comes second finds its directory.
func TestAProfileIsSetUpTwiceAtATime(t *testing.T) {
	r, stream := startImporting(t)
	if _, err := r.profiles.PutRecord(t.Context(), "p", api.ProfileSettings{}, false); err != nil {
		t.Fatal(err)
	}
	account := "ann"
	var looks atomic.Int32
	r.leases.set(hooks{get: func(profile string) {
		if profile == "p" && looks.Add(1) == 2 { // the first one goes on
			_, err := r.o.Root.Create("p")
			mustIn(t)(err)
		}
	}})
	if put, err := r.PutProfile(t.Context(), "p", api.ProfileSettings{AccountID: &account}); err != nil || put.Token != 0 || put.AccountID != account {
		t.Errorf("token %d, account %s, %v", put.Token, put.AccountID, err)
	}
	if told := published(t, stream, "p"); len(told) > 0 {
		t.Errorf("%q", told)
	}
}
