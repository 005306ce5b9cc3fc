package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/natsd"
	"leasehold/internal/procfs"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/leaks"
	"leasehold/internal/test/testkey"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds waits that end by themselves unless something is broken.
const patience = time.Minute

var timing = lease.Timing{TTL: 30 * time.Second}

// host is what outlives a launcher: its disk, the browsers and the lease store.
type host struct {
	*testing.T
	dir   string // the launchers' data directory
	root  *profiledir.Root
	files sessionfile.Dir
	said  testlog.Buffer

	store *store // nil: this host has none
}

// store is a lease store whose answers a test can change.
type store struct {
	lease.Store
	// getting is called before each Get; its error is the answer.
	getting func(profile string) error
}

func (s *store) Get(ctx context.Context, profile string) (lease.Entry, error) {
	if s.getting != nil {
		if err := s.getting(profile); err != nil {
			return lease.Entry{}, err
		}
	}
	return s.Store.Get(ctx, profile)
}

// newHost returns a host without a lease store.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{T: t, dir: t.TempDir()}
	h.files = sessionfile.NewDir(h.dir, testkey.Key)
	root, err := profiledir.Open(filepath.Join(h.dir, "profiles"), testkey.Key)
	h.must(err)
	h.root = root
	_, err = h.files.Load() // it makes the folder
	h.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", h.said.String())
		}
	})
	return h
}

// newStoredHost returns a host with a lease store.
func newStoredHost(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	server, err := natsd.Start(natsd.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	h.must(err)
	t.Cleanup(server.Shutdown)
	nc, err := server.Connect()
	h.must(err)
	t.Cleanup(nc.Close)
	s, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: "here"})
	h.must(err)
	t.Cleanup(s.Close)
	h.store = &store{Store: s}
	return h
}

// newReleased returns a host with a store, and the record of its profile "p", whose last session "ses_p" was released.
func newReleased(t *testing.T) (*host, lease.Record) {
	t.Helper()
	h := newStoredHost(t)
	free := h.released(h.granted(lease.Record{ProfileID: "p"}, "ses_p"))
	free = h.change("p", func(lease.Record) (lease.Record, error) { return free, nil })
	h.keep(free)
	return h, free
}

func (h *host) must(errs ...error) {
	h.Helper()
	if err := errors.Join(errs...); err != nil {
		h.Fatal(err)
	}
}

func (h *host) log() zerolog.Logger { return zerolog.New(&h.said) }

// archive opens the launchers' archive: its store is a directory.
func (h *host) archive() (*evidence.Archive, error) {
	spool, err := evidence.OpenSpool(filepath.Join(h.dir, "spool"))
	if err != nil {
		return nil, err
	}
	stored, err := evidence.OpenDirStore(filepath.Join(h.dir, "evidence"))
	return evidence.NewArchive(spool, stored, h.log()), err
}

// launcher is an adopter, with the rooms that it works with. Only the presence is played.
type launcher struct {
	*Adopter
	h        *host
	presence *presence
	archive  *evidence.Archive
	metrics  *prometheus.Registry
	cancel   context.CancelFunc
}

// presence is a launcher's, as far as an adopter knows it.
type presence struct {
	keeper *lease.Keeper
	err    error // there is none
	over   bool  // the leases of the launcher before have expired
	shared error // of directories that another host could have open
}

func (p *presence) Current() (*lease.Keeper, error) { return p.keeper, p.err }
func (p *presence) Continues(epoch uint64) bool     { return epoch == 1 && !p.over }

