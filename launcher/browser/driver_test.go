package browser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// host has a driver, and one profile whose browser is a real Chromium.
type host struct {
	t       *testing.T
	files   sessionfile.Dir
	root    *profiledir.Root
	lock    *profiledir.Lock
	path    string
	options Options
	driver  *Driver
	end     func() // ends the driver and waits for it, as a launcher that exits

	mu      sync.Mutex
	entries []checkpoint.Entry
}

const profile, session = "shop", "s-1"

func newHost(t *testing.T, o Options) *host {
	t.Helper()
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, files: sessionfile.NewDir(dir, testkey.Key)}
	if _, err := h.files.Load(); err != nil {
		t.Fatal(err)
	}
	if h.root, err = profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key); err != nil {
		t.Fatal(err)
	}
	if h.path, err = h.root.Create(profile); err != nil {
		t.Fatal(err)
	}
	if o.Binary, err = chrome.Find(""); err != nil {
		t.Fatal(err)
	}
	if o.CloseTimeouts.Ask == 0 {
		o.CloseTimeouts = testchrome.Unhurried
	}
	o.Files, o.Root, o.Key, o.Log = h.files, h.root, testkey.Key, zerolog.New(zerolog.NewTestWriter(t))
	h.options = o
	h.launch()
	return h
}

// launch begins a launcher's time on the host.
func (h *host) launch() {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	o := h.options
	o.Metrics = prometheus.NewRegistry()
	h.driver = NewDriver(ctx, &work, o)
	work.Go(h.driver.Watch)
	h.end = sync.OnceFunc(func() { cancel(); work.Wait() })
	h.t.Cleanup(h.end)
}

func (h *host) sink(e checkpoint.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
}

// start locks the profile and starts its browser.
func (h *host) start() *Browser {
	h.t.Helper()
	h.locked(h.root.Lock)
	b, err := h.driver.Start(h.t.Context(), Start{SessionID: session, Token: 7, Lock: h.lock, Path: h.path, Headless: true, Sink: h.sink, Log: h.options.Log})
	if err != nil {
		h.t.Fatal(err)
	}
	h.endAtLast(b)
	return b
}

// endAtLast kills a browser that a failed test did not close, with its helpers: one that is
// stopped would not end by itself.
func (h *host) endAtLast(b *Browser) {
	h.t.Cleanup(func() {
		if !h.t.Failed() {
			return
		}
		_ = unix.Kill(-b.PID(), unix.SIGKILL)
	})
}

// locked takes the profile's lock. A process that a parallel test is starting may have
// it until its exec.
func (h *host) locked(lock func(string) (*profiledir.Lock, error)) {
	h.t.Helper()
	var err error
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(10 * time.Millisecond) {
		if h.lock, err = lock(profile); err == nil {
			h.t.Cleanup(func() { _ = h.lock.Unlock() })
			return
		}
		if !errors.Is(err, profiledir.ErrLocked) || time.Now().After(end) {
			h.t.Fatal(err)
		}
	}
}

func (h *host) open(b *Browser, url string) {
	h.t.Helper()
	if err := b.Mux().Call(h.t.Context(), "Target.createTarget", map[string]string{"url": url}, nil); err != nil {
		h.t.Fatal(err)
	}
}

// TestADirectoryThatWasLeftIsNotOpened, whoever asks for it and for whatever: it was marked when
// the profile got another home, or was about to.
func TestADirectoryThatWasLeftIsNotOpened(t *testing.T) {
	h := newHost(t, Options{})
	h.locked(h.root.Lock)
	start := func() (*Browser, error) {
		return h.driver.Start(t.Context(), Start{SessionID: session, Token: 7, Lock: h.lock, Path: h.path, Headless: true, Sink: h.sink, Log: h.options.Log})
	}
	for _, pending := range []bool{true, false} {
		if err := h.lock.Depart(profiledir.Departure{Home: "there", Token: 8, At: time.Now(), Pending: pending}); err != nil {
			t.Fatal(err)
		}
		b, err := start()
		if b != nil {
			h.endAtLast(b)
		}
		var departed *profiledir.DepartedError
		if !errors.As(err, &departed) {
			t.Fatalf("pending %t: %v", pending, err)
		}
	}
	if made, err := os.ReadDir(h.path); err != nil || len(made) > 0 {
		t.Errorf("in the directory: %v, %v", made, err)
	}
	if err := h.lock.Unlock(); err != nil {
		t.Error(err)
	}
}

