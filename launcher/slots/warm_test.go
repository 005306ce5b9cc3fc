package slots

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/checkpoint"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

func TestWhichBrowsersStayWarm(t *testing.T) {
	yes, no := new(true), new(false)
	asked := KeepWarm{Profile: yes, idle: time.Minute, limit: 4, Started: true}
	for _, tt := range []struct {
		name   string
		change func(*KeepWarm)
		warm   bool
	}{
		{"the profile says yes", func(*KeepWarm) {}, true},
		{"both say yes", func(w *KeepWarm) { w.Manifest = yes }, true},
		{"the task narrows", func(w *KeepWarm) { w.Manifest = no }, false},
		{"the task may not widen", func(w *KeepWarm) { w.Profile, w.Manifest = no, yes }, false},
		{"both say no", func(w *KeepWarm) { w.Profile, w.Manifest = no, no }, false},
		{"the profile says nothing, the task yes", func(w *KeepWarm) { w.Profile, w.Manifest = nil, yes }, true},
		{"the profile says nothing, the task no", func(w *KeepWarm) { w.Profile, w.Manifest = nil, no }, false},
		{"nobody says anything", func(w *KeepWarm) { w.Profile = nil }, false},
		{"no time", func(w *KeepWarm) { w.idle = 0 }, false},
		{"no place", func(w *KeepWarm) { w.limit = 0 }, false},
		{"cookies are kept", func(w *KeepWarm) { w.Cookies = api.CookiesKeep }, true},
		{"cookies are dropped", func(w *KeepWarm) { w.Cookies = api.CookiesDrop }, false},
		{"it was adopted from another launcher", func(w *KeepWarm) { w.Started = false }, false},
		{"another host could open it", func(w *KeepWarm) { w.shared = "nfs" }, false},
		{"memory is short", func(w *KeepWarm) { w.short = "little is left" }, false},
		{"the launcher drains", func(w *KeepWarm) { w.draining = true }, false},
	} {
		w := asked
		tt.change(&w)
		if why := w.against(); (why == "") != tt.warm {
			t.Errorf("%s: %q, want warm: %v", tt.name, why, tt.warm)
		}
	}
}

func TestWhatFitsTheNextTask(t *testing.T) {
	fitOf := func(m api.Manifest, r lease.Record) Fit { return FitOf(m, r, nil, m.Headless == nil || *m.Headless, 0) }
	was := fitOf(api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}}, lease.Record{AccountID: "a"})
	for _, tt := range []struct {
		name string
		m    api.Manifest
		r    lease.Record
		fits bool
	}{
		{"the same", api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}}, lease.Record{AccountID: "a"}, true},
		{"the launcher's own way said", api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}, Headless: new(true)}, lease.Record{AccountID: "a"}, true},
		{"windows", api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}, Headless: new(false)}, lease.Record{AccountID: "a"}, false},
		{"another order", api.Manifest{ChromeArgs: []string{"--mute-audio", "--lang=de"}}, lease.Record{AccountID: "a"}, false},
		{"one argument less", api.Manifest{ChromeArgs: []string{"--lang=de"}}, lease.Record{AccountID: "a"}, false},
		{"no arguments", api.Manifest{}, lease.Record{AccountID: "a"}, false},
		{"an account that it got meanwhile", api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}}, lease.Record{AccountID: "b"}, false},
		{"an account that the task brings", api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}, AccountID: "b"}, lease.Record{}, false},
	} {
		if got := fitOf(tt.m, tt.r) == was; got != tt.fits {
			t.Errorf("%s: fits: %v", tt.name, got)
		}
	}
}

// TestAWarmBrowserIsWatched goes through what ends its wait, in the time of a
// bubble.
func TestAWarmBrowserIsWatched(t *testing.T) {
	const bound = time.Minute
	for _, tt := range []struct {
		name  string
		after time.Duration // it is already warm for so long
		do    func(w *warm, gone chan struct{}, sick *atomic.Bool)
		want  string
		took  time.Duration
	}{
		{"nobody comes", 0, nil, WarmIdle, bound},
		{"nobody came, and it went on", 50 * time.Second, nil, WarmIdle, 10 * time.Second},
		{"the time is over", 2 * bound, nil, WarmIdle, 0},
		{"a task comes", 0, func(w *warm, _ chan struct{}, _ *atomic.Bool) { time.Sleep(7 * time.Second); close(w.taken) }, "", 7 * time.Second},
		{"it crashes", 0, func(_ *warm, gone chan struct{}, _ *atomic.Bool) { time.Sleep(3 * time.Second); close(gone) }, WarmGone, 3 * time.Second},
		{"something happens in it", 0, func(w *warm, _ chan struct{}, _ *atomic.Bool) {
			time.Sleep(time.Second)
			w.disturb("request https://shop.example/")
		}, WarmDisturbed, time.Second},
		{"it does not answer", 0, func(_ *warm, _ chan struct{}, sick *atomic.Bool) { time.Sleep(25 * time.Second); sick.Store(true) }, WarmHung, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarm("ses", time.Now().Add(-tt.after))
				gone := make(chan struct{})
				var sick atomic.Bool
				if tt.do != nil {
					go tt.do(w, gone, &sick)
				}
				begun := time.Now()
				why, _ := w.watch(bound, gone, func() error {
					if sick.Load() {
						return errors.New("no answer")
					}
					return nil
				})
				if took := time.Since(begun); why != tt.want || took != tt.took {
					t.Errorf("%q after %v, want %q after %v", why, took, tt.want, tt.took)
				}
			})
		})
	}
}

