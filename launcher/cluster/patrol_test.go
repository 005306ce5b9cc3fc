package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

const homeTimeout = time.Minute

// beat is one that patrols, with everything that it works with. Only what would adopt is
// played.
type beat struct {
	*Patrol
	presence *Presence
	root     *profiledir.Root
	table    *slots.Table
	sessions *session.Registry
	archive  *evidence.Archive
	dir      string // the launcher's data directory; spool and store are in it

	mu      sync.Mutex
	adopted []lease.Record
}

// newBeat returns a patrol of the launcher "here" that does not run yet. files are those
// of earlier sessions.
func newBeat(t *testing.T, ctx context.Context, dir string, store lease.Store, log zerolog.Logger, presence *Presence, change func(*PatrolOptions), files ...sessionfile.File) *beat {
	t.Helper()
	b := &beat{dir: dir, presence: presence}
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.root, err = profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	must()
	spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
	must()
	stored, err := evidence.OpenDirStore(filepath.Join(dir, "evidence"))
	must()
	b.archive = evidence.NewArchive(spool, stored, log)
	known := sessionfile.NewDir(dir, testkey.Key)
	_, err = known.Load() // it makes the folder
	must()
	for _, f := range files {
		err = known.Save(f)
		must()
	}
	work, metrics := &sync.WaitGroup{}, prometheus.NewRegistry()
	b.table = slots.NewTable(ctx, work, slots.Options{
		Root: b.root, Jar: sessionfile.NewJar(dir, testkey.Key), DataDir: dir, KeepWarmIdle: time.Hour, KeepWarmMax: 1, Log: log, Metrics: metrics,
	})
	recoverer := recovery.New(recovery.Options{
		LauncherID: "here", DataDir: dir, Key: testkey.Key, Root: b.root, Jar: sessionfile.NewJar(dir, testkey.Key), Archive: b.archive, Store: store, Log: log, Metrics: metrics,
		Witnesses: witness.List(witness.Options{Root: b.root, Files: known, Archive: b.archive}),
	})
	roots, err := fileroots.New(fileroots.Options{Private: []string{dir}, DataDir: dir})
	must()
	b.sessions, err = session.NewRegistry(ctx, work, session.Options{
		FileRoots:  roots,
		LauncherID: "here", Timing: timing, Store: store, Root: b.root, Files: known, Slots: b.table, Recoverer: recoverer, Log: log, Metrics: metrics,
	})
	must()
	o := PatrolOptions{
		LauncherID: "here", Timing: timing, HomeTimeout: homeTimeout, Store: store, Root: b.root, Archive: b.archive, Slots: b.table,
		Recoverer: recoverer, Sessions: b.sessions, Presence: presence, Adopt: b.adopt, Log: log, Metrics: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&o)
	}
	b.Patrol = NewPatrol(ctx, work, o)
	return b
}

// beat returns a patrol in the world, with the presence of its launcher.
func (w *world) beat(files ...sessionfile.File) (*beat, context.CancelFunc) {
	w.Helper()
	p := w.keep(nil)
	<-p.opened
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	return newBeat(w.T, ctx, w.dir, w.store, w.log(), p.Presence, func(o *PatrolOptions) { o.Clock = w.clock }, files...), cancel
}

// patrol returns a patrol that runs until the test ends, and has seen nothing yet.
func (w *world) patrol(files ...sessionfile.File) *beat {
	w.Helper()
	return w.run(w.beat(files...))
}

// run runs a patrol until the test ends.
func (w *world) run(b *beat, cancel context.CancelFunc) *beat {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run()
		b.work.Wait()
	}()
	w.Cleanup(func() { cancel(); <-ended })
	return b
}

func (b *beat) adopt(r lease.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adopted = append(b.adopted, r)
}

// taken are the profiles that were to be adopted since the last call.
func (b *beat) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var profiles []string
	for _, r := range b.adopted {
		profiles = append(profiles, r.ProfileID)
	}
	b.adopted = nil
	return profiles
}

