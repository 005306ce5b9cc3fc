package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// warm is a room whose profile has a warm browser, and the browser's pid.
func warm(t *testing.T) (r *room, pid int) {
	t.Helper()
	return warmIn(t, roomOptions{}, `[{"name":"sid","value":"1","domain":"shop.example","path":"/","session":true,"expires":-1}]`)
}

// warmIn is warm with other options, and these cookies.
func warmIn(t *testing.T, o roomOptions, cookies string) (r *room, pid int) {
	t.Helper()
	o.warm, o.keep = true, new(true)
	r = newRoom(t, o)
	s := r.begin(task("one"))
	w := r.connect(s)
	w.call("Target.createTarget", "", map[string]any{"url": "about:blank"})
	r.chromium.set(func() { r.chromium.cookies = cookies })
	if shown, err := s.Release(t.Context(), api.Release{Outcome: "ok", Reason: "done"}); err != nil || shown.Ended != "released: done" {
		t.Fatalf("%+v, %v", shown, err)
	}
	r.await("warm", func() bool { return !r.table.WarmSince(profile).IsZero() })
	if f := r.over(s); f.CloseMethod != "" || !f.InOrder {
		t.Fatalf("%+v", f)
	}
	if fi, err := os.Stat(r.files.Output(s.ID())); err != nil || fi.Size() != 0 {
		t.Errorf("what the browser printed for the last session: %v", err)
	}
	return r, s.Browser().PID()
}

// takeWarm grants the profile with the browser that is warm.
func (r *room) takeWarm(m api.Manifest, before func(*Session)) (*Session, *slots.Slot, error) {
	r.t.Helper()
	slot := r.table.Occupy(profile)
	if slot == nil || !slot.IsWarm() {
		r.t.Fatal("no warm browser")
	}
	slot.LockRuns()
	defer slot.UnlockRuns()
	s, err := r.grant(m, slot, func(now lease.Record) Start {
		return hooked{Start: NewWarm(now, nil), before: before}
	})
	return s, slot, err
}

