package launcher

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/lease"
)

func TestWhichBrowsersStayWarm(t *testing.T) {
	yes, no := new(true), new(false)
	asked := warmth{profile: yes, idle: time.Minute, limit: 4, started: true}
	for _, tt := range []struct {
		name   string
		change func(*warmth)
		warm   bool
	}{
		{"the profile says yes", func(*warmth) {}, true},
		{"both say yes", func(w *warmth) { w.manifest = yes }, true},
		{"the task narrows", func(w *warmth) { w.manifest = no }, false},
		{"the task may not widen", func(w *warmth) { w.profile, w.manifest = no, yes }, false},
		{"both say no", func(w *warmth) { w.profile, w.manifest = no, no }, false},
		{"the profile says nothing, the task yes", func(w *warmth) { w.profile, w.manifest = nil, yes }, true},
		{"the profile says nothing, the task no", func(w *warmth) { w.profile, w.manifest = nil, no }, false},
		{"nobody says anything", func(w *warmth) { w.profile = nil }, false},
		{"no time", func(w *warmth) { w.idle = 0 }, false},
		{"no place", func(w *warmth) { w.limit = 0 }, false},
		{"cookies are kept", func(w *warmth) { w.cookies = api.CookiesKeep }, true},
		{"cookies are dropped", func(w *warmth) { w.cookies = api.CookiesDrop }, false},
		{"it was taken over from another launcher", func(w *warmth) { w.started = false }, false},
		{"another host could open it", func(w *warmth) { w.shared = "nfs" }, false},
		{"memory is short", func(w *warmth) { w.short = "little is left" }, false},
		{"the launcher drains", func(w *warmth) { w.draining = true }, false},
	} {
		w := asked
		tt.change(&w)
		if why := w.cold(); (why == "") != tt.warm {
			t.Errorf("%s: %q, want warm: %v", tt.name, why, tt.warm)
		}
	}
}

func TestWhatFitsTheNextTask(t *testing.T) {
	l := &Launcher{o: Options{Headless: true}, driver: browser.NewDriver(t.Context(), &sync.WaitGroup{}, browser.Options{Metrics: prometheus.NewRegistry()})}
	was := l.fitOf(api.Manifest{ChromeArgs: []string{"--lang=de", "--mute-audio"}}, lease.Record{AccountID: "a"}, nil)
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
		if got := l.fitOf(tt.m, tt.r, nil) == was; got != tt.fits {
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
		do    func(i *idle, gone chan struct{}, sick *atomic.Bool)
		want  string
		took  time.Duration
	}{
		{"nobody comes", 0, nil, warmIdle, bound},
		{"nobody came, and it went on", 50 * time.Second, nil, warmIdle, 10 * time.Second},
		{"the time is over", 2 * bound, nil, warmIdle, 0},
		{"a task comes", 0, func(i *idle, _ chan struct{}, _ *atomic.Bool) { time.Sleep(7 * time.Second); close(i.taken) }, "", 7 * time.Second},
		{"it crashes", 0, func(_ *idle, gone chan struct{}, _ *atomic.Bool) { time.Sleep(3 * time.Second); close(gone) }, warmGone, 3 * time.Second},
		{"something happens in it", 0, func(i *idle, _ chan struct{}, _ *atomic.Bool) {
			time.Sleep(time.Second)
			i.stir("request https://shop.example/")
			i.stir("another") // one is as good as many
		}, warmStirred, time.Second},
		{"it does not answer", 0, func(_ *idle, _ chan struct{}, sick *atomic.Bool) { time.Sleep(25 * time.Second); sick.Store(true) }, warmHung, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIdle("p", "/p", "ses", time.Now().Add(-tt.after))
				gone := make(chan struct{})
				var sick atomic.Bool
				if tt.do != nil {
					go tt.do(i, gone, &sick)
				}
				begun := time.Now()
				why, _ := i.watch(bound, gone, func() error {
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

// TestAStirIsForWhoTakesTheBrowser, also where the watcher got it first.
func TestAStirIsForWhoTakesTheBrowser(t *testing.T) {
	for range 20 { // select picks at random
		synctest.Test(t, func(t *testing.T) {
			i := newIdle("p", "/p", "ses", time.Now())
			pulse := make(chan struct{})
			ended := make(chan string)
			go func() {
				why, _ := i.watch(time.Hour, nil, func() error { <-pulse; return nil })
				ended <- why
			}()
			time.Sleep(pulseEvery) // the watcher waits for an answer
			synctest.Wait()
			close(i.taken)
			i.stir("a POST")
			close(pulse)
			if why := <-ended; why != "" {
				t.Fatalf("the watcher closes what was taken: %s", why)
			}
			if what := i.stirredBy(); what != "a POST" {
				t.Fatalf("who took the browser is told %q", what)
			}
		})
	}
}

func TestTheLongestIdleGoesFirst(t *testing.T) {
	now := time.Now()
	l := &Launcher{warm: map[string]*openProfile{}}
	if l.longestIdle() != nil {
		t.Error("one of none")
	}
	for name, age := range map[string]time.Duration{"young": time.Second, "old": time.Hour, "middle": time.Minute} {
		l.warm[name] = &openProfile{idle: newIdle(name, "", "", now.Add(-age))}
	}
	if got := l.longestIdle().idle.profile; got != "old" {
		t.Errorf("%s", got)
	}
}

// TestWhatALauncherLeftWarm tells a browser that no session had from one in use.
func TestWhatALauncherLeftWarm(t *testing.T) {
	now := time.Now()
	held, err := lease.Record{ProfileID: "p"}.Grant(lease.Request{SessionID: "ses", WorkerID: "w", TaskID: "t", LauncherID: "l", TTL: time.Minute}, now)
	if err != nil {
		t.Fatal(err)
	}
	released, err := held.Release("released", "succeeded", lease.Sealed{EvidenceID: "ev"}, now)
	if err != nil {
		t.Fatal(err)
	}
	blind := released
	blind.EvidenceID = ""
	for name, tt := range map[string]struct {
		kept lease.Record
		warm bool
	}{
		"nothing was kept":            {lease.Record{}, false},
		"held":                        {held, false},
		"released":                    {released, true},
		"released, without evidence":  {blind, false},
		"with a person":               {lease.Record{State: lease.ManualReview, EvidenceID: "ev"}, false},
		"kept for a task to go on on": {lease.Record{State: lease.ResumePending, EvidenceID: "ev"}, false},
	} {
		if got := leftWarm(tt.kept); got != tt.warm {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What wakes a warm browser is logged: without the secrets of its URL.
func TestAWarmBrowsersURLsAreRedacted(t *testing.T) {
	const url = "https://ann:hunter2@shop.example/callback?code=4%2F0AX4XfWh&state=s3cr3tstate#access_token=ya29.topsecret"
	i := newIdle("p", "/p", "ses_1", time.Now())
	(&Launcher{}).noteAll(&openProfile{idle: i}, nil)(checkpoint.Entry{Kind: checkpoint.KindURL, URL: url})
	close(i.taken)
	said := map[string]string{"stirred": <-i.stirred}
	for name, text := range said {
		if !strings.Contains(text, "shop.example/callback") {
			t.Errorf("%s: %q does not name the place", name, text)
		}
		for _, secret := range []string{"hunter2", "0AX4XfWh", "s3cr3tstate", "topsecret"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q has %s in it", name, text, secret)
			}
		}
	}
}