// TestADisturbanceIsForWhoTakesTheBrowser, also where the watcher knew of it first; and who gives the
// browser back as it is leaves it to the next watcher.
func TestADisturbanceIsForWhoTakesTheBrowser(t *testing.T) {
	t.Parallel()
	h := newHost(t, forAnHour)
	h.warm("taken")
	// take takes the browser while its watcher, which knows of the disturbance, waits for the table.
	take := func() *Slot {
		h.table.mu.Lock()
		defer h.table.mu.Unlock()
		w := h.table.slots["taken"].warm
		w.disturb("a POST")
		w.disturb("another") // one is as good as many
		for end := time.Now().Add(time.Minute); len(w.stirred) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody watches the browser")
			}
		}
		return h.table.occupy("taken")
	}
	s := take()
	what := s.Disturbed()
	s.Vacate()
	if what != "a POST" {
		t.Fatalf("who took the browser is told %q", what)
	}
	s = take()
	if what := s.HandOver(); what != "a POST" {
		t.Errorf("who was handed the browser is told %q", what)
	}
	s.Park("ses_2")
	b := s.Browser()
	take().Vacate()
	h.vacant("taken", b)
	if n := h.counted("leasehold_warm_closes_total", WarmDisturbed); n != 1 {
		t.Errorf("%v are closed for what they did", n)
	}
}

// What is seen in a browser while it is handed over is a disturbance, or in the journal of the session
// that gets it.
func TestNothingIsUnseenWhileABrowserIsHandedOver(t *testing.T) {
	t.Parallel()
	table := newTable(t, Options{})
	s := table.Occupy("p")
	long := "https://shop.example/?q=" + strings.Repeat("x", 1<<16) // it takes a moment to redact it
	for i := range 1000 {
		one := &run{}
		s.Starting(one)
		table.mu.Lock()
		s.warm = newWarm("ses", time.Now())
		table.mu.Unlock()
		begun, noted := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(noted)
			close(begun)
			s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: long, Name: "a"})
		}()
		<-begun
		for range i % 100 { // at different moments of it
			runtime.Gosched()
		}
		what := s.HandOver()
		<-noted
		if what == "" && one.String() != "[a]" {
			t.Fatalf("nobody is told of what was seen: %q, %s", what, one)
		}
	}
	s.Vacate()
}

func newTable(t *testing.T, o Options) *Table {
	t.Helper()
	root, err := profiledir.Open(t.TempDir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.Metrics, o.DataDir = cmp.Or(o.Root, root), prometheus.NewRegistry(), cmp.Or(o.DataDir, t.TempDir())
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); work.Wait() })
	return NewTable(ctx, &work, o)
}

// TestAWarmBrowsersURLsAreRedacted: what disturbs one is logged, without the secrets of
// its URL.
func TestAWarmBrowsersURLsAreRedacted(t *testing.T) {
	t.Parallel()
	const url = "https://ann:hunter2@shop.example/callback?code=4%2F0AX4XfWh&state=s3cr3tstate#access_token=ya29.topsecret"
	h := newHost(t, forAnHour)
	h.warm("p")
	s := h.table.Occupy("p")
	s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: url})
	text := s.Disturbed()
	if !strings.Contains(text, "shop.example/callback") {
		t.Errorf("%q does not name the place", text)
	}
	for _, secret := range []string{"hunter2", "0AX4XfWh", "s3cr3tstate", "topsecret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q has %s in it", text, secret)
		}
	}
	s.Vacate()
}

// forAnHour keeps every browser warm that is to be.
var forAnHour = Options{KeepWarmIdle: time.Hour, KeepWarmMax: 100}