// TestAWarmBrowserIsTakenOver: the same process under a new token, with all that a cold
// start leaves on disk.
func TestAWarmBrowserIsTakenOver(t *testing.T) {
	t.Parallel()
	r, pid := warm(t)
	jar := filepath.Join(r.dir, "session-cookies", profile+".json")
	if _, err := os.Stat(jar); err != nil {
		t.Errorf("the cookies of the warm browser, should it crash: %v", err)
	}
	from := len(r.chromium.commands())
	s, slot, err := r.takeWarm(task("two"), func(s *Session) {
		if _, err := os.Stat(jar); err != nil {
			t.Error("the jar is emptied before the lease is granted")
		}
		if r.record().Token != 2 {
			t.Errorf("%+v", r.record())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Browser().PID() != pid || s.Token() != 2 || slot.IsWarm() || slot.State() != slots.Serving {
		t.Errorf("pid %d after %d, token %d", s.Browser().PID(), pid, s.Token())
	}
	if _, err := os.Stat(jar); err == nil {
		t.Error("the jar has the cookies that are in the browser")
	}
	if n := len(r.chromium.told(from, "Storage.getCookies")); n != 0 {
		t.Errorf("asked by others than the monitor: %d", n)
	}
	asked := 0
	for _, m := range r.chromium.commands()[from:] {
		if m == "Storage.getCookies B1" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked for its cookies %d times", asked)
	}
	s.opening.noting.Wait()
	digests, err := r.files.ReadDigests(s.ID())
	if err != nil || !strings.Contains(string(digests), "shop.example") {
		t.Errorf("digests of the state at the grant: %s, %v", digests, err)
	}
	if floor, err := r.root.Floor(profile); err != nil || floor != 2 {
		t.Errorf("floor %d, %v", floor, err)
	}
	if f, err := r.files.Read(s.ID()); err != nil || f.Token != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	w := r.connect(s)
	w.call("Browser.getVersion", "", nil)
	if _, err := s.Release(t.Context(), api.Release{}); err != nil {
		t.Fatal(err)
	}
	r.await("warm again", func() bool { return !r.table.WarmSince(profile).IsZero() })
}

// TestAWarmBrowserThatDoesNotFit stays as it is, for another task; the session that wanted
// it is forgotten.
func TestAWarmBrowserThatDoesNotFit(t *testing.T) {
	t.Parallel()
	r, pid := warm(t)
	same := func(*api.Manifest) {}
	left := r.record()
	before, err := r.files.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*api.Manifest)
		record func(*lease.Record)
	}{
		"another window":                  {change: func(m *api.Manifest) { m.Headless = new(false) }},
		"other arguments":                 {change: func(m *api.Manifest) { m.ChromeArgs = []string{"--lang=de"} }},
		"its cookies are not to be there": {change: func(m *api.Manifest) { m.SessionCookies = api.CookiesDrop }},
		"another account":                 {same, func(r *lease.Record) { r.AccountID = "b" }},
		"less memory":                     {same, func(r *lease.Record) { r.BrowserMemory = 1 << 30 }},
		"the owner wants none any more":   {same, func(r *lease.Record) { r.KeepWarm = new(false) }},
		"a task is to be resumed":         {same, func(r *lease.Record) { r.State = lease.ResumePending }},
	} {
		changed := left
		if tt.record != nil {
			tt.record(&changed)
		}
		r.memory.Put(changed)
		_, slot, err := r.takeWarm(task("two", tt.change), func(*Session) { t.Error("granted") })
		var unfit *UnfitError
		if !errors.As(err, &unfit) || unfit.Why != slots.WarmMismatch {
			t.Errorf("%s: %v", name, err)
		}
		slot.Vacate()
		after, err := r.files.Load()
		if err != nil || len(after) != len(before) || r.record().Token != 1 || r.table.WarmSince(profile).IsZero() {
			t.Errorf("%s: %d files after %d, %v; token %d", name, len(after), len(before), err, r.record().Token)
		}
	}
	r.memory.Put(left)
	if s, _, err := r.takeWarm(task("two"), func(*Session) {}); err != nil || s.Browser().PID() != pid {
		t.Errorf("nobody else may have it: %v", err)
	}
}

// TestAWarmBrowserThatIsNotAsItWasLeft is for nobody.
func TestAWarmBrowserThatIsNotAsItWasLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do          func(c *chromium)
		why, detail string
	}{
		"a page was opened":      {func(c *chromium) { c.open(tab{"T5", "about:blank"}) }, slots.WarmDisturbed, "a page at about:blank was opened"},
		"its tab went elsewhere": {func(c *chromium) { c.set(func() { c.tabs[0].url = "https://shop.example/" }) }, slots.WarmDisturbed, "its tab is not as it was left"},
		"it answers nothing":     {func(c *chromium) { c.set(func() { c.silent["Target.getTargets"] = true }) }, slots.WarmHung, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, pid := warm(t)
			tt.do(r.chromium)
			if tt.why == slots.WarmHung {
				r.host.o.QuietTimeout = 10 * time.Millisecond
			}
			_, slot, err := r.takeWarm(task("two"), func(*Session) { t.Error("granted") })
			var unfit *UnfitError
			if !errors.As(err, &unfit) || unfit.Why != tt.why || !strings.Contains(unfit.Detail, tt.detail) || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v, want %s %s", err, tt.why, tt.detail)
			}
			if slot.Browser().PID() != pid || r.record().Token != 1 {
				t.Error("the browser was taken")
			}
			r.chromium.set(func() { clear(r.chromium.silent) })
			slot.CloseWarm(tt.why, "") // as a grant does, before it starts another
			slot.Vacate()
		})
	}
}