// disk makes a profile's directory, and keeps a record beside it, which is its floor, and
// a browser that was started on it; the zero values: none.
func (b *beat) disk(t testing.TB, profile string, kept lease.Record, running profiledir.Running) {
	t.Helper()
	_, err := b.root.Create(profile)
	var lock *profiledir.Lock
	if err == nil {
		lock, err = b.root.Lock(profile)
	}
	if err == nil && kept.Token > 0 {
		err = lock.RaiseFloor(kept)
	}
	if err == nil && running.PID > 0 {
		err = lock.SetRunning(running)
	}
	if err == nil {
		err = lock.Unlock()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// held is the record of a session that a launcher holds, in its epoch 1.
func held(profile, launcher string) lease.Record {
	r, err := lease.Record{ProfileID: profile}.Grant(lease.Request{
		SessionID: "ses_" + profile, WorkerID: "w", TaskID: "t", LauncherID: launcher, PresenceEpoch: 1, TTL: timing.TTL, Exclusive: true,
	}, time.Now())
	if err != nil {
		panic(err)
	}
	r.Outbox = nil
	return r
}

// free is the record after that session.
func free(profile, launcher string) lease.Record {
	r, err := held(profile, launcher).Release("released", "succeeded", lease.Sealed{EvidenceID: "ev_" + profile, SHA256: "ab"}, time.Now())
	if err != nil {
		panic(err)
	}
	r.Outbox = nil
	return r
}

func sight(r lease.Record) lease.Sight {
	return lease.Sight{Entry: lease.Entry{Record: r, Revision: 1}}
}

// What a record that the watch reports makes the patrol do with a profile that nobody is
// at work on here.
func TestRecordsWithoutASession(t *testing.T) {
	browser := profiledir.Running{PID: 1, SessionID: "ses_p"}
	later := func(r lease.Record) lease.Record { r.Token += 5; return r }
	review := func(home, evidenceID string) lease.Record {
		return lease.Record{ProfileID: "p", Home: home, State: lease.ManualReview, SessionID: "ses_p", EvidenceID: evidenceID}
	}
	sealed := sessionfile.File{SessionID: "ses_p", Evidence: lease.Sealed{EvidenceID: "ev_1"}, Manifest: api.Manifest{ProfileID: "p"}}
	for _, tt := range []struct {
		name    string
		record  lease.Record
		kept    lease.Record
		file    sessionfile.File
		running profiledir.Running
		adopted bool
	}{
		{name: "free, and the floor of its only session is gone", record: free("p", "here"), adopted: true},
		{name: "held, and its session is gone", record: held("p", "here"), adopted: true},
		{name: "with a person", record: lease.Record{ProfileID: "p", Home: "here", State: lease.ManualReview}},
		{name: "with a person, who does not see what was sealed here", record: review("here", "ev_nothing"), file: sealed, adopted: true},
		{name: "with a person, who sees what was sealed here", record: review("here", "ev_1"), file: sealed},
		{name: "with a person, and of another home", record: review("far", "ev_nothing"), file: sealed},
		{name: "in recovery", record: lease.Record{ProfileID: "p", Home: "here", State: lease.Quarantined, Token: 3}, adopted: true},
		{name: "free, and its browser was left", record: free("p", "here"), running: browser, adopted: true},
		{name: "of another home", record: held("p", "far")},
		{name: "of another home, with a browser that was left here", record: free("p", "far"), running: browser},
		{name: "of another home, below the floor of this disk", record: held("p", "far"), kept: later(held("p", "here"))},
		{name: "of no home", record: lease.Record{ProfileID: "p", State: lease.Available}},
		{name: "of no home, with a browser that was left", record: lease.Record{ProfileID: "p"}, running: browser},
		{name: "of no home, below the floor", record: lease.Record{ProfileID: "p"}, kept: free("p", "here"), adopted: true},
		{name: "of no home, below the floor of another launcher on the folder", record: lease.Record{ProfileID: "p"}, kept: free("p", "near")},
		{name: "free, and below the floor", record: free("p", "here"), kept: later(free("p", "here")), adopted: true},
		{name: "free, and at the floor", record: free("p", "here"), kept: free("p", "here")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var files []sessionfile.File
				if tt.file.SessionID != "" {
					files = append(files, tt.file)
				}
				b := w.patrol(files...)
				b.disk(w, "p", tt.kept, tt.running)
				w.sees(lease.Sight{Fresh: true}, sight(tt.record))
				if got := b.taken(); (len(got) == 1) != tt.adopted || len(got) > 1 {
					t.Errorf("adopted: %v, want %v", got, tt.adopted)
				}
				// It is to be done until somebody did it.
				for range 3 {
					time.Sleep(timing.Renewal())
					synctest.Wait()
					if got := b.taken(); (len(got) == 1) != tt.adopted || len(got) > 1 {
						t.Errorf("adopted later: %v, want %v", got, tt.adopted)
					}
				}
			})
		})
	}
}