// TestWhatEndsAWarmBrowser goes through all of it. Each time the browser is closed in
// order, its cookies are kept, its lock is given up, and who waits for the profile gets
// it without one.
func TestWhatEndsAWarmBrowser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		o      Options
		cause  func(h *host, b *browser.Browser)
		why    string
		killed bool
	}{
		{"nobody comes", Options{KeepWarmIdle: 50 * time.Millisecond, KeepWarmMax: 1}, func(*host, *browser.Browser) {}, WarmIdle, false},
		{"a page does something", forAnHour, func(h *host, _ *browser.Browser) {
			h.table.Find("p").Note(checkpoint.Entry{Kind: checkpoint.KindRequest, URL: "https://shop.example/"})
		}, WarmDisturbed, false},
		{"it crashes", forAnHour, func(h *host, b *browser.Browser) { h.kill(b) }, WarmGone, true},
		{"too many are warm", Options{KeepWarmIdle: time.Hour, KeepWarmMax: 1}, func(h *host, _ *browser.Browser) { h.warm("another") }, WarmSurplus, false},
		{"memory is short", Options{KeepWarmIdle: time.Hour, KeepWarmMax: 1, KeepWarmMinMemory: 1 << 60}, func(h *host, _ *browser.Browser) { h.work.Go(h.table.WatchMemory) }, WarmMemory, false},
		{"the host drains", forAnHour, func(h *host, _ *browser.Browser) { h.table.Drain() }, WarmShutdown, false},
		{"a setting changes", forAnHour, func(h *host, _ *browser.Browser) {
			h.table.CoolProfile("none", WarmSetting)
			h.table.CoolProfile("p", WarmSetting)
		}, WarmSetting, false},
		{"somebody wants the profile cold", forAnHour, func(h *host, _ *browser.Browser) { h.table.OccupyCold("p").Vacate() }, WarmWanted, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, tt.o)
			path, err := h.root.Create("p")
			if err != nil {
				t.Fatal(err)
			}
			fakechrome.Direct(t, path, fakechrome.Script{Cookies: []fakechrome.Cookie{{Name: "sid", Value: "1", Domain: "shop.example", Path: "/", Session: true}}})
			b := h.warm("p")
			tt.cause(h, b)
			h.vacant("p", b)
			h.table.CoolProfile("p", WarmSetting) // there is none any more
			if n := h.counted("leasehold_warm_closes_total", tt.why); n != 1 {
				t.Errorf("%v are counted as %s", n, tt.why)
			}
			if !strings.Contains(h.log.String(), `"why":"`+tt.why+`"`) {
				t.Errorf("the log does not say why: %s", h.log.String())
			}
			cookies := &cookieTaker{}
			if err := h.jar.Restore(t.Context(), cookies, "p"); err != nil || (cookies.set == 1) != !tt.killed {
				t.Errorf("%d times cookies were kept, %v", cookies.set, err)
			}
			if h.table.Draining() {
				return
			}
			s := h.table.Occupy("p")
			if s == nil || s.IsWarm() || s.Browser() != nil || s.Lock() != nil || s.Fit() != nil || s.StartedFor() != "" || !s.WarmSince().IsZero() || s.Disturbed() != "" || s.HandOver() != "" {
				t.Errorf("the next occupant finds %+v", s)
			}
			s.Vacate()
		})
	}
}

// cookieTaker is a browser that is given cookies.
type cookieTaker struct{ set int }

func (c *cookieTaker) Call(context.Context, string, string, any, any) error { c.set++; return nil }

// TestAWarmBrowserIsHandedOver to the next session, with what happened in it; or it
// stays as warm as it was.
func TestAWarmBrowserIsHandedOver(t *testing.T) {
	t.Parallel()
	h := newHost(t, forAnHour)
	b := h.warm("p")
	since := h.table.WarmSince("p")
	if since.IsZero() || h.counted("leasehold_browsers_warm", "") != 1 || h.counted("leasehold_browsers", "") != 1 {
		t.Errorf("warm since %v, %v are counted", since, h.counted("leasehold_browsers_warm", ""))
	}
	s := h.table.Occupy("p")
	if !s.IsWarm() || s.Browser() != b || s.Lock() == nil || *s.Fit() != (Fit{headless: true}) || s.StartedFor() != "ses_p" || !s.WarmSince().Equal(since) {
		t.Fatalf("it does not come with its browser: %+v", s)
	}
	if !h.table.WarmSince("p").IsZero() || h.table.Occupy("p") != nil {
		t.Error("a browser that somebody took is there for others")
	}
	changed := h.table.Changed()
	s.Vacate()
	<-changed
	if got := h.table.WarmSince("p"); !got.Equal(since) || s.State() != Warm {
		t.Errorf("neither used nor closed, it is %s since %v, want %v", s.State(), got, since)
	}
	s = h.table.Occupy("p")
	s.Lose(sessionfile.LostRun{})
	s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/"})
	if what := s.HandOver(); !strings.Contains(what, "shop.example") || s.IsWarm() || len(s.Lost()) != 0 {
		t.Errorf("handed over: %q, warm %v, lost %v", what, s.IsWarm(), s.Lost())
	}
	run := &run{}
	s.Enter(run)
	s.Note(checkpoint.Entry{Name: "a"})
	if s.HandOver() != "" || s.Disturbed() != "" || run.String() != "[a]" {
		t.Errorf("what happens now is not the session's: %s", run)
	}
	if !s.Leave(run) {
		t.Error("somebody else is there")
	}
	time.Sleep(time.Millisecond)
	s.Park("ses_2")
	if got := h.table.WarmSince("p"); !got.After(since) {
		t.Errorf("warm since %v, the last time since %v", got, since)
	}
	s = h.table.Occupy("p")
	h.kill(b)
	<-b.Mux().Done()
	s.CloseWarm(WarmGone, "it crashed")
	s.Vacate()
	h.vacant("p", b)
}

