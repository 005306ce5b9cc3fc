package snapshotter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/objects"
	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// laterStay is the epoch of a record on which the launcher of these tests may not act.
const laterStay = 99

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// records is a lease store of one process. What the snapshotter has no business with is
// not there: a call of it panics.
type records struct {
	lease.Store

	mu        sync.Mutex
	entries   map[string]lease.Entry
	announced []lease.Event
}

func (s *records) Get(_ context.Context, profile string) (lease.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[profile]
	if !ok {
		return lease.Entry{}, lease.ErrNotFound
	}
	return e, nil
}

func (s *records) Swap(_ context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.entries[next.ProfileID]
	if now.Revision != prev.Revision {
		return lease.Entry{}, &lease.MovedError{Current: &now}
	}
	now = lease.Entry{Record: next, Revision: prev.Revision + 1}
	s.entries[next.ProfileID] = now
	return now, nil
}

func (s *records) Announce(_ context.Context, e lease.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = append(s.announced, e)
	return nil
}

func (s *records) known() (all []lease.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		all = append(all, e.Record)
	}
	return all
}

// change changes a record, as somebody else does.
func (s *records) change(profile string, change func(*lease.Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[profile]
	e.Record.ProfileID = profile
	change(&e.Record)
	e.Revision++
	s.entries[profile] = e
}

type world struct {
	*Snapshotter
	t       testing.TB
	leases  *records
	root    *profiledir.Root
	slots   *slots.Table
	store   *snapshots.Store
	objects *gate
	jar     sessionfile.Jar
	dataDir string

	registry *prometheus.Registry
}

// gate are objects whose writes wait, and fail, as the test wants.
type gate struct {
	objects.Objects
	mu     sync.Mutex
	before func() error
}

func (g *gate) Put(ctx context.Context, key string, content []byte, version string) error {
	g.mu.Lock()
	before := g.before
	g.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	return g.Objects.Put(ctx, key, content, version)
}

func (g *gate) set(before func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = before
}

// newWorld runs a snapshotter until the test ends.
func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	dataDir := t.TempDir()
	root, err := profiledir.Open(filepath.Join(dataDir, "profiles"), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, leases: &records{entries: map[string]lease.Entry{}}, root: root, dataDir: dataDir,
		objects: &gate{Objects: snapshots.OpenDir(t.TempDir())}, jar: sessionfile.NewJar(dataDir, testkey.Key),
	}
	w.store = snapshots.New(w.objects, snapshots.NewKey())
	ctx, cancel := context.WithCancel(context.Background())
	work := &sync.WaitGroup{}
	w.slots = slots.NewTable(ctx, work, slots.Options{
		Root: root, Jar: w.jar, DataDir: dataDir, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	})
	o.LauncherID, o.Dir, o.Snapshots, o.Leases, o.Known, o.Slots, o.Root, o.Jar = "home", filepath.Join(dataDir, "snapshots"), w.store, w.leases, w.leases.known, w.slots, root, w.jar
	o.MayAct = func(r lease.Record) error {
		if r.PresenceEpoch == laterStay {
			return errors.New("another launcher has this id")
		}
		return nil
	}
	o.Chrome, o.Log, o.Metrics = func(context.Context) (string, error) { return "156.0.1.1", nil }, zerolog.Nop(), prometheus.NewRegistry()
	w.registry = o.Metrics.(*prometheus.Registry)
	if w.Snapshotter, err = New(o); err != nil {
		t.Fatal(err)
	}
	work.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return w
}