// A floor that cannot be believed is no floor of zero: the profile is put before a person.
func TestAForgedFloorIsLookedInto(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		b.disk(w, "p", free("p", "here"), profiledir.Running{})
		w.sees(lease.Sight{Fresh: true}, sight(free("p", "here")), lease.Sight{Complete: true})
		time.Sleep(3 * thoroughly * timing.Renewal())
		synctest.Wait()
		if got := b.taken(); got != nil {
			t.Errorf("nothing was wrong, and adopted are %v", got)
		}
		if err := os.WriteFile(filepath.Join(b.root.Dir(), ".leasehold", "p.floor"), []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep((thoroughly + 1) * timing.Renewal()) // nobody asks for it
		synctest.Wait()
		if got := b.taken(); len(got) == 0 || got[0] != "p" {
			t.Errorf("adopted: %v", got)
		}
	})
}

// A floor that cannot be read is no floor of zero: nothing is done.
func TestAFloorThatCannotBeRead(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		b.disk(w, "p", held("p", "here"), profiledir.Running{})
		floor := filepath.Join(b.root.Dir(), ".leasehold", "p.floor")
		if err := errors.Join(os.Remove(floor), os.Mkdir(floor, 0o700)); err != nil {
			t.Fatal(err)
		}
		w.sees(lease.Sight{Fresh: true}, sight(held("p", "here")))
		if got := b.taken(); got != nil || !strings.Contains(w.said.String(), "what is kept of the profile cannot be read") {
			t.Errorf("adopted %v; log:\n%s", got, w.said.String())
		}
	})
}

// run is a session that uses a slot's browser.
type run struct {
	token lease.Token

	mu   sync.Mutex
	seen []lease.State
}

func (r *run) Token() lease.Token    { return r.token }
func (r *run) Note(checkpoint.Entry) {}
func (r *run) Observe(seen lease.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, seen.State)
}

// saw is what the run was shown since the last call.
func (r *run) saw() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen = nil }()
	return fmt.Sprintf("%q", r.seen)
}

// Who has a profile here is told what becomes of its lease, whatever that is. What does not look
// like its lease is told until it does.
func TestSessionsAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		b.disk(w, "p", lease.Record{}, profiledir.Running{PID: 1})
		one := &run{token: 1}
		b.table.Occupy("p").Enter(one)
		w.sees(lease.Sight{Fresh: true}, lease.Sight{Complete: true})
		if got := one.saw(); got != `[""]` {
			t.Errorf("the store has no record: told %s", got)
		}
		w.sees(sight(held("p", "here")))
		if got := one.saw(); got != `["held"]` {
			t.Errorf("told %s", got)
		}
		time.Sleep(3 * timing.Renewal())
		synctest.Wait()
		if got := one.saw(); got != "[]" {
			t.Errorf("its own lease, later: told %s", got)
		}
		suspected, err := held("p", "here").Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.sees(sight(suspected))
		time.Sleep(2 * timing.Renewal())
		synctest.Wait()
		if got := one.saw(); got != `["suspected_stale" "suspected_stale" "suspected_stale"]` {
			t.Errorf("suspected: told %s", got)
		}
		w.sees(sight(held("p", "far")))
		if got := one.saw(); got != `["held"]` {
			t.Errorf("another launcher's: told %s", got)
		}
		if got := b.taken(); got != nil {
			t.Errorf("adopted %v", got)
		}
	})
}

