package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/internal/objects"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// sealed is a snapshot of acct whose directory says what it is, with a session cookie.
func (r *reading) sealed(token lease.Token, says string) snapshots.Snapshot {
	r.t.Helper()
	from := userDataDir(r.t)
	mustIn(r.t)(os.WriteFile(filepath.Join(from, "says"), []byte(says), 0o600))
	content, err := r.store.Read(r.t.Context(), "acct", from, snapshots.ReadOptions{Spool: r.t.TempDir()})
	mustIn(r.t)(err)
	made, err := r.store.Seal(r.t.Context(), content, snapshots.About{
		Token: token, LauncherID: "elsewhere", ChromeVersion: "156.0.8078.79", CreatedAt: time.Now(),
		Extras: map[string][]byte{"session-cookies": []byte(`[{"name":"sid","value":"` + says + `","domain":"shop.example","path":"/"}]`)},
	})
	mustIn(r.t)(err)
	return made
}

func (r *reading) clone(snapshotID string) (api.Profile, error) {
	return r.CloneProfile(byOperator(r.t.Context()), "acct", api.ProfileClone{To: "try", SnapshotID: snapshotID})
}

// notMade says that there is nothing of the clone here.
func (r *reading) notMade(why string) {
	r.t.Helper()
	if _, err := r.o.Store.Get(r.t.Context(), "try"); !errors.Is(err, lease.ErrNotFound) {
		r.t.Errorf("%s: there is a record (%v)", why, err)
	}
	staged, err := filepath.Glob(filepath.Join(r.dir, "profiles", ".leasehold", ".*"))
	if left := r.left(); err != nil || len(left) > 0 || len(staged) > 0 {
		r.t.Errorf("%s: left %v, %v, %v", why, left, staged, err)
	}
}

// A clone of a snapshot is made at any launcher, whoever has the profile: it is a profile of its
// own, and the one that was cloned is as it was.
func TestACloneIsMadeOfASnapshot(t *testing.T) {
	r := startReading(t, 2, nil)
	older, newer := r.sealed(6, "older"), r.sealed(7, "newer")
	r.profile(func(rec *lease.Record) {
		rec.State, rec.LauncherID, rec.SessionID, rec.OwnerWorkerID, rec.TaskID, rec.Token = lease.Held, "elsewhere", "ses_there", "w", "t", 8
		rec.SnapshotID, rec.SnapshotToken, rec.AccountID, rec.SensitiveWords, rec.Labels = newer.ID, 7, "ann", []string{"pay"}, lease.Labels{"a": "b"}
	})
	before, err := r.o.Store.Get(t.Context(), "acct")
	mustIn(t)(err)
	for named, want := range map[string]string{api.NewestSnapshot: "newer", older.ID: "older"} {
		made, err := r.clone(named)
		if err != nil || made.ProfileID != "try" || made.Home != "here" || made.State != lease.Available || made.AccountID != "ann" || len(made.SensitiveWords) != 1 || len(made.Labels) != 0 {
			t.Fatalf("%s: %+v, %v", named, made, err)
		}
		dir, err := r.o.Root.Path("try")
		mustIn(t)(err)
		says, err := os.ReadFile(filepath.Join(dir, "says"))
		cookies, jarErr := r.host.Jar.Export("try")
		if err != nil || jarErr != nil || string(says) != want || !strings.Contains(string(cookies["session-cookies"]), `"`+want+`"`) {
			t.Errorf("%s: it says %q, with cookies %s, %v, %v", named, says, cookies, err, jarErr)
		}
		if _, err := r.clone(named); codeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%s: once more: %v", named, err)
		}
		// It can be used, and is removed as each clone is.
		s, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "try", WorkerID: "w", TaskID: "t"})
		mustIn(t)(err)
		r.end(s)
		now, err := r.Profile(t.Context(), "try")
		mustIn(t)(err)
		if removed, err := r.RemoveClone(t.Context(), "try", api.ProfileRemove{Token: now.Token}); err != nil || removed.CloneOf != "acct" {
			t.Errorf("%s: %+v, %v", named, removed, err)
		}
	}
	after, err := r.o.Store.Get(t.Context(), "acct")
	if err != nil || after.Revision != before.Revision {
		t.Errorf("the profile's record was written: %+v, %v", after.Record, err)
	}
	if _, err := r.o.Root.Path("acct"); err == nil {
		t.Error("the profile that was cloned has a directory here")
	}
	if found, err := r.store.Verify(t.Context(), "acct", ""); err != nil || !found.Whole() {
		t.Errorf("%+v, %v", found, err)
	}
}