// profile makes a profile that Chrome closed in order, with files that say what.
func (w *world) profile(profile, what string) (dir string) {
	w.t.Helper()
	dir, err := w.root.Create(profile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(dir, what)
	return dir
}

// locked does something with the lock of profile p.
func (w *world) locked(do func(*profiledir.Lock) error) {
	w.t.Helper()
	lock, err := w.root.Lock("p")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(do(lock), lock.Unlock()); err != nil {
		w.t.Fatal(err)
	}
}

const files = 40

// write writes a profile's files, in place as Chrome writes its databases.
func (w *world) write(dir, what string) {
	tree := objectstest.Tree{
		"Local State": "{}", "Variations": `{"user_experience_metrics.stability.exited_cleanly":true}`, "Last Version": "156.0.8078.79", "Default/Preferences": `{"profile":{"exit_type":"Normal","exited_cleanly":true}}`,
	}
	for n := range files {
		tree[fmt.Sprintf("Default/%02d", n)] = strings.Repeat(what+" ", 3000)
	}
	tree.WriteTo(w.t, dir)
}

// ended makes the record that of a session that ended in order.
func (w *world) ended(profile string, token lease.Token) {
	w.leases.change(profile, func(r *lease.Record) { ends(r, token) })
}

// ends is what the end of a session makes of a record.
func ends(r *lease.Record, token lease.Token) {
	r.Home, r.State, r.Token, r.SessionID, r.ReleasedAt = "home", lease.Available, token, fmt.Sprintf("ses_%d", token), time.Now()
}

// session is a session from the occupation of the slot to its end; during is what Chrome
// does.
func (w *world) session(profile string, token lease.Token, during func()) {
	w.t.Helper()
	slot := w.slots.OccupyNext(w.t.Context(), profile, nil)
	if slot == nil {
		w.t.Fatal("the profile is not to be had")
	}
	w.leases.change(profile, func(r *lease.Record) { r.Home, r.State, r.Token = "home", lease.Held, token })
	during()
	w.ended(profile, token)
	slot.Vacate()
}

// opened is a browser without a session, such as that of a session check; during is what it does.
func (w *world) opened(profile string, during func()) {
	w.t.Helper()
	slot := w.slots.OccupyNext(w.t.Context(), profile, nil)
	if slot == nil {
		w.t.Fatal("the profile is not to be had")
	}
	w.leases.change(profile, func(r *lease.Record) {
		var err error
		if *r, err = r.Open(); err != nil {
			w.t.Error(err)
		}
	})
	during()
	slot.Vacate()
}

func (w *world) record(profile string) lease.Record {
	w.t.Helper()
	e, err := w.leases.Get(w.t.Context(), profile)
	if err != nil {
		w.t.Fatal(err)
	}
	return e.Record
}

// count is how many attempts at a snapshot ended so.
func (w *world) count(result string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "leasehold_snapshots_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	w.t.Fatalf("no metric of %s", result)
	return 0
}

// waits tells whether a profile waits for a snapshot, or for the end of one.
func (w *world) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0
}

func (w *world) drain() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.Drain(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// After a session that ended in order there is a snapshot, and the record, the home's copy
// of it and an event name it.
func TestASessionThatEndedInOrderHasASnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "first")
	if err := w.jar.Import("p", map[string][]byte{"session-cookies": []byte(`[{"name":"a","value":"b"}]`)}); err != nil {
		t.Fatal(err)
	}
	w.session("p", 7, func() { w.write(dir, "second") })
	w.drain()
	r := w.record("p")
	list, err := w.store.List(t.Context(), "p")
	if err != nil || len(list) != 1 || !r.HasSnapshot() || r.SnapshotID != list[0].ID || list[0].Token != 7 || list[0].SessionID != "ses_7" || list[0].ChromeVersion != "156.0.8078.79" {
		t.Fatalf("%+v, %v; the record names %q of %d", list, err, r.SnapshotID, r.SnapshotToken)
	}
	if floor, kept, err := w.root.Kept("p"); err != nil || floor != 7 || kept.SnapshotID != r.SnapshotID || kept.SnapshotToken != 7 {
		t.Errorf("the home keeps %d, %+v, %v", floor, kept, err)
	}
	if len(w.leases.announced) != 1 || w.leases.announced[0].Subject() != "leasehold.lease.p.snapshot_made" || w.leases.announced[0].SnapshotID != r.SnapshotID {
		t.Errorf("announced: %+v", w.leases.announced)
	}
	f, err := w.store.Fetch(t.Context(), "p", "", filepath.Join(t.TempDir(), "x"), snapshots.FetchOptions{})
	if err != nil || !strings.Contains(string(f.Extra["session-cookies"]), `"a"`) {
		t.Errorf("cookies that travel: %q, %v", f.Extra, err)
	}
	// Nothing is made twice.
	w.Vacated("p")
	w.drain()
	if n := w.count(resultMade); n != 1 {
		t.Errorf("%v snapshots made", n)
	}
}

// A browser without a session that had the profile while its snapshot was on its way is followed by another
// one, which has what that browser wrote.
func TestWhatABrowserWithoutASessionWroteIsInASnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "first")
	written, sealing := make(chan struct{}), make(chan struct{})
	w.objects.set(sync.OnceValue(func() error {
		close(sealing)
		<-written
		return nil
	}))
	w.session("p", 7, func() {})
	select { // what was read is on its way
	case <-sealing:
	case <-time.After(patience):
		t.Fatal("nothing is stored")
	}
	w.opened("p", func() { w.write(dir, "rotated") })
	close(written)
	w.drain()
	r := w.record("p")
	fetched := filepath.Join(t.TempDir(), "x")
	if _, err := w.store.Fetch(t.Context(), "p", r.SnapshotID, fetched, snapshots.FetchOptions{}); err != nil || !r.HasSnapshot() {
		t.Fatalf("%+v, %v", r, err)
	}
	if has, err := os.ReadFile(filepath.Join(fetched, "Default", "00")); err != nil || !strings.HasPrefix(string(has), "rotated") {
		t.Errorf("the snapshot has %.20q, %v", has, err)
	}
	if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) != 2 || list[0].ID != r.SnapshotID {
		t.Errorf("%+v, %v", list, err)
	}
}