// A warm browser is no browser that was left.
func TestAWarmBrowserIsLeftAlone(t *testing.T) {
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	log := zerolog.Nop()
	w := newWorld(t)
	p := w.keep(nil)
	<-p.opened
	b := newBeat(t, ctx, w.dir, w.store, log, p.Presence, nil)
	defer b.work.Wait()
	defer cancel()
	driver := browser.NewDriver(ctx, &work, browser.Options{Binary: binary, Key: testkey.Key, Files: sessionfile.NewDir(b.dir, testkey.Key), Root: b.root, Log: log, Metrics: prometheus.NewRegistry()})
	path, err := b.root.Create("p")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := b.root.Lock("p")
	if err != nil {
		t.Fatal(err)
	}
	slot, one := b.table.Occupy("p"), &run{token: 1}
	started, err := driver.Start(ctx, browser.Start{SessionID: "ses_p", Token: 1, Lock: lock, Path: path, Headless: true, Sink: slot.Note, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	slot.Locked(lock)
	slot.Opened(started, "ses_p", nil)
	slot.Enter(one)
	slot.Leave(one)
	if err := lock.RaiseFloor(free("p", "here")); err != nil {
		t.Fatal(err)
	}
	slot.Park("ses_p")
	b.look(free("p", "here"))
	if got := b.taken(); got != nil {
		t.Errorf("adopted %v", got)
	}
	if !b.leftOpen("p") {
		t.Error("no browser is known of")
	}
	b.table.CoolProfile("p", slots.WarmWanted)
	if b.leftOpen("p") {
		t.Error("a browser that was closed is known of")
	}
}

// A watch that starts over makes what was seen before count no more; where the store went
// back, holders are given the time to say again what they hold.
func TestAWatchThatStartsOver(t *testing.T) {
	for _, stepped := range []bool{false, true} {
		inWorld(t, func(w *world) {
			b := w.patrol()
			for _, profile := range []string{"floored", "new"} {
				b.disk(w, profile, lease.Record{}, profiledir.Running{})
			}
			b.disk(w, "floored", free("floored", "here"), profiledir.Running{})
			w.sees(lease.Sight{Fresh: true}, sight(held("lost", "here")), sight(free("floored", "here")), lease.Sight{Complete: true})
			time.Sleep(timing.GrantDelay())
			if b.taken() == nil || b.presence.SharedReady("/proc") != nil {
				t.Error("not as it should be before")
			}
			w.sees(lease.Sight{Fresh: true, Stepped: stepped})
			if b.presence.SharedReady("/proc") == nil {
				t.Error("the presence is not told")
			}
			if got := strings.Contains(w.said.String(), "was lost or went back"); got != stepped {
				t.Errorf("stepped %v, said: %v", stepped, got)
			}
			time.Sleep(2 * timing.Renewal())
			synctest.Wait()
			if got := b.taken(); got != nil {
				t.Errorf("adopted what counts no more, or is not known to be missing: %v", got)
			}
			// Only now it shows that a profile of this disk has no record.
			w.sees(lease.Sight{Complete: true})
			if got := b.taken(); !slices.Equal(got, []string{"floored"}) {
				t.Errorf("adopted %v", got)
			}
			time.Sleep(timing.Renewal())
			synctest.Wait()
			if got := b.taken(); !slices.Equal(got, []string{"floored"}) {
				t.Errorf("adopted later %v", got)
			}
		})
	}
}

// Once every record was seen, it is known which sessions of an earlier launcher nobody
// has to adopt. Requests for them do not wait any more.
func TestSessionsThatNobodyHasToAdopt(t *testing.T) {
	next := held("p", "here")
	next.SessionID = "ses_next"
	for _, tt := range []struct {
		name     string
		record   []lease.Sight
		occupied bool
		known    bool
	}{
		{"its profile has no record", nil, false, true},
		{"its lease is held", []lease.Sight{sight(held("p", "here"))}, false, false},
		{"its lease is over", []lease.Sight{sight(free("p", "here"))}, false, true},
		{"another session has the lease", []lease.Sight{sight(next)}, false, true},
		{"somebody is at work on the profile", nil, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.patrol(sessionfile.File{SessionID: "ses_p", Token: 1, Manifest: api.Manifest{ProfileID: "p"}})
				if tt.occupied {
					b.table.Occupy("p")
				}
				w.sees(append(append([]lease.Sight{{Fresh: true}}, tt.record...), sight(held("other", "here")))...)
				lookup := func() (*api.Problem, time.Duration) {
					begun := time.Now()
					_, err := b.sessions.Lookup("ses_p")
					var p *api.Problem
					if !errors.As(err, &p) {
						t.Fatalf("error %v, want an *api.Problem", err)
					}
					return p, time.Since(begun)
				}
				if p, took := lookup(); p.Code != api.CodeStoreUnavailable || took == 0 {
					t.Errorf("before: %v after %v", p, took)
				}
				w.sees(lease.Sight{Complete: true})
				if p, took := lookup(); (p.Code == api.CodeSessionEnded && took == 0) != tt.known {
					t.Errorf("known %v, want %v: %v after %v", !tt.known, tt.known, p, took)
				}
			})
		})
	}
}

// far is the presence of another launcher, in its epoch 1.
func (w *world) far(url string) lease.Presence {
	return lease.Presence{}.Open(lease.Presence{LauncherID: "far", AdvertiseURL: url, TTLSeconds: timing.TTL.Seconds()}, 0, time.Now())
}