// TestAWarmBrowserAnswersInAnyOrder: that it told its cookies already is no reason to give
// up the question whether it is as it was left.
func TestAWarmBrowserAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	r, pid := warm(t)
	slot := r.table.Occupy(profile)
	r.chromium.set(func() { r.chromium.silent["Target.getTargets"] = true })
	var way *Warm
	begun := make(chan struct{})
	go func() {
		<-begun
		for len(way.cookies) == 0 { // they are answered
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		r.chromium.set(func() { clear(r.chromium.silent) })
		for _, m := range slices.Backward(r.chromium.all()) {
			if m.Method == "Target.getTargets" {
				r.chromium.answer(m)
				return
			}
		}
	}()
	s, err := r.grant(task("two"), slot, func(now lease.Record) Start {
		way = NewWarm(now, nil)
		close(begun)
		return way
	})
	if err != nil || s.Browser().PID() != pid {
		t.Fatalf("browser %d, error %v; want %d", s.Browser().PID(), err, pid)
	}
}

// TestAWarmBrowserThatIsGone ended under the question.
func TestAWarmBrowserThatIsGone(t *testing.T) {
	t.Parallel()
	r, pid := warm(t)
	slot := r.table.Occupy(profile)
	var killed atomic.Bool
	r.chromium.set(func() {
		r.chromium.silent["Target.getTargets"] = true
		r.chromium.at["Target.getTargets"] = func() {
			if !killed.Swap(true) {
				r.chromium.kill(pid)
			}
		}
	})
	_, err := r.grant(task("two"), slot, func(now lease.Record) Start { return NewWarm(now, nil) })
	var unfit *UnfitError
	if !errors.As(err, &unfit) || unfit.Why != slots.WarmGone {
		t.Errorf("%v", err)
	}
	slot.CloseWarm(slots.WarmGone, "")
	slot.Vacate()
}

// TestAWarmBrowserThatIsDisturbed before the grant is unfit; during the grant, the
// grant is undone and the browser closed.
func TestAWarmBrowserThatIsDisturbed(t *testing.T) {
	t.Parallel()
	seen := checkpoint.Entry{Kind: checkpoint.KindRequest, URL: "https://shop.example/buy?token=hunter2"}
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		r, _ := warm(t)
		slot := r.table.Occupy(profile) // so that nobody closes it for what is seen
		slot.Note(seen)
		_, err := r.grant(task("two"), slot, func(now lease.Record) Start { return NewWarm(now, nil) })
		var unfit *UnfitError
		if !errors.As(err, &unfit) || unfit.Why != slots.WarmDisturbed || !strings.Contains(unfit.Detail, "request https://shop.example/buy") || strings.Contains(unfit.Detail, "hunter2") {
			t.Errorf("%v", err)
		}
		slot.CloseWarm(slots.WarmDisturbed, "")
		slot.Vacate()
	})
	t.Run("during", func(t *testing.T) {
		t.Parallel()
		r, _ := warm(t)
		slot := r.table.Occupy(profile)
		slot.LockRuns()
		s, err := r.grant(task("two"), slot, func(now lease.Record) Start {
			return hooked{Start: NewWarm(now, nil), before: func(*Session) {
				slot.Note(seen)
				r.chromium.set(func() { r.chromium.cookies = strings.ReplaceAll(r.chromium.cookies, `"value":"1"`, `"value":"2"`) })
			}}
		})
		slot.UnlockRuns()
		if err == nil || !strings.Contains(err.Error(), "something happened in the warm browser during the grant (request https://shop.example/buy") {
			t.Fatalf("%v", err)
		}
		if refused := s.UndoGrant(err); problem(refused) != api.CodeBrowserStartFailed {
			t.Errorf("%v", refused)
		}
		slot.Vacate()
		f := r.over(s)
		if f.Ended != api.ReasonStartFailed || f.CloseMethod != "cdp" || !slices.Equal(r.bundles(), []string{"done", api.ReasonStartFailed}) {
			t.Errorf("%+v, %v", f, r.bundles())
		}
		if rec := r.record(); rec.State != lease.Available || rec.Token != 2 {
			t.Errorf("%+v", rec)
		}
		if got := r.lent(); !strings.Contains(got, `"value":"2"`) || r.record().Token != 3 {
			t.Errorf("the next browser, under token %d, is given %q", r.record().Token, got)
		}
	})
}

