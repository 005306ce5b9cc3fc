package recovery_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

const (
	profile  = "shop_018"
	session  = "ses_1"
	launcher = "launcher-1"
	token    = lease.Token(7)
	cooldown = 30 * time.Second
	cart     = "https://shop.example/cart"
)

// world is one host with a profile that a session has: real directories, a real
// archive, a scripted browser, and a lease store in memory.
type world struct {
	t         *testing.T
	ctx       context.Context
	work      sync.WaitGroup
	data      string
	path      string // of the profile's directory
	root      *profiledir.Root
	files     sessionfile.Dir
	spool     string
	bundles   *tracedBundles
	archive   *evidence.Archive
	leases    *memoryStore
	driver    *browser.Driver
	metrics   *prometheus.Registry
	r         *Recoverer
	log       zerolog.Logger
	wrote     bool // late, with the old token
	storeless bool // the recoverer makes no transitions

	lock    *profiledir.Lock
	browser *browser.Browser // nil: there is none
	faults  faults
	failed  bool // the case says that it is not complete
	// resumable says that the task named a checkpoint, and can resume from it.
	resumable bool

	mu    sync.Mutex
	trace []string
}

// newWorld is a world whose profile is held by the session, under the token, with no
// browser yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, data: filepath.Join(dir, "data"), spool: filepath.Join(dir, "spool"), leases: newMemoryStore(t),
	}
	w.root, err = profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	w.must(err)
	w.path, err = w.root.Create(profile)
	w.must(err)
	w.files = sessionfile.NewDir(w.data, testkey.Key)
	_, err = w.files.Load()
	w.must(err)
	spool, err := evidence.OpenSpool(w.spool)
	w.must(err)
	store, err := evidence.OpenDirStore(filepath.Join(dir, "evidence"))
	w.must(err)
	w.bundles = &tracedBundles{Store: store, w: w}
	w.archive = evidence.NewArchive(spool, w.bundles, zerolog.Nop())
	w.leases.Write = w.store
	w.log = zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(*zerolog.Event, zerolog.Level, string) { w.faults.pass() }))
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(t.Context())
	w.drives(chrome.CloseTimeouts{})
	t.Cleanup(func() {
		w.end()
		cancel()
		w.work.Wait()
	})
	w.r = w.recoverer(func(*Options) {})
	w.lock, err = w.root.Lock(profile)
	w.must(err)
	held, err := lease.Record{ProfileID: profile, Token: token - 1}.Grant(lease.Request{
		SessionID: session, WorkerID: "worker-7", TaskID: "task_101", AccountID: "store_18", LauncherID: launcher, TTL: 30 * time.Second,
	}, time.Now())
	w.must(err)
	w.leases.Put(held)
	w.must(w.lock.RaiseFloor(held))
	w.must(w.files.Save(w.file()))
	return w
}

// drives gives the world a driver whose closes have these bounds.
func (w *world) drives(bounds chrome.CloseTimeouts) {
	w.driver = browser.NewDriver(w.ctx, &w.work, browser.Options{Key: testkey.Key,
		Binary: fakechrome.Binary(w.t), Files: w.files, Root: w.root, CloseTimeouts: bounds, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	})
}

// recoverer is a recoverer of this world.
func (w *world) recoverer(change func(*Options)) *Recoverer {
	w.metrics = prometheus.NewRegistry()
	o := Options{
		LauncherID: launcher, DataDir: w.data, Key: testkey.Key, Root: w.root, Jar: sessionfile.NewJar(w.data, testkey.Key), Archive: w.archive, Store: w.leases, Cooldown: cooldown,
		Witnesses: w.witnesses(nil),
		WroteLate: func(id string) bool { return w.wrote && id == session }, Log: zerolog.Nop(), Metrics: w.metrics,
	}
	change(&o)
	w.storeless = o.Store == nil
	return New(o)
}

// witnesses are those of this world, where these proxies are configured.
func (w *world) witnesses(set *proxies.Set) func(Browser) []Witness {
	return witness.List(witness.Options{Root: w.root, Files: w.files, Archive: w.archive, Proxies: set})
}

// file is the session's file, as it is at the end of its work.
func (w *world) file() sessionfile.File {
	return sessionfile.File{Manifest: api.Manifest{Resumable: w.resumable}, SessionID: session, Token: token, AcquiredAt: time.Now().Add(-time.Minute), SeenAt: time.Now(), Reason: api.ReasonConnectionLost}
}

// open starts the profile's browser.
func (w *world) open(s fakechrome.Script) {
	w.t.Helper()
	fakechrome.Direct(w.t, w.path, s)
	if s.Stubborn { // the other browsers get as long as they take
		w.drives(chrome.CloseTimeouts{Ask: time.Second, Interrupt: 100 * time.Millisecond})
	}
	b, err := w.driver.Start(w.t.Context(), browser.Start{
		SessionID: session, Token: token, Lock: w.lock, Path: w.path, Headless: true, Sink: func(checkpoint.Entry) {}, Log: zerolog.Nop(),
	})
	if b != nil {
		w.browser = b
	}
	w.must(err)
}