// TestTheLongestWarmIsClosedFirst, and gives its place to who asked: nobody else gets it
// in between.
func TestTheLongestWarmIsClosedFirst(t *testing.T) {
	t.Parallel()
	o := forAnHour
	o.MaxBrowsers = 3
	h := newHost(t, o)
	old, middle, young := h.warm("old"), h.warm("middle"), h.warm("young")
	if held := h.table.Occupy("old"); held.TakePlace(&Waiter{}) != nil { // it has one
		t.Error("a warm browser has no place")
	} else {
		held.Vacate()
	}

	// The longest one is with somebody: the next is closed.
	taken := h.table.Occupy("old")
	path, err := h.root.Path("middle")
	if err != nil {
		t.Fatal(err)
	}
	fakechrome.Direct(t, path, fakechrome.Script{RefusesClose: true}) // it takes a second
	asks, other := h.table.Occupy("asks"), h.table.Occupy("other")
	first := &Waiter{} // it has waited, and its place counts once while it is made
	h.table.QueueUp(first, api.Refuse(api.CodeHostFull, "").With("reason", api.ReasonBrowsers))
	got := make(chan *api.Problem, 1)
	go func() { got <- asks.TakePlace(first) }()
	for s := h.table.Find("middle"); s != nil && s.State() != Closing; s = h.table.Find("middle") { // nil: closed already
		time.Sleep(time.Millisecond)
	}

	waiting := &Waiter{}
	p := other.TakePlace(waiting) // which closes the third
	if p != nil {
		taken.Vacate()
		t.Fatalf("a warm browser is left, and there is no place: %v", p)
	}
	if p := <-got; p != nil {
		t.Error(p)
	}
	h.table.LeaveQueue(first)
	h.vacant("middle", middle)
	h.vacant("young", young)
	if n := h.counted("leasehold_browsers", ""); n != 3 || h.counted("leasehold_warm_closes_total", WarmPlace) != 2 {
		t.Errorf("%v browsers", n)
	}
	// Now the host is full, and stays so while the one that is left is in use.
	last := h.table.Occupy("last")
	full := last.TakePlace(&Waiter{})
	if refused(full) != api.CodeHostFull {
		t.Errorf("a fourth browser: %v", full)
	}
	taken.Vacate()
	// Somebody waits: who comes later may not have its place.
	h.table.QueueUp(waiting, full)
	if p := last.TakePlace(&Waiter{}); refused(p) != api.CodeHostFull || p.More["queue_position"] != 2 {
		t.Errorf("ahead of its turn: %v", p)
	}
	h.table.LeaveQueue(waiting)
	if p := last.TakePlace(&Waiter{}); p != nil {
		t.Error(p)
	}
	h.vacant("old", old)
	for _, s := range []*Slot{asks, other, last} {
		s.Vacate()
	}
}

// TestABrowserIsAskedWhileItIsClosed: somebody asks the slot for its browser all the time,
// and meanwhile the slot loses it. Each answer is the browser or none.
func TestABrowserIsAskedWhileItIsClosed(t *testing.T) {
	t.Parallel()
	h := newHost(t, forAnHour)
	b := h.warm("p")
	s := h.table.Find("p")
	var asked atomic.Bool
	done := make(chan error, 1)
	go func() {
		for answer := s.Browser(); ; answer = s.Browser() {
			switch {
			case answer == nil:
				done <- nil
				return
			case answer != b:
				done <- errors.New("another browser")
				return
			}
			asked.Store(true)
		}
	}()
	for !asked.Load() {
		time.Sleep(time.Millisecond)
	}
	h.table.CoolProfile("p", WarmWanted)
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.vacant("p", b)
}