// What cannot be cloned is refused by name, and nothing half is left of it.
func TestWhatCannotBeCloned(t *testing.T) {
	r := startReading(t, 2, nil)
	refused := func(why, snapshotID, code, says string) {
		t.Helper()
		if _, err := r.clone(snapshotID); codeOf(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", why, err, code)
		}
		r.notMade(why)
	}
	const newest = api.NewestSnapshot
	refused("no such profile", newest, api.CodeUnknownProfile, "acct")
	r.profile(func(*lease.Record) {})
	refused("no snapshot", newest, api.CodeNotFound, "acct has no snapshot")
	whole := r.sealed(7, "whole")
	named := func(id string) {
		r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = id, 7 })
	}
	named(whole.ID)
	refused("no such snapshot", "snap_gone", api.CodeNotFound, "snap_gone")
	if _, err := r.CloneProfile(t.Context(), "acct", api.ProfileClone{To: "acct", SnapshotID: newest}); codeOf(err) != api.CodeInvalidRequest {
		t.Errorf("a clone of itself: %v", err)
	}
	if _, err := r.CloneProfile(t.Context(), "acct", api.ProfileClone{To: "../x", SnapshotID: newest}); codeOf(err) != api.CodeInvalidRequest {
		t.Errorf("a clone without a name: %v", err)
	}
	named("snap_newer")
	refused("an old list", newest, api.CodeSnapshotDamaged, "snap_newer")
	newer := r.snapshot("157.0.1.2", 7, nil)
	named(newer.ID)
	refused("a newer Chrome", newest, api.CodeBrowserOlder, "157.0.1.2")
	r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.ProxyID = newer.ID, 7, "gone" })
	refused("a proxy that this host does not have", whole.ID, api.CodeInvalidRequest, "gone")
	named(newer.ID)

	full := startReading(t, 2, func(o *Options) { o.MinFreeDisk = 1 << 62 })
	full.profile(func(*lease.Record) {})
	if _, err := full.clone(full.sealed(7, "whole").ID); codeOf(err) != api.CodeHostFull || !strings.Contains(err.Error(), "make room") {
		t.Errorf("a full disk: %v", err)
	}
	full.notMade("a full disk")
	r.host.Snapshots = snapshots.New(snapshots.OpenDir(filepath.Join(r.dir, "store")), snapshots.NewKey())
	refused("another key", whole.ID, api.CodeSnapshotUnusable, "key")
	r.host.Snapshots = r.store

	damage(t, filepath.Join(r.dir, "store"))
	refused("pieces that were cut off", whole.ID, api.CodeSnapshotDamaged, "")
	mustIn(t)(os.RemoveAll(filepath.Join(r.dir, "store", "profiles")))
	refused("a store that was emptied", newest, api.CodeSnapshotDamaged, "")
	mustIn(t)(os.RemoveAll(filepath.Join(r.dir, "store")))
	refused("a store that is not mounted", newest, api.CodeProfileStore, "unmounted")

	none := startReading(t, 2, func(o *Options) { o.Snapshots = nil })
	none.profile(func(*lease.Record) {})
	if _, err := none.clone(newest); codeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "--profile-store") {
		t.Errorf("a launcher without a profile store: %v", err)
	}
	none.notMade("a launcher without a profile store")
}

// No clone is made by a launcher that another one of its id has superseded.
func TestNoCloneWithoutAPresence(t *testing.T) {
	r := startReading(t, 2, nil)
	r.profile(func(*lease.Record) {})
	whole := r.sealed(7, "whole")
	r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = whole.ID, 7 })
	supersede(t, r.Launcher)
	if _, err := r.clone(whole.ID); !errors.Is(err, lease.ErrUnavailable) && codeOf(err) != api.CodeStoreUnavailable {
		t.Errorf("cloned, or refused otherwise: %v", err)
	}
	r.notMade("without a presence")
}

// onGet runs something before an object is read.
type onGet struct {
	objects.Objects
	mu  sync.Mutex
	run func(key string)
}

func (o *onGet) Get(ctx context.Context, key string) ([]byte, string, error) {
	o.mu.Lock()
	if o.run != nil {
		o.run(key)
	}
	o.mu.Unlock()
	return o.Objects.Get(ctx, key)
}