// writes is what the patrol stored, in order.
func (w *world) writes() (what []string) {
	w.store.do(func() {
		for _, write := range w.store.writes {
			what = append(what, write.what)
		}
	})
	return what
}

func (w *world) wroteAt(i int) (at time.Duration) {
	w.store.do(func() { at = w.store.writes[i].at })
	return at
}

// A launcher that went silent loses its presence, its leases are suspected and fenced,
// and if it does not come back its profiles go to a person, each step in a write of its
// own. One that renews keeps its leases.
func TestASilentLauncher(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		lost := held("p", "far")
		lost.LastKnownURL, lost.LastKnownStep, lost.AccountID = "https://shop.example/cart", "pay", "acc"
		lost.EvidenceID, lost.EvidenceSHA256 = "ev_before", "cd"
		w.store.do(func() {
			w.store.put(w.far(""))
			w.store.report(lease.Sight{Fresh: true})
			w.store.store(lost)
			w.store.store(held("q", "alive"))
			w.store.report(lease.Sight{Complete: true})
		})
		alive, err := lease.Keep(w.Context(), lease.Presence{LauncherID: "alive"}, lease.PresenceEntry{}, 0,
			lease.KeeperOptions{Store: w.store, Timing: timing, Clock: w.clock, Expiring: func(time.Duration) {}})
		if err != nil {
			t.Fatal(err)
		}
		defer alive.Stop()
		var shown []evidence.Picture
		for _, of := range []string{"ses_p", "ses_another"} {
			p, err := b.archive.PutPicture(w.Context(), evidence.Manifest{ProfileID: "p", SessionID: of, At: time.Now().UTC()}, []byte("jpeg"), "")
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, p)
		}
		begun := time.Since(w.start)

		w.until("a person has it", time.Hour, func() bool { return w.record("p").State == lease.ManualReview })
		want := []string{"far closed by here", "p suspected_stale", "p quarantined", "p manual_review"}
		if got := w.writes(); !slices.Equal(got, want) {
			t.Fatalf("stored %q, want %q", got, want)
		}
		if waited := w.wroteAt(0) - begun; waited < timing.ObserverWait() || waited > timing.ObserverWait()+2*timing.Renewal() {
			t.Errorf("its presence was closed after %v of silence, and %v have to pass", waited, timing.ObserverWait())
		}
		if waited := w.wroteAt(3) - w.wroteAt(2); waited < homeTimeout || waited > homeTimeout+2*timing.Renewal() {
			t.Errorf("a person had it %v after the quarantine, and the home has %v", waited, homeTimeout)
		}
		if p := w.stored("far"); !p.Closed || p.Epoch != 1 {
			t.Errorf("its presence: %+v", p)
		}
		r := w.record("p")
		if r.Token != 2 || r.Reason != api.ReasonObserved || r.Decision != lease.DecisionManualReview || len(r.Reasons) != 1 || r.Home != "far" || r.EvidenceID == "ev_before" {
			t.Errorf("%+v", r)
		}

		raw, err := b.archive.Manifest(w.Context(), r.EvidenceID)
		if err != nil {
			t.Fatal(err)
		}
		m, err := evidence.Decode(r.EvidenceID, raw)
		if err != nil {
			t.Fatal(err)
		}
		if m.RecoveryReason != api.ReasonObserved || m.LeaseToken != 2 || m.LastKnownURL != lost.LastKnownURL || m.LastKnownStep != "pay" ||
			m.SessionID != "ses_p" || m.LauncherID != "here" || m.PreviousEvidenceID != "ev_before" || m.PreviousManifestSHA256 != "cd" ||
			!m.DetectedStaleAt.Equal(r.SuspectedAt) || !m.LastHeartbeatAt.Equal(lost.HeartbeatAt) {
			t.Errorf("%+v", m)
		}
		var missing []string
		for _, part := range m.Parts {
			if strings.Contains(part.Missing, "launcher far did not come back") {
				missing = append(missing, part.Name)
			}
		}
		if !slices.Equal(missing, []string{"screenshot-1.jpg", "journal.jsonl", "processes.json", "lock.json"}) || len(m.Parts) != 4 {
			t.Errorf("parts: %+v", m.Parts)
		}
		if len(m.Pictures) != 1 || m.Pictures[0].EvidenceID != shown[0].EvidenceID {
			t.Errorf("pictures: %+v, want %s", m.Pictures, shown[0].EvidenceID)
		}

		time.Sleep(time.Hour)
		if got := w.writes(); len(got) != 4 || w.record("q").State != lease.Held || alive.Context().Err() != nil {
			t.Errorf("later: %q", got[4:])
		}
		if got := b.taken(); got != nil {
			t.Errorf("adopted %v, which are on another disk", got)
		}
	})
}