// launch starts the next launcher of the host, which reads what the one before left. Its
// presence has an epoch above 1, that of the leases before.
func (h *host) launch(change func(*Options)) *launcher {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &launcher{h: h, presence: &presence{}, metrics: prometheus.NewRegistry(), cancel: cancel}
	work, log, jar := &sync.WaitGroup{}, h.log(), sessionfile.NewJar(h.dir, testkey.Key)
	h.Cleanup(l.end)
	o := Options{Root: h.root, Files: h.files, Jar: jar, Presence: l.presence, Log: log, Metrics: l.metrics}
	var err error
	l.archive, err = h.archive()
	h.must(err)
	o.Driver = browser.NewDriver(ctx, work, browser.Options{Key: testkey.Key, Files: h.files, Root: h.root, Log: log, Metrics: l.metrics})
	o.Slots = slots.NewTable(ctx, work, slots.Options{Root: h.root, Jar: jar, DataDir: h.dir, KeepWarmIdle: time.Hour, KeepWarmMax: 9, Log: log, Metrics: l.metrics})
	if h.store != nil {
		o.Store = h.store
		announcer := session.NewAnnouncer("here", h.store, log, l.metrics)
		o.Recoverer = recovery.New(recovery.Options{
			LauncherID: "here", DataDir: h.dir, Key: testkey.Key, Root: h.root, Jar: jar, Archive: l.archive, Store: h.store,
			Witnesses: witness.List(witness.Options{Root: h.root, Files: h.files, Archive: l.archive}), WroteLate: announcer.WroteLate, SharedReady: func(string) error { return l.presence.shared }, Log: log, Metrics: l.metrics,
		})
		roots, err := fileroots.New(fileroots.Options{Private: []string{h.dir}, DataDir: h.dir})
		h.must(err)
		o.Sessions, err = session.NewRegistry(ctx, work, session.Options{
			FileRoots:  roots,
			LauncherID: "here", BootID: boottime.ID(), Timing: timing, ReconnectGrace: time.Minute, PersonGrace: time.Minute, Headless: true, LeaveOnExit: func() bool { return true },
			Store: h.store, Root: h.root, Archive: l.archive, Files: h.files, Jar: jar, Slots: o.Slots, Driver: o.Driver, Recoverer: o.Recoverer,
			Announcer: announcer, Log: log, Metrics: l.metrics,
		})
		h.must(err)
		before, err := h.store.Presence(ctx, "here")
		h.must(err)
		l.presence.keeper, err = lease.Keep(ctx, lease.Presence{LauncherID: "here", BootID: boottime.ID()}, before, 1,
			lease.KeeperOptions{Store: h.store, Timing: timing, Clock: boottime.Now, Expiring: func(time.Duration) {}})
		h.must(err)
	}
	if change != nil {
		change(&o)
	}
	l.Adopter = New(ctx, work, o)
	return l
}

// end ends the launcher as if it were killed, but for its browsers' sake in order: what it
// still serves is left.
func (l *launcher) end() {
	if l.Adopter == nil {
		l.cancel()
		return
	}
	if l.o.Sessions != nil {
		l.o.Sessions.Drain()
		for len(l.o.Sessions.Living()) > 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.cancel()
	l.work.Wait()
	if l.presence.keeper != nil {
		l.presence.keeper.Stop()
	}
}

// adopts has the launcher look after a profile, and returns its record when it has. The
// session, if it goes on, is living then. The pause after an earlier try is over.
func (l *launcher) adopts(profile string) lease.Record {
	l.h.Helper()
	l.retries.mu.Lock()
	for profile, f := range l.retries.failed {
		f.next = time.Time{}
		l.retries.failed[profile] = f
	}
	l.retries.mu.Unlock()
	l.Adopt(l.h.record(profile))
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		slot := l.o.Slots.Find(profile)
		if slot == nil || slot.State() == slots.Serving || slot.State() == slots.Warm {
			return l.h.record(profile)
		}
		if time.Now().After(end) {
			l.h.Fatalf("%s is %s", profile, slot.State())
		}
	}
}

// adoptions is what the metric counts.
func (l *launcher) adoptions() float64 {
	l.h.Helper()
	all, err := l.metrics.Gather()
	l.h.must(err)
	for _, m := range all {
		if m.GetName() == "leasehold_adoptions_total" {
			return m.GetMetric()[0].GetCounter().GetValue()
		}
	}
	l.h.Fatal("adoptions are not counted")
	return 0
}