// No clone is made that could act in an account that has to stand still, also where that begins
// while its snapshot is on the way.
func TestTheAccountStandsStillForClonesToo(t *testing.T) {
	objects := &onGet{Objects: snapshots.OpenDir(filepath.Join(t.TempDir(), "held-up"))}
	r := startReading(t, 2, func(o *Options) { o.Snapshots = snapshots.New(objects, snapshots.NewKey()) })
	s := r.sealed(7, "it")
	in := func(state lease.State) {
		r.profile(func(rec *lease.Record) {
			rec.State, rec.Token, rec.SnapshotID, rec.SnapshotToken, rec.Reason = state, 9, s.ID, 7, "worker_lost"
		})
	}
	for state, code := range map[lease.State]string{
		lease.Quarantined: api.CodeQuarantined, lease.Inspected: api.CodeQuarantined, lease.SuspectedStale: api.CodeQuarantined,
		lease.ManualReview: api.CodeInReview, lease.ResumePending: api.CodeResumePending,
	} {
		in(state)
		if _, err := r.clone(s.ID); codeOf(err) != code || !strings.Contains(err.Error(), "stands still") {
			t.Errorf("%s: %v, want %s", state, err, code)
		}
		r.notMade(string(state))
	}
	in(lease.Available)
	begun := false
	objects.mu.Lock()
	objects.run = func(key string) {
		if strings.Contains(key, "/chunks/") && !begun {
			begun = true
			in(lease.ManualReview)
		}
	}
	objects.mu.Unlock()
	if _, err := r.clone(s.ID); codeOf(err) != api.CodeInReview || !begun {
		t.Errorf("a review that began meanwhile: %v", err)
	}
	r.notMade("a review that began meanwhile")
	in(lease.Available)
	if _, err := r.clone(s.ID); err != nil {
		t.Error(err)
	}
}

// closedInOrder makes a directory that can be imported, as a Chrome that closed in order leaves it.
func closedInOrder(t *testing.T, says string) string {
	t.Helper()
	dir := userDataDir(t)
	mustIn(t)(os.MkdirAll(filepath.Join(dir, "Default"), 0o700))
	for name, content := range map[string]string{
		"Variations":          `{"user_experience_metrics.stability.exited_cleanly":true}`,
		"Default/Preferences": `{"profile":{"exit_type":"Normal"}}`,
		"says":                says,
	} {
		mustIn(t)(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// A profile that was imported or cloned has a snapshot before anybody used it, and another
// directory under the same name has one of its own.
func TestWhatIsMadeHasASnapshotAtOnce(t *testing.T) {
	r := startReading(t, 2, func(o *Options) { o.ImportRoots = []string{os.TempDir()} })
	snapshotted := func(profile, says string) lease.Record {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustIn(t)(r.snapshotter.Drain(ctx))
		e, err := r.o.Store.Get(ctx, profile)
		if err != nil || !e.Record.HasSnapshot() {
			t.Fatalf("%s has no snapshot: %+v, %v", profile, e.Record, err)
		}
		dir := filepath.Join(t.TempDir(), "x")
		got, err := r.store.Fetch(ctx, profile, e.Record.SnapshotID, dir, snapshots.FetchOptions{})
		mustIn(t)(err)
		if is, err := os.ReadFile(filepath.Join(dir, "says")); err != nil || string(is) != says || got.Token != e.Record.Token {
			t.Errorf("%s: the snapshot of token %d of %d says %q, %v", profile, got.Token, e.Record.Token, is, err)
		}
		return e.Record
	}
	imported := func(says string) {
		t.Helper()
		_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, says)})
		mustIn(t)(err)
	}
	imported("first")
	first := snapshotted("p", "first")
	if first.SessionID != "" || first.Token != 0 {
		t.Errorf("it was used: %+v", first)
	}
	for to, req := range map[string]api.ProfileClone{"of-directory": {}, "of-snapshot": {SnapshotID: api.NewestSnapshot}} {
		req.To = to
		_, err := r.CloneProfile(t.Context(), "p", req)
		mustIn(t)(err)
		snapshotted(to, "first")
	}
	_, err := r.ArchiveProfile(t.Context(), "p", api.ProfileArchive{})
	mustIn(t)(err)
	imported("second")
	second := snapshotted("p", "second")
	if floor, err := r.o.Root.Floor("p"); err != nil || second.Token != first.Token+1 || floor != second.Token {
		t.Errorf("another directory has token %d, and floor %d, %v", second.Token, floor, err)
	}
	// What was still on its way of the directory before is refused, also where the next one was not
	// closed in order and has no snapshot.
	_, err = r.ArchiveProfile(t.Context(), "p", api.ProfileArchive{})
	mustIn(t)(err)
	third, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: userDataDir(t)})
	if err != nil || third.Token != second.Token+1 || third.HasSnapshot() {
		t.Errorf("one more directory: %+v, %v", third, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustIn(t)(r.snapshotter.Drain(ctx))
	if e, err := r.o.Store.Get(ctx, "p"); err != nil || e.Record.HasSnapshot() {
		t.Errorf("a directory that was not closed in order has a snapshot: %+v, %v", e.Record, err)
	}
	content, err := r.store.Read(t.Context(), "p", closedInOrder(t, "second"), snapshots.ReadOptions{Spool: t.TempDir()})
	mustIn(t)(err)
	var stale *snapshots.StaleTokenError
	if _, err := r.store.Seal(t.Context(), content, snapshots.About{Token: second.Token, LauncherID: "here", CreatedAt: time.Now()}); !errors.As(err, &stale) {
		t.Errorf("a late seal of the directory before: %v", err)
	}
}