// reported waits until the monitor has reported such an entry.
func (h *host) reported(what string, is func(checkpoint.Entry) bool) {
	h.t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		found := slices.ContainsFunc(h.entries, is)
		h.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s is not among what the monitor reported", what)
		}
	}
}

// page waits until the monitor has a page of this URL, and returns it.
func (h *host) page(b *Browser, url string) capture.Page {
	h.t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
		pages := b.Monitor().Pages()
		if at := slices.IndexFunc(pages, func(p capture.Page) bool { return p.URL == url && p.SessionID != "" }); at >= 0 {
			return pages[at]
		}
		if time.Now().After(end) {
			h.t.Fatalf("the monitor has no page of %s: %+v", url, pages)
		}
	}
}

// titles returns the titles of all targets, once one of them is the wanted one.
func (h *host) titles(b *Browser, want string) (titles []string) {
	h.t.Helper()
	for end := time.Now().Add(testchrome.Patience); time.Now().Before(end) && !slices.Contains(titles, want); time.Sleep(10 * time.Millisecond) {
		var targets struct{ TargetInfos []struct{ Title string } }
		if err := b.Mux().Call(h.t.Context(), "Target.getTargets", nil, &targets); err != nil {
			h.t.Fatal(err)
		}
		titles = nil
		for _, i := range targets.TargetInfos {
			titles = append(titles, i.Title)
		}
	}
	if !slices.Contains(titles, want) {
		h.t.Fatalf("the targets are %q, want %q among them", titles, want)
	}
	return titles
}

func TestABrowserIsClosed(t *testing.T) {
	quick := chrome.CloseTimeouts{Ask: 200 * time.Millisecond, Interrupt: 200 * time.Millisecond, Kill: testchrome.Patience}
	for _, c := range []struct {
		name   string
		bounds chrome.CloseTimeouts
		before func(*host, *Browser)
		want   chrome.CloseMethod
		kept   bool // the cookies were asked for
	}{
		{"in order", chrome.CloseTimeouts{}, func(*host, *Browser) {}, chrome.ClosedByCDP, true},
		{"stopped", quick, func(_ *host, b *Browser) { _ = unix.Kill(b.PID(), unix.SIGSTOP) }, chrome.ClosedByKill, true},
		{"gone already", chrome.CloseTimeouts{}, func(_ *host, b *Browser) { _ = unix.Kill(b.PID(), unix.SIGKILL); <-b.Exited() }, chrome.AlreadyExited, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{CloseTimeouts: c.bounds})
			b := h.start()
			if run, ok, err := h.root.Running(profile); err != nil || !ok || run.PID != b.PID() || run.SessionID != session || run.Token != 7 || run.PipeLog == "" {
				t.Errorf("noted as running: %+v, %t, %v", run, ok, err)
			}
			h.open(b, "data:text/html,seen")
			h.reported("the page", func(e checkpoint.Entry) bool { return strings.HasPrefix(e.URL, "data:") })
			c.before(h, b)
			kept := false
			keep := func(context.Context, sessionfile.Caller, string) error { kept = true; return nil }
			method, err := b.Close(profile, keep, h.options.Log)
			if err != nil || method != c.want || kept != c.kept {
				t.Errorf("closed by %q, cookies asked for: %t, error %v; want %q, %t", method, kept, err, c.want, c.kept)
			}
			now, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.root.WaitUnused(now, profile); err != nil {
				t.Errorf("still in use: %v", err)
			}
		})
	}
}