// While no bundle can be written the profile waits; where only the pictures cannot be had,
// the bundle says so.
func TestNothingLeftToShow(t *testing.T) {
	for _, tt := range []struct{ name, gone string }{{"no bundle", "spool"}, {"no pictures", "evidence"}} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.patrol()
				gone := filepath.Join(b.dir, tt.gone)
				if err := os.Rename(gone, gone+".away"); err != nil {
					t.Fatal(err)
				}
				closed := w.far("").Close("far", "far", 1, time.Now())
				w.store.do(func() {
					w.store.put(closed)
					w.store.report(lease.Sight{Fresh: true})
					w.store.store(held("p", "far"))
					w.store.report(lease.Sight{Complete: true})
				})
				if tt.gone == "spool" {
					w.until("no bundle can be written", time.Hour, func() bool { return strings.Contains(w.said.String(), "evidence cannot be written") })
					if r := w.record("p"); r.State != lease.Quarantined || r.EvidenceID != "" {
						t.Errorf("without a bundle: %+v", r)
					}
					if err := os.Rename(gone+".away", gone); err != nil {
						t.Fatal(err)
					}
				}
				w.until("a person has it", time.Hour, func() bool { return w.record("p").State == lease.ManualReview })
				// What its own launcher closed need not be closed again.
				if got := w.writes(); !slices.Equal(got, []string{"p suspected_stale", "p quarantined", "p manual_review"}) {
					t.Errorf("stored %q", got)
				}
				r := w.record("p")
				raw, err := b.archive.Manifest(w.Context(), r.EvidenceID)
				var m evidence.Manifest
				if err == nil {
					err = json.Unmarshal(raw, &m)
				}
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(m.Parts, func(p evidence.Part) bool { return p.Name == "pictures" })
				if why := i >= 0 && m.Parts[i].Missing != ""; why != (tt.gone == "evidence") {
					t.Errorf("parts: %+v", m.Parts)
				}
			})
		})
	}
}

// An evidence store that does not answer for a while costs no pictures: the profile waits for them, and the store is
// not asked all the time.
func TestPicturesThatCannotBeHadYet(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		shown, err := b.archive.PutPicture(w.Context(), evidence.Manifest{ProfileID: "p", SessionID: "ses_p", At: time.Now().UTC()}, []byte("jpeg"), "")
		if err != nil {
			t.Fatal(err)
		}
		store := filepath.Join(b.dir, "evidence")
		if err := os.Rename(store, store+".away"); err != nil {
			t.Fatal(err)
		}
		w.store.do(func() {
			w.store.put(w.far("").Close("far", "far", 1, time.Now()))
			w.store.report(lease.Sight{Fresh: true})
			w.store.store(held("p", "far"))
			w.store.store(held("q", "far"))
			w.store.report(lease.Sight{Complete: true})
		})
		asked := func() int { return strings.Count(w.said.String(), "whose home is gone cannot be had") }
		w.until("the pictures cannot be had", time.Hour, func() bool { return asked() > 0 })
		time.Sleep(picturesWait / 2)
		if r := w.record("p"); r.State != lease.Quarantined {
			t.Errorf("without the pictures: %+v", r)
		}
		if n, most := asked(), int(picturesWait/2/picturesAgain)+1; n > most {
			t.Errorf("the store was asked %d times, want at most %d", n, most)
		}
		if err := os.Rename(store+".away", store); err != nil {
			t.Fatal(err)
		}
		w.until("a person has them", time.Hour, func() bool {
			return w.record("p").State == lease.ManualReview && w.record("q").State == lease.ManualReview
		})
		raw, err := b.archive.Manifest(w.Context(), w.record("p").EvidenceID)
		var m evidence.Manifest
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil || m.LacksPictures() || len(m.Pictures) != 1 || m.Pictures[0].EvidenceID != shown.EvidenceID {
			t.Errorf("pictures: %+v, parts: %+v, %v", m.Pictures, m.Parts, err)
		}
	})
}

// hangingStore is an evidence store that takes no bundle: each try lasts until it is given up.
type hangingStore struct {
	evidence.Store
	tries, most *atomic.Int32 // that are under way, and the most that were at a time
}

