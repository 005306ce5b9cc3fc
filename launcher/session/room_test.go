package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/leasetest"
	"leasehold/internal/test/testkey"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// undoEnd states that the end of a session has not begun.
func undoEnd(s *Session) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.ending, s.life.leaves = false, false
}

// patience bounds waits that end by themselves unless something is broken.
const patience = time.Minute

// profile is the one that every room has.
const profile = "p"

// room is what the sessions of a host live in. Everything below them is real, on disk,
// but the lease store and the browser.
type room struct {
	t        *testing.T
	o        roomOptions
	dir      string
	path     string           // of the profile
	memory   *leasetest.Store // nil: the store is another one
	chromium *chromium        // nil: the browser is another one
	store    lease.Store

	*launcher // the one that runs now
}

// launcher is what ends with one launcher on the room's directory.
type launcher struct {
	cancel    context.CancelFunc
	work      sync.WaitGroup
	log       testlog.Buffer
	metrics   *prometheus.Registry
	root      *profiledir.Root
	files     sessionfile.Dir
	jar       sessionfile.Jar
	archive   *evidence.Archive
	table     *slots.Table
	driver    *browser.Driver
	announcer *Announcer
	host      *Registry
	keeper    *lease.Keeper
}

// roomOptions are what tests want otherwise than usual.
type roomOptions struct {
	binary  string      // of a real browser; empty: the scripted one
	store   lease.Store // nil: a store in memory
	ttl     time.Duration
	grace   time.Duration // a worker has to come back
	person  time.Duration // a person may be gone
	hang    time.Duration
	cut     time.Duration // a write waits for the browser of a worker that is lost
	ask     time.Duration // a browser may take to end
	leave   bool          // browsers to the next launcher
	warm    bool          // browsers may stay open
	picture time.Duration
	runs    int // that may share the profile
	sites   *site.Book
	keep    *bool
	// processes run the browsers; nil: the kernel does.
	processes browser.Processes
}