// The next launcher has the same browser, with the same pages.
func TestABrowserIsTakenOver(t *testing.T) {
	h := newHost(t, Options{})
	first := h.start()
	h.open(first, "data:text/html,<title>half%20typed</title>")
	running, _, err := h.root.Running(profile)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	h.end()
	if err := h.lock.Unlock(); err != nil {
		t.Fatal(err)
	}

	h.launch()
	h.locked(h.root.Adopt)
	b := h.driver.Adopt(running, h.path, lease.Appearance{}, h.sink, h.options.Log)
	if !b.Driven() || b.PID() != first.PID() || !b.HasPipeLog() {
		t.Fatalf("adopted: driven %t, %+v", b.Driven(), b)
	}
	if titles := h.titles(b, "half typed"); !slices.Contains(titles, "half typed") {
		t.Errorf("its pages are %q", titles)
	}
	if method, err := b.Close(profile, nil, h.options.Log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %q, %v", method, err)
	}
	if b := h.driver.Adopt(running, h.path, lease.Appearance{}, h.sink, h.options.Log); b != nil {
		t.Errorf("a browser that is gone was adopted: %+v", b)
	}
}

// noPipes has no pipe of a browser that is there.
type noPipes struct{ Kernel }

func (noPipes) Adopt(chrome.Identity, chrome.AdoptOptions) (Process, error) {
	return nil, errors.New("too many open files")
}

// TestABrowserThatCannotBeTakenOverSendsNothing: it is closed by signals. What the worker of the launcher before had
// paused, and what its pages send when they are closed, never leaves it.
func TestABrowserThatCannotBeTakenOverSendsNothing(t *testing.T) {
	h, site := newHost(t, Options{Processes: noPipes{}}), newWriter(t)
	b := h.start()
	h.open(b, site.URL+"/order")
	h.titles(b, "order")
	page := h.page(b, site.URL+"/order")
	worker, err := b.Mux().Observe(t.Context(), "Fetch.requestPaused")
	if err != nil {
		t.Fatal(err)
	}
	var in struct{ SessionID string }
	call := func(session, method string, params, result any) {
		t.Helper()
		if err := worker.Call(t.Context(), session, method, params, result); err != nil {
			t.Fatal(err)
		}
	}
	call("", "Target.attachToTarget", map[string]any{"targetId": page.TargetID, "flatten": true}, &in)
	call(in.SessionID, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*paused"}}}, nil)
	call(in.SessionID, "Runtime.evaluate", map[string]string{"expression": "fetch('/write?n=paused', {method: 'POST', body: 'x'})"}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	defer cancel()
	if _, err := worker.Next(ctx); err != nil {
		t.Fatalf("the worker pauses nothing: %v", err)
	}
	b = h.adopted(b, lease.Appearance{})
	if b.Driven() {
		t.Fatal("its pipe was had")
	}
	preserved := false
	method, err := b.ClosePreserved(profile, nil, func() error { preserved = true; return nil }, h.options.Log)
	if err != nil || method != chrome.ClosedByInterrupt || !preserved {
		t.Errorf("closed by %q, %v; its evidence was asked for: %t", method, err, preserved)
	}
	site.quiet(t)
	if got := site.from(0); len(got) > 0 {
		t.Errorf("it sent %q", got)
	}
}

func TestABrowserThatHangsIsGivenUp(t *testing.T) {
	h := newHost(t, Options{HangTimeout: 2 * time.Second, CloseTimeouts: chrome.CloseTimeouts{Ask: 200 * time.Millisecond, Interrupt: 200 * time.Millisecond}})
	b := h.start()
	if f := b.Failure(); f != (Failure{}) {
		t.Fatalf("a healthy browser: %+v", f)
	}
	if err := unix.Kill(b.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Failed():
	case <-time.After(testchrome.Patience):
		t.Fatal("it is not given up")
	}
	if f := b.Failure(); f.Reason != api.ReasonBrowserHangs || !strings.Contains(f.Detail, "stopped") {
		t.Errorf("%+v", f)
	}
	if st := b.State(t.Context(), time.Time{}); st.PID != b.PID() || st.Failure != b.Failure().Detail || st.ExitStatus != "" {
		t.Errorf("its state for the evidence: %+v", st)
	}
	if method, err := b.Close(profile, nil, h.options.Log); err != nil || !method.Killed() {
		t.Errorf("closed by %q, %v", method, err)
	}
}