// Only what ended in order, here, and is closed cleanly has snapshots.
func TestWhatHasNoSnapshot(t *testing.T) {
	for what, change := range map[string]func(w *world, r *lease.Record, dir string){
		"another home":                  func(_ *world, r *lease.Record, _ string) { r.Home = "other" },
		"after a recovery":              func(_ *world, r *lease.Record, _ string) { r.Decision = lease.DecisionRelease },
		"after a review":                func(_ *world, r *lease.Record, _ string) { r.Review = &lease.Review{Decision: lease.ReviewApprove} },
		"in review":                     func(_ *world, r *lease.Record, _ string) { r.State = lease.ManualReview },
		"held":                          func(_ *world, r *lease.Record, _ string) { r.State = lease.Held },
		"not released":                  func(_ *world, r *lease.Record, _ string) { r.ReleasedAt = time.Time{} },
		"of a later stay under this id": func(_ *world, r *lease.Record, _ string) { r.PresenceEpoch = laterStay },
		"closed by a crash": func(w *world, _ *lease.Record, dir string) {
			objectstest.Tree{"Default/Preferences": `{"profile":{"exit_type":"Crashed"}}`}.WriteTo(w.t, dir)
		},
		"of which something may be lost": func(w *world, _ *lease.Record, _ string) {
			w.locked(func(l *profiledir.Lock) error { return l.DisbelieveDirectory("a cookie is not on the disk") })
		},
		"with another directory in its place": func(w *world, _ *lease.Record, dir string) {
			if err := errors.Join(w.root.Store("p"), os.Remove(filepath.Join(dir, ".leasehold-mark"))); err != nil {
				w.t.Fatal(err)
			}
		},
		// A record that was restored of what this host remembers may say that it is the home again.
		"in a directory that was left": func(w *world, _ *lease.Record, _ string) {
			w.locked(func(l *profiledir.Lock) error { return l.Depart(profiledir.Departure{Home: "other", Token: 6}) })
		},
		"with its directory on the way": func(w *world, _ *lease.Record, _ string) {
			w.locked(func(l *profiledir.Lock) error {
				return l.PrepareArrival(t.Context(), profiledir.Arrival{MoveID: "mv_1"}, profiledir.Empty)
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, Options{})
			dir := w.profile("p", "x")
			w.leases.change("p", func(r *lease.Record) { // in one step: the snapshotter looks at all records as it begins
				ends(r, 7)
				change(w, r, dir)
			})
			w.Vacated("p")
			w.drain()
			if list, err := w.store.List(t.Context(), "p"); err != nil || len(list) != 0 || w.record("p").SnapshotID != "" {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}

// A snapshot never has something of two sessions in it, and no session waits for one: each
// begins at a random moment of the reading before it, and writes every file in place. There are
// sessions until some snapshots were made and some were given up.
func TestASnapshotIsNoMixture(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "session-0")
	const least = 24
	sessions := lease.Token(0)
	for deadline := time.Now().Add(patience); sessions < least || w.count(resultMade) == 0 || w.count(resultAbandoned) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%v snapshots of %d sessions were made, and %v given up: want some of each", w.count(resultMade), sessions, w.count(resultAbandoned))
		}
		sessions++
		token := sessions
		w.session("p", token, func() { w.write(dir, fmt.Sprintf("session-%d", token)) })
		switch rand.IntN(3) {
		case 0:
			w.drain()
		case 1:
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		case 2: // as soon as the first file was copied
			for w.waits() {
				if copies, _ := filepath.Glob(filepath.Join(w.spool(), "*", "*")); len(copies) > 0 {
					break
				}
			}
		}
	}
	w.drain()
	list, err := w.store.List(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		to := filepath.Join(t.TempDir(), "x")
		if _, err := w.store.Fetch(t.Context(), "p", s.ID, to, snapshots.FetchOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, content := range objectstest.ReadTree(t, to) {
			if want := strings.Repeat(fmt.Sprintf("session-%d ", s.Token), 3000); strings.HasPrefix(name, "Default/") && len(name) == len("Default/00") && content != want {
				t.Fatalf("%s of the snapshot of token %d begins with %.20q", name, s.Token, content)
			}
		}
	}
	if abandoned := w.count(resultAbandoned); len(list) == 0 || len(list) >= int(sessions) {
		t.Errorf("%d snapshots of %d sessions, although %v were given up", len(list), sessions, abandoned)
	}
	if last := w.record("p"); !last.HasSnapshot() || last.Token != sessions {
		t.Errorf("the last session has no snapshot: %d, %d", last.Token, last.SnapshotToken)
	}
}

// The store may be slow: neither the next session nor its own end waits for a snapshot, and
// the record does not name a snapshot of an earlier session.
func TestASlowStoreHoldsUpNothing(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "first")
	held := make(chan struct{})
	var once sync.Once
	reached := make(chan struct{})
	w.objects.set(func() error {
		once.Do(func() { close(reached) })
		<-held
		return nil
	})
	w.session("p", 1, func() { w.write(dir, "first") })
	<-reached
	for token := range lease.Token(3) { // while the first snapshot is on its way
		w.session("p", token+2, func() { w.write(dir, fmt.Sprint("later ", token)) })
	}
	close(held)
	w.drain()
	list, err := w.store.List(t.Context(), "p")
	if err != nil || len(list) != 2 || list[1].Token != 1 || list[0].Token != 4 {
		t.Errorf("%+v, %v; want those of the first and the last session", list, err)
	}
	if r := w.record("p"); r.SnapshotID != list[0].ID || r.SnapshotToken != 4 {
		t.Errorf("the record names %s of %d", r.SnapshotID, r.SnapshotToken)
	}
}

// What the store refused for a while is made later, by the next look at all profiles.
func TestAStoreThatIsAwayDelaysSnapshots(t *testing.T) {
	w := newWorld(t, Options{})
	w.profile("p", "first")
	w.objects.set(func() error { return errors.New("the store is away") })
	w.session("p", 1, func() {})
	w.drain()
	if n := w.count(resultFailed); n != 1 || w.record("p").SnapshotID != "" {
		t.Errorf("%v failed, the record names %q", n, w.record("p").SnapshotID)
	}
	if left, err := os.ReadDir(w.spool()); err != nil || len(left) != 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
	if waited := waiting(w.leases.known(), w.due, time.Now().Add(time.Hour)); waited < time.Hour {
		t.Errorf("waits since %v", waited)
	}
	w.objects.set(nil)
	w.lookAtAll() // too early
	w.drain()
	if w.record("p").SnapshotID != "" {
		t.Error("it was tried again at once")
	}
	w.mu.Lock()
	w.failed["p"] = failure{times: 1, retry: time.Now().Add(-time.Second)}
	w.mu.Unlock()
	w.lookAtAll()
	if w.waits() {
		w.drain()
	}
	if !w.record("p").HasSnapshot() {
		t.Error("no snapshot was made when the store was back")
	}
}

// A holder that somebody superseded is refused, and that is no failure to try again.
func TestASupersededSnapshotIsRefused(t *testing.T) {
	w := newWorld(t, Options{})
	w.profile("p", "first")
	if err := w.store.Raise(t.Context(), "p", 9); err != nil {
		t.Fatal(err)
	}
	w.session("p", 8, func() {})
	w.drain()
	if n := w.count(resultRefused); n != 1 || w.record("p").SnapshotID != "" {
		t.Errorf("%v refused, the record names %q", n, w.record("p").SnapshotID)
	}
}

// After damage was found all is stored again, and what follows builds on that.
func TestAfterDamageAllIsStoredAnew(t *testing.T) {
	w := newWorld(t, Options{})
	dir := w.profile("p", "x")
	w.session("p", 1, func() {})
	w.drain()
	keys, err := w.objects.List(t.Context(), "profiles/")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.Contains(key, "/chunks/") {
			if err := errors.Join(w.objects.Delete(t.Context(), key), w.objects.Put(t.Context(), key, []byte("damaged, and long enough to be one"), "")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found, err := w.store.Verify(t.Context(), "p", ""); err != nil || found.Whole() {
		t.Errorf("%+v, %v", found, err)
	}
	for token := range lease.Token(2) {
		w.session("p", token+2, func() { objectstest.Tree{"Default/new": fmt.Sprint(token)}.WriteTo(t, dir) })
		w.drain()
		r := w.record("p")
		if found, err := w.store.Verify(t.Context(), "p", r.SnapshotID); err != nil || !found.Whole() || !r.HasSnapshot() {
			t.Errorf("the snapshot of token %d: %+v, %v", r.Token, found, err)
		}
	}
}

// A disk without room for the copies makes no snapshot, and keeps what is to stay free.
func TestCopiesLeaveRoom(t *testing.T) {
	w := newWorld(t, Options{KeepFree: 1 << 62})
	w.profile("p", "x")
	w.session("p", 1, func() {})
	w.drain()
	if w.count(resultFailed) != 1 || w.record("p").SnapshotID != "" {
		t.Errorf("%v failed, the record names %q", w.count(resultFailed), w.record("p").SnapshotID)
	}
}