// lent is what the browser that starts next is given of the account's cookies.
func (r *room) lent() (cookies string) {
	r.t.Helper()
	from := len(r.chromium.all())
	r.begin(task("next"))
	for _, m := range r.chromium.all()[from:] {
		if m.Method == "Storage.setCookies" {
			cookies += string(m.Params)
		}
	}
	return cookies
}

// TestAWarmBrowserThatEndsDuringAGrant takes no login with it: the next task has the cookies that were kept for that, or
// a person decides.
func TestAWarmBrowserThatEndsDuringAGrant(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"before it is taken": true, "when it alone has the cookies": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, pid := warm(t)
			slot := r.table.Occupy(profile)
			ends := func() {
				r.chromium.kill(pid)
				<-slot.Browser().Exited()
			}
			before := func(*Session) { ends() }
			if !kept {
				before = func(*Session) {}
				r.host.o.Dedicated = func(string, string) (string, func(), error) {
					ends()
					return "", nil, errors.New("no port")
				}
			}
			slot.LockRuns()
			s, err := r.grant(task("two", func(m *api.Manifest) { m.DedicatedPort = true }), slot, func(now lease.Record) Start {
				return hooked{Start: NewWarm(now, nil), before: before}
			})
			slot.UnlockRuns()
			if err == nil {
				t.Fatal("a task has a browser that has ended")
			}
			if refused := s.UndoGrant(err); problem(refused) != api.CodeBrowserStartFailed {
				t.Errorf("%v", refused)
			}
			slot.Vacate()
			if f := r.over(s); f.CloseMethod != "already_exited" {
				t.Errorf("%+v", f)
			}
			want := lease.ManualReview
			if kept {
				want = lease.Available
			}
			if got := r.record(); got.State != want || got.Reason != api.ReasonStartFailed {
				t.Fatalf("%s, %s; want %s", got.State, got.Reason, want)
			}
			if !kept {
				return
			}
			if got := r.lent(); !strings.Contains(got, `"sid"`) {
				t.Errorf("the next browser is given %q", got)
			}
		})
	}
}

// networks runs browsers, the first of which has a network service that a test can end.
type networks struct {
	browser.Kernel
	started atomic.Bool
	mu      sync.Mutex
	now     *network
}

type network struct {
	pid   int
	ended chan struct{}
}

func newNetworks() *networks { return &networks{now: &network{1, make(chan struct{})}} }

func (n *networks) Start(ctx context.Context, o chrome.Options) (browser.Process, error) {
	p, err := n.Kernel.Start(ctx, o)
	if err != nil || n.started.Swap(true) {
		return p, err
	}
	return networked{p, n}, nil
}

// end ends the network service, and the browser has another one.
func (n *networks) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	ended := n.now.ended
	n.now = &network{n.now.pid + 1, make(chan struct{})}
	close(ended)
}

type networked struct {
	browser.Process
	by *networks
}

func (p networked) NetworkService() (browser.NetworkService, error) {
	p.by.mu.Lock()
	defer p.by.mu.Unlock()
	return &seenNetwork{network: p.by.now, closed: make(chan struct{})}, nil
}

// seenNetwork is what a launcher sees of a network service. It cannot be stopped.
type seenNetwork struct {
	browser.NetworkService
	network *network
	closed  chan struct{}
}

func (s *seenNetwork) PID() int                        { return s.network.pid }
func (s *seenNetwork) Stop(context.Context) error      { return errors.ErrUnsupported }
func (s *seenNetwork) AwaitRest(context.Context) error { return errors.ErrUnsupported }

func (s *seenNetwork) AwaitEnd() bool {
	select {
	case <-s.network.ended:
		return true
	case <-s.closed:
		return false
	}
}

func (s *seenNetwork) Ended() bool {
	select {
	case <-s.network.ended:
		return true
	default:
		return false
	}
}

