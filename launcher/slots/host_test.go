package slots

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// host has a table with real directories, locks and (scripted) browsers.
type host struct {
	t       testing.TB
	table   *Table
	root    *profiledir.Root
	files   sessionfile.Dir
	jar     sessionfile.Jar
	driver  *browser.Driver
	metrics *prometheus.Registry
	log     testlog.Buffer
	work    sync.WaitGroup
	limit   int // how many browsers may run; zero: any number

	mu      sync.Mutex
	started []*browser.Browser
}

func newHost(t testing.TB, o Options) *host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, limit: o.MaxBrowsers, files: sessionfile.NewDir(dir, testkey.Key), jar: sessionfile.NewJar(dir, testkey.Key), metrics: prometheus.NewRegistry()}
	if _, err := h.files.Load(); err != nil {
		t.Fatal(err)
	}
	if h.root, err = profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.Root, o.Jar, o.Metrics, o.Log = h.root, h.jar, h.metrics, zerolog.New(&h.log)
	if o.DataDir == "" {
		o.DataDir = dir
	}
	h.table = NewTable(ctx, &h.work, o)
	h.driver = browser.NewDriver(ctx, &h.work, browser.Options{Binary: fakechrome.Binary(t), Key: testkey.Key, Files: h.files, Root: h.root, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	t.Cleanup(func() {
		h.table.Drain() // it closes what is warm
		cancel()
		h.work.Wait()
	})
	return h
}

// start starts the occupied profile's browser, as a grant does.
func (h *host) start(s *Slot, sessionID string) {
	path, err := h.root.Create(s.Profile())
	if err != nil {
		h.t.Error(err)
		return
	}
	for s.Lock() == nil {
		lock, err := h.root.Lock(s.Profile())
		if errors.Is(err, profiledir.ErrLocked) {
			continue // a process that another test is starting has it until its exec
		}
		if err != nil {
			h.t.Error(err)
			return
		}
		s.Locked(lock)
	}
	b, err := h.driver.Start(context.Background(), browser.Start{SessionID: sessionID, Lock: s.Lock(), Path: path, Sink: s.Note, Log: zerolog.Nop()})
	if err != nil {
		h.t.Error(err)
		return
	}
	s.Opened(b, sessionID, &Fit{headless: true})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = append(h.started, b)
	running := 0
	for _, b := range h.started {
		select {
		case <-b.Exited():
		default:
			running++
		}
	}
	if h.limit > 0 && running > h.limit {
		h.t.Errorf("%d browsers run, and %d may", running, h.limit)
	}
}

// close is the end of the occupied profile's browser, whose session is over.
func (h *host) close(s *Slot) {
	_, err := s.Browser().Close(s.Profile(), nil, zerolog.Nop())
	if err = errors.Join(err, s.Lock().ClearRunning(), s.Lock().Unlock()); err != nil {
		h.t.Error(err)
	}
}

// warm is a profile whose browser waits for the next task.
func (h *host) warm(profile string) *browser.Browser {
	h.t.Helper()
	s := h.table.Occupy(profile)
	if s == nil {
		h.t.Fatalf("%s is occupied", profile)
	}
	if p := s.TakePlace(&Waiter{}); p != nil {
		h.t.Fatal(p)
	}
	h.start(s, "ses_"+profile)
	b := s.Browser() // it may be closed as soon as it is warm
	h.serve(s)
	return b
}

// serve has a session use the browser and leave it open.
func (h *host) serve(s *Slot) {
	run := &run{}
	s.Enter(run)
	if !s.Leave(run) {
		h.t.Errorf("others are on %s", s.Profile())
	}
	s.Park("ses_" + s.Profile())
}

// counted is a metric's value; label is that of its only label, or empty.
func (h *host) counted(name, label string) float64 {
	h.t.Helper()
	families, err := h.metrics.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// vacant waits until nobody is at work on the profile any more, and checks that its
// browser ended in order.
func (h *host) vacant(profile string, b *browser.Browser) {
	h.t.Helper()
	for {
		changed := h.table.Changed()
		if h.table.Find(profile) == nil {
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			h.t.Fatalf("%s is never vacant", profile)
		}
	}
	select {
	case <-b.Exited():
	default:
		h.t.Errorf("%s is vacant, and its browser runs", profile)
	}
	if _, running, err := h.root.Running(profile); running || err != nil {
		h.t.Errorf("a browser is said to run on %s: %v", profile, err)
	}
	// A child that a parallel test starts has this process's locks until its exec.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		held, err := h.root.Held(profile)
		if err == nil && !held {
			return
		}
		if err != nil || time.Now().After(deadline) {
			h.t.Errorf("the lock of %s is kept: %v", profile, err)
			return
		}
	}
}

// kill ends a browser as a crash does.
func (h *host) kill(b *browser.Browser) {
	if err := unix.Kill(b.PID(), unix.SIGKILL); err != nil {
		h.t.Error(err)
	}
	<-b.Exited()
}

// run is a session on a slot.
type run struct {
	token lease.Token
	mu    sync.Mutex
	notes []string
	seen  []lease.Token
}

func (r *run) Token() lease.Token { return r.token }

func (r *run) Note(e checkpoint.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, e.Name)
}

func (r *run) Observe(record lease.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, record.Token)
}

func (r *run) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.notes)
}

// refused is the code of a problem; empty: there is none.
func refused(p *api.Problem) string {
	if p == nil {
		return ""
	}
	return p.Code
}