// record is the profile's in the store; without a state where there is none.
func (h *host) record(profile string) lease.Record {
	h.Helper()
	e, err := h.store.Store.Get(h.Context(), profile)
	if errors.Is(err, lease.ErrNotFound) {
		return lease.Record{ProfileID: profile}
	}
	h.must(err)
	return e.Record
}

// change changes the profile's record in the store.
func (h *host) change(profile string, fn func(lease.Record) (lease.Record, error)) lease.Record {
	h.Helper()
	e, err := lease.Change(h.Context(), h.store.Store, profile, func(e lease.Entry) (lease.Record, error) { return fn(e.Record) })
	h.must(err)
	return e.Record
}

// request is that of a session's grant, by a launcher in its epoch 1.
func request(sessionID string) lease.Request {
	return lease.Request{
		SessionID: sessionID, WorkerID: "w", TaskID: "t", LauncherID: "here", BootID: boottime.ID(), PresenceEpoch: 1, TTL: timing.TTL,
	}
}

// granted makes the record of a session that was granted over r, which has no state or is free.
func (h *host) granted(r lease.Record, sessionID string) lease.Record {
	h.Helper()
	r, err := r.Grant(request(sessionID), time.Now())
	h.must(err)
	return r
}

// released makes the record after a session in order.
func (h *host) released(r lease.Record) lease.Record {
	h.Helper()
	r, err := r.Release(api.ReasonReleased, "succeeded", lease.Sealed{EvidenceID: "ev_of_the_release"}, time.Now())
	h.must(err)
	return r
}

// fileOf is what is on disk of a session that serves.
func fileOf(r lease.Record) sessionfile.File {
	return sessionfile.File{
		SessionID: r.SessionID, CapabilityHash: sessionfile.HashCapability("secret of " + r.SessionID), Token: r.Token, AcquiredAt: r.AcquiredAt, SeenAt: r.HeartbeatAt,
		Manifest: api.Manifest{ProfileID: r.ProfileID, WorkerID: r.OwnerWorkerID, TaskID: r.TaskID},
	}
}

// keep makes the profile's directory, and keeps a record beside it.
func (h *host) keep(r lease.Record) {
	h.Helper()
	_, err := h.root.Create(r.ProfileID)
	h.must(err)
	lock := h.lock(r.ProfileID)
	h.must(lock.RaiseFloor(r), lock.Unlock())
}

// journal writes a session's journal.
func (h *host) journal(sessionID string, entries ...checkpoint.Entry) {
	h.Helper()
	j, err := checkpoint.Open(h.files.Journal(sessionID))
	h.must(err)
	for _, e := range entries {
		e.At = time.Now().UTC()
		_, err := j.Append(e)
		h.must(err)
	}
	h.must(j.Close())
}

// serves leaves what a killed launcher leaves of a session on the profile: its lease, its
// record beside the profile, its file and its journal.
func (h *host) serves(profile string) lease.Record {
	h.Helper()
	r := h.change(profile, func(r lease.Record) (lease.Record, error) { return h.granted(r, "ses_"+profile), nil })
	h.keep(r)
	h.must(h.files.Save(fileOf(r)))
	h.journal(r.SessionID,
		checkpoint.Entry{Kind: checkpoint.KindStart, Name: "t", Text: "w"},
		checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/cart"},
		checkpoint.Entry{Kind: checkpoint.KindStep, Name: "fill_in"})
	return r
}

// browser starts a browser for the session of a record, by a launcher that then lets go of
// it. Chrome alone has the profile's lock afterwards.
func (h *host) browser(r lease.Record) chrome.Identity { return h.browserAt(r, nil) }