func (s *seenNetwork) Close() error {
	close(s.closed)
	return nil
}

// TestAWarmBrowserWhoseNetworkServiceEnds, as when the kernel kills it for its memory: the next one has only the cookies
// that were on the disk. No task gets that browser, and the next one gets all cookies that were kept at the release.
func TestAWarmBrowserWhoseNetworkServiceEnds(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *room, end func()){
		"while it waits": func(t *testing.T, r *room, end func()) {
			end()
			r.await("it is closed", func() bool { return r.table.Find(profile) == nil })
			if !strings.Contains(r.log.String(), `"why":"`+slots.WarmNetwork+`"`) {
				t.Error("the log does not say why")
			}
		},
		"before it is taken": func(t *testing.T, r *room, end func()) {
			slot := r.table.Occupy(profile) // so that nobody closes it
			end()
			_, err := r.grant(task("two"), slot, func(now lease.Record) Start { return NewWarm(now, nil) })
			unfit, ok := errors.AsType[*UnfitError](err)
			if !ok || unfit.Why != slots.WarmDisturbed || unfit.Detail != slots.LostNetwork {
				t.Fatalf("%v", err)
			}
			slot.CloseWarm(unfit.Why, unfit.Detail)
			slot.Vacate()
		},
		"while it is taken": func(t *testing.T, r *room, end func()) {
			slot := r.table.Occupy(profile)
			slot.LockRuns()
			s, err := r.grant(task("two"), slot, func(now lease.Record) Start {
				return hooked{Start: NewWarm(now, nil), before: func(*Session) { end() }}
			})
			slot.UnlockRuns()
			if err == nil || !strings.Contains(err.Error(), slots.LostNetwork) {
				t.Fatalf("%v", err)
			}
			if refused := s.UndoGrant(err); problem(refused) != api.CodeBrowserStartFailed {
				t.Errorf("%v", refused)
			}
			slot.Vacate()
			if got := r.record(); got.State != lease.Available {
				t.Errorf("%+v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := newNetworks()
			r, _ := warmIn(t, roomOptions{processes: runs}, `[
				{"name":"sid","value":"1","domain":"shop.example","path":"/","session":true,"expires":-1},
				{"name":"stays","value":"2","domain":"shop.example","path":"/","session":false,"expires":4102444800}]`)
			lose(t, r, func() {
				r.chromium.set(func() { r.chromium.cookies = "[]" })
				runs.end()
			})
			if got := r.lent(); !strings.Contains(got, `"sid"`) || !strings.Contains(got, `"stays"`) {
				t.Errorf("the next browser is given %q", got)
			}
		})
	}
}

// TestAWarmBrowserOfABusyHost gets the task, and one whose pages close late is kept: while programs wait
// for a processor, it is not the browser that lets others wait.
func TestAWarmBrowserOfABusyHost(t *testing.T) {
	t.Parallel()
	r, pid := warm(t)
	r.host.o.QuietTimeout, r.host.o.ClearTimeout = time.Millisecond, time.Millisecond
	r.host.o.Patience = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, patience) // the host gives nothing
	}
	late := func(method string) {
		var once sync.Once
		r.chromium.set(func() {
			r.chromium.at[method] = func() { once.Do(func() { time.Sleep(20 * time.Millisecond) }) }
		})
	}
	late("Target.getTargets")
	s, slot, err := r.takeWarm(task("two"), func(*Session) {})
	if err != nil || s.Browser().PID() != pid {
		slot.CloseWarm(slots.WarmHung, "")
		slot.Vacate()
		t.Fatalf("the task does not get the warm browser: %v", err)
	}
	w := r.connect(s)
	w.call("Browser.getVersion", "", nil)
	late("Target.createTarget")
	if _, err := s.Release(t.Context(), api.Release{}); err != nil {
		t.Fatal(err)
	}
	if f := r.over(s); f.CloseMethod != "" || r.table.WarmSince(profile).IsZero() {
		t.Errorf("the browser is closed: %+v", f)
	}
}