func (s hangingStore) Put(ctx context.Context, _ *evidence.Sealed) error {
	s.most.Store(max(s.most.Load(), s.tries.Add(1)))
	<-ctx.Done()
	s.tries.Add(-1)
	return ctx.Err()
}

// An evidence store that hangs holds up the bundle of one profile, and nothing else of the patrol: its bundle waits on
// the disk, and a person gets each profile with one.
func TestAnEvidenceStoreThatHangsHoldsUpNoOtherProfile(t *testing.T) {
	inWorld(t, func(w *world) {
		b, cancel := w.beat()
		var tries, most atomic.Int32
		b.o.Archive = b.archive.Through(func(s evidence.Store) evidence.Store { return hangingStore{s, &tries, &most} })
		b.o.Recoverer = recovery.New(recovery.Options{
			LauncherID: "here", DataDir: b.dir, Key: testkey.Key, Root: b.root, Jar: sessionfile.NewJar(b.dir, testkey.Key), Archive: b.o.Archive, Store: w.store,
			Log: w.log(), Metrics: prometheus.NewRegistry(),
		})
		w.run(b, cancel)
		w.store.do(func() {
			w.store.put(w.far("").Close("far", "far", 1, time.Now()))
			w.store.report(lease.Sight{Fresh: true})
			for _, profile := range []string{"p", "q", "r"} {
				w.store.store(held(profile, "far"))
			}
			w.store.report(lease.Sight{Complete: true})
		})
		w.until("a person has all of them", 2*time.Hour, func() bool {
			for _, profile := range []string{"p", "q", "r"} {
				if r := w.record(profile); r.State != lease.ManualReview || r.EvidenceID == "" {
					return false
				}
			}
			return true
		})
		if got := most.Load(); got != 3 {
			t.Errorf("%d bundles were being stored at a time, want 3", got)
		}
	})
}

// One loss has one bundle, however often its state is written, and whoever writes it.
func TestOneBundleOfAHomeThatIsGone(t *testing.T) {
	for name, before := range map[string]func(w *world){
		"the store refuses a write": func(w *world) {
			w.store.refuse = map[string]error{"p manual_review": lease.ErrUnavailable}
		},
		"the view is behind": func(w *world) {
			w.store.meanwhile = map[string]func(){"p quarantined": func() {
				quarantined, err := w.store.records["p"].Record.Quarantine(0, time.Now())
				if err != nil {
					t.Error(err)
				}
				decided, err := quarantined.Abandon([]string{"seen by another"}, lease.Sealed{}, time.Now())
				if err != nil {
					t.Error(err)
				}
				w.store.store(quarantined)
				w.store.revision++ // the watch does not report what came next
				w.store.records["p"] = lease.Entry{Record: decided, Revision: w.store.revision}
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.patrol()
				w.store.do(func() {
					w.store.put(w.far("").Close("far", "far", 1, time.Now()))
					w.store.report(lease.Sight{Fresh: true})
					w.store.store(held("p", "far"))
					w.store.report(lease.Sight{Complete: true})
					before(w)
				})
				w.until("a person has it", time.Hour, func() bool { return w.record("p").State == lease.ManualReview })
				time.Sleep(time.Hour)
				list, err := b.archive.List(w.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				r := w.record("p")
				var stored []string
				for _, one := range list {
					stored = append(stored, one.EvidenceID)
				}
				if want := slices.DeleteFunc([]string{r.EvidenceID}, func(id string) bool { return id == "" }); !slices.Equal(stored, want) {
					t.Errorf("stored %d bundles, and the record names %q", len(stored), r.EvidenceID)
				}
			})
		})
	}
}

// Of several launchers that see the silence, each step is taken by one. Who comes second
// gives way, and looks at what there is.
func TestAStepThatAnotherTook(t *testing.T) {
	inWorld(t, func(w *world) {
		w.patrol()
		w.store.do(func() {
			w.store.put(w.far(""))
			w.store.report(lease.Sight{Fresh: true})
			w.store.store(held("p", "far"))
			w.store.report(lease.Sight{Complete: true})
			w.store.meanwhile = map[string]func(){
				"far closed by here": func() { // it comes back, late
					p := w.store.presences["far"].Presence
					p.HeartbeatAt = time.Now().UTC()
					w.store.put(p)
				},
				"p suspected_stale": func() {
					r, err := w.store.records["p"].Record.Suspect("seen by another", lease.Sealed{}, time.Now())
					if err != nil {
						t.Error(err)
					}
					w.store.store(r)
				},
			}
		})
		w.until("quarantined", time.Hour, func() bool { return w.record("p").State == lease.Quarantined })
		if got := w.writes(); !slices.Equal(got, []string{"far closed by here", "p quarantined"}) || w.record("p").Reason != "seen by another" {
			t.Errorf("stored %q, reason %s", got, w.record("p").Reason)
		}
		if at := w.wroteAt(0); at < 2*timing.ObserverWait() {
			t.Errorf("closed at %v, and it was silent for the first time at %v", at, timing.ObserverWait())
		}
		for _, want := range []string{"presence was not closed", "lease was not taken further"} {
			if n := strings.Count(w.said.String(), want); n != 1 {
				t.Errorf("said %d times: %s", n, want)
			}
		}
	})
}