// newRoom returns a room whose profile is available.
func newRoom(t *testing.T, o roomOptions) *room {
	t.Helper()
	dir, err := os.MkdirTemp("", "ls") // short, for the socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r := &room{t: t, o: o, dir: dir, store: o.store}
	if r.store == nil {
		r.memory = leasetest.New(t)
		r.memory.Put(lease.Record{ProfileID: profile, State: lease.Available, Settings: lease.Settings{MaxActiveRuns: max(o.runs, 1), KeepWarm: o.keep}})
		r.store = r.memory
	}
	root, err := profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	if err == nil {
		r.path, err = root.Create(profile)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.binary == "" {
		r.chromium = script(t, r.path)
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// start starts a launcher in the room, as package launcher wires one.
func (r *room) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &launcher{cancel: cancel, metrics: prometheus.NewRegistry(), files: sessionfile.NewDir(r.dir, testkey.Key), jar: sessionfile.NewJar(r.dir, testkey.Key)}
	r.launcher = l
	log := zerolog.New(&l.log)
	fatal := func(err error) {
		r.t.Helper()
		if err != nil {
			cancel()
			r.t.Fatal(err)
		}
	}
	var err error
	l.root, err = profiledir.Open(filepath.Join(r.dir, "profiles"), testkey.Key)
	fatal(err)
	spool, err := evidence.OpenSpool(filepath.Join(r.dir, "spool"))
	fatal(err)
	bundles, err := evidence.OpenDirStore(filepath.Join(r.dir, "evidence"))
	fatal(err)
	l.archive = evidence.NewArchive(spool, bundles, log)
	l.driver = browser.NewDriver(ctx, &l.work, browser.Options{Key: testkey.Key,
		Binary: cmp.Or(r.o.binary, fakechrome.Binary(r.t)), Files: l.files, Root: l.root, HangTimeout: r.o.hang, CloseTimeouts: chrome.CloseTimeouts{Ask: r.o.ask}, Processes: r.o.processes, Log: log, Metrics: l.metrics,
	})
	l.work.Go(l.driver.Watch)
	warm := map[bool]int{true: 2}[r.o.warm]
	l.table = slots.NewTable(ctx, &l.work, slots.Options{
		Root: l.root, Jar: l.jar, DataDir: r.dir, KeepWarmIdle: time.Duration(warm) * time.Minute, KeepWarmMax: warm, Log: log, Metrics: l.metrics,
	})
	l.announcer = NewAnnouncer("l", r.store, log, l.metrics)
	recoverer := recovery.New(recovery.Options{
		LauncherID: "l", DataDir: r.dir, Key: testkey.Key, Root: l.root, Jar: l.jar, Archive: l.archive, Store: r.store,
		Witnesses: witness.List(witness.Options{Root: l.root, Files: l.files, Archive: l.archive}), WroteLate: l.announcer.WroteLate,
		Log: log, Metrics: l.metrics,
	})
	timing := lease.Timing{TTL: 30 * time.Second}
	roots, err := fileroots.New(fileroots.Options{Private: []string{r.dir}, DataDir: r.dir})
	fatal(err)
	sites := r.o.sites // the next launcher's may be others
	l.host, err = NewRegistry(ctx, &l.work, Options{
		FileRoots:  roots,
		LauncherID: "l", BootID: boottime.ID(), Timing: lease.Timing{TTL: cmp.Or(r.o.ttl, timing.TTL)}, ReconnectGrace: cmp.Or(r.o.grace, patience), PersonGrace: cmp.Or(r.o.person, patience),
		QuietTimeout: patience, ClearTimeout: patience, CutTimeout: r.o.cut, PictureInterval: r.o.picture, Headless: true, LeaveOnExit: func() bool { return r.o.leave }, Dedicated: r.dedicated,
		Store: r.store, Root: l.root, Archive: l.archive, Files: l.files, Jar: l.jar, Slots: l.table, Driver: l.driver, Recoverer: recoverer,
		Announcer: l.announcer, Answers: accountcheck.NewMemory(r.dir, testkey.Key), Sites: func() *site.Book { return sites }, Log: log, Metrics: l.metrics,
	})
	fatal(err)
	before, err := r.store.Presence(ctx, "l") // of the launcher before this one, which is gone
	fatal(err)
	l.keeper, err = lease.Keep(ctx, lease.Presence{LauncherID: "l"}, before, 0, lease.KeeperOptions{
		Store: r.store, Timing: timing, Clock: boottime.Now, Expiring: func(time.Duration) {},
	})
	fatal(err)
}

// dedicated serves no port of its own: tests look at what was asked for.
func (r *room) dedicated(sessionID, addr string) (string, func(), error) {
	return "http://127.0.0.1:4711/" + addr, func() {}, nil
}

// stop ends the launcher as Launcher.Stop does.
func (r *room) stop() {
	r.t.Helper()
	r.host.Drain()
	for deadline := time.Now().Add(patience); ; {
		busy, changed := r.table.Drain()
		if busy == 0 {
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			r.t.Errorf("%d profiles are not given up", busy)
			r.cancel()
			return
		}
	}
	r.cancel()
	r.work.Wait()
	r.keeper.Stop()
}

// restart ends the launcher and starts the next one.
func (r *room) restart(o roomOptions) {
	r.t.Helper()
	r.stop()
	r.o = o
	r.start()
}

// task is a manifest.
func task(name string, change ...func(*api.Manifest)) api.Manifest {
	m := api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: name, SessionCookies: api.CookiesKeep}
	for _, c := range change {
		c(&m)
	}
	return m
}

func oneShot(m *api.Manifest) { m.OneShot = true }

// openedBy has the session be that of a user of the host.
func openedBy(uid uint32) func(*api.Manifest) {
	return func(m *api.Manifest) { m.Opener = api.Opener{Name: principal.UserName(uid), UID: &uid} }
}

func byHand(m *api.Manifest) { m.ByHand = &api.ByHand{Holder: "ann"} }

// resumed is the checkpoint from which a task in the room resumes.
var resumed = checkpoint.Entry{
	Seq: 9, Kind: checkpoint.KindCheckpoint, Name: "ordered", Safe: true, Idempotent: true, IdempotentShapes: []string{"POST /votes"}, Data: json.RawMessage(`{"order":4711}`),
}

// keptForTask makes the room's profile one that is kept for its task to resume.
func (r *room) keptForTask() {
	kept := r.record()
	kept.State, kept.TaskID, kept.ResumeFrom, kept.LastSafeCheckpoint = lease.ResumePending, "one", "order", "ordered"
	r.memory.Put(kept)
}

// short is long enough for what a session does at once, and no longer.
const short = 150 * time.Millisecond

// grant takes the steps of launcher/grant.go. Where the session was granted and did not
// begin, it returns the session too, for the caller to undo its grant.
func (r *room) grant(m api.Manifest, slot *slots.Slot, start func(lease.Record) Start) (*Session, error) {
	r.t.Helper()
	ctx := r.t.Context()
	entry, err := r.store.Get(ctx, profile)
	if errors.Is(err, lease.ErrNotFound) {
		entry, err = lease.Entry{Record: lease.Record{ProfileID: profile}}, nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	floor, err := r.root.Floor(profile)
	if err != nil {
		r.t.Fatal(err)
	}
	sessionID := id.New("ses")
	next, err := entry.Record.Grant(r.host.Request(m, sessionID, r.keeper, floor), time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	s := r.host.New(m, next, r.path, slot, id.Secret())
	if entry.Record.State == lease.ResumePending {
		s.SetResume(entry.Record.ResumeFrom, resumed)
	}
	way := start(entry.Record)
	if err := way.Prepare(ctx, s); err != nil {
		s.Unmade()
		return nil, err
	}
	if _, err := r.store.Swap(ctx, entry, next); err != nil {
		return nil, errors.Join(err, s.Unanswered())
	}
	s.Granted()
	s.Hold(r.keeper)
	if err := errors.Join(way.Open(ctx, s), s.Fence().Check()); err != nil {
		return s, err
	}
	r.host.Enter(s)
	return s, nil
}

// occupy occupies the profile, with its lock.
func (r *room) occupy() *slots.Slot {
	r.t.Helper()
	slot := r.table.Occupy(profile)
	if slot == nil {
		r.t.Fatal("somebody has the profile")
	}
	if slot.IsWarm() {
		return slot
	}
	slot.Locked(r.lock())
	return slot
}

// lock takes the lock of the profile, which is free. A process that a parallel test is
// starting has it until its exec.
func (r *room) lock() (lock *profiledir.Lock) {
	r.t.Helper()
	r.await("the profile is not locked", func() bool {
		var err error
		lock, err = r.root.Lock(profile)
		if err != nil && !errors.Is(err, profiledir.ErrLocked) {
			r.t.Fatal(err)
		}
		return err == nil
	})
	return lock
}

func cold(lease.Record) Start { return Cold{} }

// begin begins a session in a browser of its own.
func (r *room) begin(m api.Manifest) *Session {
	r.t.Helper()
	s, err := r.grant(m, r.occupy(), cold)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// join begins one more session in the profile's browser.
func (r *room) join(m api.Manifest) (*Session, error) {
	r.t.Helper()
	slot := r.table.Find(profile)
	if !slot.TryLockRuns(patience) || !slot.Joinable() {
		r.t.Fatal("nobody may join")
	}
	defer slot.UnlockRuns()
	return r.grant(m, slot, func(lease.Record) Start { return Join{Begun: time.Now()} })
}

// record is the profile's.
func (r *room) record() lease.Record {
	r.t.Helper()
	e, err := r.store.Get(r.t.Context(), profile)
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Record
}

// await waits until something is so.
func (r *room) await(what string, so func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

// over waits until the session is over, and returns its file.
func (r *room) over(s *Session) sessionfile.File {
	r.t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		r.t.Fatal("the session does not end")
	}
	r.await("the profile is given up", func() bool {
		slot := r.table.Find(profile)
		return slot == nil || slot.State() != slots.Ending
	})
	f, err := r.files.Read(s.ID())
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// manifest is that of a sealed bundle.
func (r *room) manifest(evidenceID string) evidence.Manifest {
	r.t.Helper()
	raw, err := r.archive.Manifest(r.t.Context(), evidenceID)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := evidence.Decode(evidenceID, raw)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// bundles are the reasons of all bundles of the profile that are sealed, the oldest
// first, without pictures.
func (r *room) bundles() []string {
	r.t.Helper()
	all, err := r.archive.List(r.t.Context(), profile)
	if err != nil {
		r.t.Fatal(err)
	}
	reasons := []string{}
	for _, m := range slices.Backward(all) {
		if !m.IsPicture() {
			reasons = append(reasons, m.RecoveryReason)
		}
	}
	return reasons
}

// spooled are the bundles that were begun, and are neither sealed nor given up.
func (r *room) spooled() (begun []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "spool"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // it is no bundle
		}
		if _, err := os.Stat(filepath.Join(r.dir, "spool", e.Name(), evidence.ManifestName)); e.IsDir() && err != nil {
			begun = append(begun, e.Name())
		}
	}
	return begun
}

// counted is the value of a counter or gauge.
func (r *room) counted(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// journal are the entries of a session's journal on disk, each as its kind and name.
// journal is what a session's journal has, without what was seen of its cookies.
func (r *room) journal(s *Session) []string {
	r.t.Helper()
	entries, err := checkpoint.Read(r.files.Journal(s.ID()))
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Kind != checkpoint.KindCookie {
			all = append(all, strings.TrimSpace(string(e.Kind)+" "+e.Name))
		}
	}
	return all
}

// problem is the code of a refusal.
func problem(err error) string {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return fmt.Sprint(err)
}