// caseOf is how a session puts its end to the recoverer.
func (w *world) caseOf(goal Goal) Case {
	f := w.file()
	if goal == Release {
		f.Reason, f.Outcome = api.ReasonReleased, "succeeded"
	}
	journal := []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: cart, At: time.Now()}}
	if w.resumable {
		journal = append(journal, checkpoint.Entry{Kind: checkpoint.KindStep, Name: "list", At: time.Now()},
			checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true, At: time.Now()})
	}
	return Case{
		Goal: goal, File: f, Profile: profile, Path: w.path, Lock: w.lock, Browser: witness.Of(w.browser), Log: w.log,
		Keep:    func(context.Context, sessionfile.Caller, string) error { w.closes(); return nil },
		Journal: func() []checkpoint.Entry { return journal },
		Bundle:  func() *evidence.Bundle { return w.bundle(f) },
		Latest:  func(r lease.Record) lease.Record { return Latest(r, journal) },
		Sealed: func(sealed sessionfile.File) error {
			w.note("file")
			return w.faults.write(func() error { return w.files.Save(sealed) })
		},
		StopRenewing:  func() { w.note("stop") },
		DetachClients: func() { w.note("clients") },
	}
}

// bundle is a small one of a session, which names the profile's bundle before it.
func (w *world) bundle(f sessionfile.File) *evidence.Bundle {
	if w.faults.write(func() error { return nil }) != nil {
		return nil // the disk is full
	}
	m := w.r.Manifest(w.leases.record(), time.Now())
	m.LeaseToken, m.RecoveryReason = uint64(f.Token), f.Reason
	b, err := w.archive.New(m)
	if err != nil {
		return nil // as Capture does
	}
	w.must(b.Add("journal.jsonl", "journal", "application/x-ndjson", []byte("{}")))
	return b
}

// note adds to the trace of what is seen from outside. Behind a slash stands what became
// of the browser by then.
func (w *world) note(what string) {
	switch {
	case w.browser == nil:
	case w.gone():
		what += "/gone"
	case w.letGo():
		what += "/detached"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, what)
}

// closes says that the browser is about to be closed: never before something is sealed.
func (w *world) closes() {
	w.note("close")
	if w.sealed() == 0 {
		w.t.Error("a browser is closed before a bundle is sealed")
	}
}

// traced is the trace until now, which begins anew.
func (w *world) traced() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.trace, " ")
	w.trace = nil
	return all
}

// gone tells whether the browser's process has ended.
func (w *world) gone() bool {
	select {
	case <-w.browser.Exited():
		return true
	default:
		return false
	}
}

// letGo tells whether nobody serves the browser's pipe any more.
func (w *world) letGo() bool {
	select {
	case <-w.browser.Mux().Done():
		return true
	default:
		return false
	}
}

// end gives up what the world still has, as the end of its process would, and kills the
// browser.
func (w *world) end() {
	if w.browser != nil && !w.gone() {
		w.must(w.browser.Detach())
		w.must(unix.Kill(w.browser.PID(), unix.SIGKILL))
		for left := 1; left > 0; time.Sleep(time.Millisecond) {
			named, err := profiledir.Processes(w.path)
			w.must(err)
			left = len(named)
		}
	}
	w.must(w.lock.Unlock())
}

// sealed counts the profile's bundles.
func (w *world) sealed() int {
	list, err := w.archive.List(context.Background(), profile)
	w.must(err)
	return len(list)
}

func (w *world) must(errs ...error) {
	w.t.Helper()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

// fullDisk makes the spool one that takes nothing.
func (w *world) fullDisk() {
	w.must(os.Rename(w.spool, w.spool+".away"))
	w.must(os.WriteFile(w.spool, nil, 0o600))
}

// tracedBundles is an evidence store that tells of each bundle.
type tracedBundles struct {
	evidence.Store
	w    *world
	away bool
}

func (b *tracedBundles) Put(ctx context.Context, s *evidence.Sealed) error {
	b.w.note("evidence")
	if b.away {
		return errFault
	}
	return b.w.faults.write(func() error { return b.Store.Put(ctx, s) })
}

// store writes a record. Nobody has the profile after its session before a bundle is
// sealed.
func (w *world) store(prev, next lease.Record, store func()) error {
	w.note(said(prev, next))
	switch next.State {
	case lease.Inspected, lease.Available, lease.ResumePending, lease.ManualReview:
		if _, err := w.archive.Manifest(context.Background(), next.EvidenceID); err != nil {
			w.t.Errorf("%s without evidence: %v", next.State, err)
		}
	}
	if w.faults.write(func() error { store(); return nil }) != nil {
		return lease.ErrUnavailable
	}
	return nil
}

var errFault = errors.New("a fault of the test's own")

// refusing is a lease store that cannot be reached for some of the writes.
func (w *world) refusing(which func(next lease.Record) bool) func(prev, next lease.Record, store func()) error {
	return func(prev, next lease.Record, store func()) error {
		if which(next) {
			w.note(said(prev, next))
			return lease.ErrUnavailable
		}
		return w.store(prev, next, store)
	}
}

// restate changes the record as somebody else does.
func (w *world) restate(steps ...func(lease.Record) (lease.Record, error)) {
	w.t.Helper()
	for _, step := range steps {
		r, err := step(w.leases.record())
		w.must(err)
		w.leases.Put(r)
	}
}