// A store that comes back gives every launcher its whole time again.
func TestSilenceOfAStoreIsNotThatOfALauncher(t *testing.T) {
	inWorld(t, func(w *world) {
		w.patrol()
		w.store.do(func() {
			w.store.put(w.far(""))
			w.store.report(lease.Sight{Fresh: true})
			w.store.store(held("p", "far"))
			w.store.report(lease.Sight{Complete: true})
		})
		time.Sleep(timing.ObserverWait() - timing.Renewal())
		begun := time.Since(w.start)
		w.sees(lease.Sight{Fresh: true}, sight(held("p", "far")), lease.Sight{Complete: true})
		w.until("closed", time.Hour, func() bool { return w.stored("far").Closed })
		if waited := w.wroteAt(0) - begun; waited < timing.ObserverWait() {
			t.Errorf("closed %v after the store was back", waited)
		}
	})
}

// A store that does not answer, or cannot be watched, is told of; what needs no answer is
// done all the same.
func TestAPatrolWithoutAStore(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		b.disk(w, "p", free("p", "here"), profiledir.Running{})
		w.store.do(func() { w.store.away = true })
		w.sees(lease.Sight{Fresh: true}, lease.Sight{Complete: true})
		if got := b.taken(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("adopted %v", got)
		}
		time.Sleep(2 * storeTimeout)
		if n := strings.Count(w.said.String(), "launchers cannot be listed"); n == 0 {
			t.Errorf("log:\n%s", w.said.String())
		}
	})
	inWorld(t, func(w *world) {
		w.store.noWatch = true
		b, cancel := w.beat()
		ended := make(chan struct{})
		go func() { b.Run(); b.work.Wait(); close(ended) }()
		synctest.Wait()
		if !strings.Contains(w.said.String(), "the lease store cannot be watched") {
			t.Errorf("log:\n%s", w.said.String())
		}
		w.store.do(func() { w.store.away = true })
		time.Sleep(timing.Renewal() + time.Second) // it asks the store, in vain
		cancel()
		<-ended
		if strings.Contains(w.said.String(), "cannot be listed") {
			t.Error("the end of the launcher is told as a failure of the store")
		}
	})
}

// A worker at the wrong launcher is told where the profile's home is, if that is there.
func TestHome(t *testing.T) {
	for _, tt := range []struct {
		name     string
		presence func(w *world) []lease.Presence
		location string
		detail   string
	}{
		{"unknown", func(*world) []lease.Presence { return nil }, "", ", which is not there now"},
		{"closed", func(w *world) []lease.Presence {
			return []lease.Presence{w.far("http://far.example").Close("far", "far", 1, time.Now())}
		}, "", ", which is not there now"},
		{"without an address", func(w *world) []lease.Presence { return []lease.Presence{w.far("")} }, "", "launcher far"},
		{"with one", func(w *world) []lease.Presence { return []lease.Presence{w.far("http://far.example")} }, "http://far.example", ": http://far.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.patrol()
				w.store.do(func() {
					for _, p := range tt.presence(w) {
						w.store.put(p)
					}
				})
				time.Sleep(timing.Renewal())
				synctest.Wait()
				q := b.Home(held("p", "far"))
				location, _ := q.More["location"].(string)
				if q.Code != api.CodeWrongHome || q.More["home_launcher"] != "far" || location != tt.location || !strings.HasSuffix(q.Detail, tt.detail) {
					t.Errorf("%+v", q)
				}
				// One that the store shows no more is not known.
				w.store.do(func() { delete(w.store.presences, "far") })
				time.Sleep(timing.Renewal())
				synctest.Wait()
				if other := b.Other("far"); other != (lease.Presence{}) {
					t.Errorf("still known: %+v", other)
				}
			})
		})
	}
}