// browserAt is browser with a proxy that wants credentials; nil: it has none.
func (h *host) browserAt(r lease.Record, proxy *proxies.Proxy) chrome.Identity {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	d := browser.NewDriver(ctx, &work, browser.Options{Binary: fakechrome.Binary(h), Key: testkey.Key, Files: h.files, Root: h.root, Log: h.log(), Metrics: prometheus.NewRegistry()})
	path, err := h.root.Create(r.ProfileID)
	h.must(err)
	lock := h.lock(r.ProfileID)
	start := browser.Start{SessionID: r.SessionID, Token: r.Token, Lock: lock, Path: path, Headless: true, Sink: func(checkpoint.Entry) {}, Log: h.log()}
	if proxy != nil {
		relay, err := proxies.Open(proxy, path, chrome.UsesProxy, h.log())
		h.must(err)
		defer func() { h.must(relay.Close()) }()
		start.Proxy, start.ProxySocket = relay.URL(), relay.Reserved()
	}
	b, err := d.Start(ctx, start)
	h.must(err)
	running, _, err := h.root.Running(r.ProfileID)
	h.must(err, b.Detach(), lock.Unlock())
	h.unlocked(r.ProfileID) // also by what another test starts, which has it until it is executed
	id := chrome.Identity{PID: running.PID, StartTime: running.StartTime, BootID: running.BootID}
	h.Cleanup(func() {
		if h.lives(id) {
			if !h.Failed() {
				h.Errorf("browser %d was left", id.PID)
			}
			_ = unix.Kill(-id.PID, unix.SIGKILL)
		}
		if _, err := unix.Wait4(id.PID, nil, 0, nil); err != nil { // nobody else waits for it
			h.Error(err)
		}
	})
	return id
}

// lives tells whether a browser's main process lives.
func (h *host) lives(id chrome.Identity) bool {
	p, err := procfs.Read(id.PID)
	return err == nil && p.StartTime == id.StartTime && p.Alive()
}

// await waits until something is so.
func (h *host) await(what string, so func() bool) {
	h.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("never: %s", what)
		}
	}
}

// lock takes the lock of a profile, which is free. A child that a parallel test starts has
// this process's locks until its exec, so tests that take or look at one wait for that.
func (h *host) lock(profile string) (lock *profiledir.Lock) {
	h.Helper()
	h.await("the lock of "+profile+" is free", func() bool {
		var err error
		if lock, err = h.root.Lock(profile); errors.Is(err, profiledir.ErrLocked) {
			return false
		}
		h.must(err)
		return true
	})
	return lock
}

// unlocked waits until no launcher has the profile's lock.
func (h *host) unlocked(profile string) {
	h.Helper()
	h.await("no launcher has the lock of "+profile, func() bool {
		held, err := h.root.Held(profile)
		h.must(err)
		return !held
	})
}

// file is what is on disk of a session.
func (h *host) file(sessionID string) sessionfile.File {
	h.Helper()
	f, err := h.files.Read(sessionID)
	h.must(err)
	return f
}

// manifest is that of a sealed bundle.
func (l *launcher) manifest(evidenceID string) evidence.Manifest {
	l.h.Helper()
	raw, err := l.archive.Manifest(l.h.Context(), evidenceID)
	l.h.must(err)
	m, err := evidence.Decode(evidenceID, raw)
	l.h.must(err)
	return m
}

// entries are the kinds of those of the journal in a bundle.
func (l *launcher) entries(evidenceID string) (kinds []checkpoint.Kind) {
	l.h.Helper()
	b, err := l.archive.Part(l.h.Context(), evidenceID, "journal.jsonl")
	l.h.must(err)
	for line := range bytes.Lines(b) {
		var e checkpoint.Entry
		l.h.must(json.Unmarshal(line, &e))
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// bundles are the sealed bundles of a profile.
func (l *launcher) bundles(profile string) []evidence.Manifest {
	l.h.Helper()
	all, err := l.archive.List(l.h.Context(), profile)
	l.h.must(err)
	return all
}

// given checks that nobody has the profile's lock, and that no browser is known of.
func (h *host) given(profile string) {
	h.Helper()
	h.await("nobody has the lock of "+profile, func() bool {
		locked, err := h.root.Locked(profile)
		h.must(err)
		return !locked
	})
	_, running, err := h.root.Running(profile)
	h.must(err)
	if running {
		h.Errorf("%s: a browser is known of", profile)
	}
}
