package slots

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
	"leasehold/launcher/profiledir"
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
		{"it was taken over from another launcher", func(w *KeepWarm) { w.Started = false }, false},
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

// TestAWarmBrowserIsWatched goes through everything that ends watch, in the virtual
// time of synctest.
func TestAWarmBrowserIsWatched(t *testing.T) {
	const bound = time.Minute
	for _, tt := range []struct {
		name  string
		after time.Duration // for how long the browser has been warm already
		do    func(w *warm, gone chan struct{}, hung *atomic.Bool)
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
			w.disturb("another") // one disturbance is enough
		}, WarmDisturbed, time.Second},
		{"it does not answer", 0, func(_ *warm, _ chan struct{}, hung *atomic.Bool) { time.Sleep(25 * time.Second); hung.Store(true) }, WarmHung, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarm("ses", time.Now().Add(-tt.after))
				gone := make(chan struct{})
				var hung atomic.Bool
				if tt.do != nil {
					go tt.do(w, gone, &hung)
				}
				begun := time.Now()
				why, _ := w.watch(bound, gone, func() error {
					if hung.Load() {
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

// TestADisturbanceGoesToTheTaker: whoever takes the browser learns of a disturbance,
// even if watch got it first.
func TestADisturbanceGoesToTheTaker(t *testing.T) {
	for range 20 { // select chooses at random
		synctest.Test(t, func(t *testing.T) {
			w := newWarm("ses", time.Now())
			pulse := make(chan struct{})
			ended := make(chan string)
			go func() {
				why, _ := w.watch(time.Hour, nil, func() error { <-pulse; return nil })
				ended <- why
			}()
			time.Sleep(pingEvery) // watch waits for an answer to its ping
			synctest.Wait()
			close(w.taken)
			w.disturb("a POST")
			close(pulse)
			if why := <-ended; why != "" {
				t.Fatalf("the watcher closes what was taken: %s", why)
			}
			if what := w.disturbed(); what != "a POST" {
				t.Fatalf("the taker learnt of %q", what)
			}
		})
	}
}

func TestTheLongestWarmGoesFirst(t *testing.T) {
	now := time.Now()
	table := newTable(t, Options{})
	if table.longestWarm() != nil {
		t.Error("one of none")
	}
	for name, age := range map[string]time.Duration{"young": time.Second, "old": time.Hour, "middle": time.Minute} {
		table.slots[name] = &Slot{t: table, profile: name, state: Warm, warm: newWarm("", now.Add(-age))}
	}
	table.slots["taken"] = &Slot{t: table, profile: "taken", state: Opening, warm: newWarm("", now.Add(-2*time.Hour))}
	if got := table.longestWarm().profile; got != "old" {
		t.Errorf("%s", got)
	}
}

func newTable(t *testing.T, o Options) *Table {
	t.Helper()
	root, err := profiledir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.Metrics = root, prometheus.NewRegistry()
	return NewTable(t.Context(), &sync.WaitGroup{}, o)
}

// A disturbance is logged with its URL, without the secrets in it.
func TestAWarmBrowsersURLsAreRedacted(t *testing.T) {
	const url = "https://ann:hunter2@shop.example/callback?code=4%2F0AX4XfWh&state=s3cr3tstate#access_token=ya29.topsecret"
	table := newTable(t, Options{})
	s := table.Occupy("p")
	s.warm = newWarm("ses_1", time.Now())
	s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: url})
	said := map[string]string{"disturbed": s.warm.disturbed()}
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
