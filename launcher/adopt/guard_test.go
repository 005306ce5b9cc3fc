package adopt

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/procfs"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// started notes a browser that a session's launcher started on a profile. It is this very
// process, so that it lives.
func (h *host) started(profile string, change func(*profiledir.Running)) {
	h.Helper()
	me, err := procfs.Read(os.Getpid())
	h.must(err)
	r := profiledir.Running{PID: me.PID, StartTime: me.StartTime, BootID: boottime.ID(), SessionID: "ses_" + profile, Token: 1}
	if change != nil {
		change(&r)
	}
	_, err = h.root.Create(profile)
	h.must(err)
	lock := h.lock(profile)
	h.must(lock.SetRunning(r), lock.Unlock())
}

// A browser is the guard's to end where its own launcher started it, it lives, and no
// launcher has it.
func TestWhichBrowsersAreOrphans(t *testing.T) {
	h := newHost(t)
	for profile, change := range map[string]func(*profiledir.Running){
		"left":             nil,
		"another_boot":     func(r *profiledir.Running) { r.BootID = "another" },
		"gone":             func(r *profiledir.Running) { r.PID = 1 << 30 },
		"another_process":  func(r *profiledir.Running) { r.StartTime++ },
		"another_launcher": func(r *profiledir.Running) { r.SessionID = "ses_of_another" },
		"taken":            nil,
		"checked":          func(r *profiledir.Running) { r.SessionID = "chk_1" }, // it has no session's file
	} {
		h.must(h.files.Save(sessionfile.File{SessionID: "ses_" + profile}))
		h.started(profile, change)
	}
	h.must(h.files.Save(sessionfile.File{SessionID: "ses_none"}))
	_, err := h.root.Create("none")
	h.must(err)
	taken := h.lock("taken")
	left, err := orphans(h.root, h.files, browser.Kernel{}, nil)
	if got := slices.Sorted(maps.Keys(left)); err != nil || !slices.Equal(got, []string{"checked", "left"}) {
		t.Errorf("%v, %v; want checked and left", got, err)
	}
	h.must(taken.Unlock())
	left, err = orphans(h.root, h.files, browser.Kernel{}, nil)
	if got := slices.Sorted(maps.Keys(left)); err != nil || !slices.Equal(got, []string{"checked", "left", "taken"}) {
		t.Errorf("when it is left, too: %v, %v", got, err)
	}
	h.must(h.lock("taken").Unlock())
	again, err := orphans(h.root, h.files, browser.Kernel{}, nil)
	if err != nil || again["taken"].taken.Equal(left["taken"].taken) || !again["left"].taken.Equal(left["left"].taken) {
		t.Errorf("the profile that was taken meanwhile: %v before, %v now, %v; want another time, and of the others the same", left, again, err)
	}
}

// What cannot be read for a moment says nothing: such a browser is neither forgotten nor keeps the guard
// from the others, and the guard goes on until it knows that none is left.
func TestWhatTheGuardCannotReadMayBeABrowser(t *testing.T) {
	for name, file := range map[string]func(h *host, profile string) string{
		"the session's file": func(h *host, profile string) string {
			return filepath.Join(h.dir, "sessions", "ses_"+profile+".json")
		},
		"the browser's note": func(h *host, profile string) string {
			return filepath.Join(profiledir.GuardDir(h.root.Dir()), profile+".browser")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				for _, profile := range []string{"p", "q"} {
					h.must(h.files.Save(sessionfile.File{SessionID: "ses_" + profile}))
					h.started(profile, nil)
				}
				path := file(h, "p")
				unreadable := func() { h.must(os.Rename(path, path+".aside"), os.Mkdir(path, 0o700)) }
				readable := func() { h.must(os.Remove(path), os.Rename(path+".aside", path)) }

				unreadable()
				left, err := orphans(h.root, h.files, browser.Kernel{}, nil)
				if _, is := left["q"]; !is || len(left) != 1 || err == nil || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, %v; want q, and an error that names %s", left, err, path)
				}
				readable()
				known := orphaned{}
				left, err = orphans(h.root, h.files, browser.Kernel{}, known)
				h.must(err)
				known.due(left, 0, time.Hour)
				unreadable()
				if left, err = orphans(h.root, h.files, browser.Kernel{}, known); err == nil || len(left) != 2 {
					t.Errorf("p, which was known, and q: %v, %v", left, err)
				}

				h.must(os.RemoveAll(filepath.Join(profiledir.GuardDir(h.root.Dir()), "q.browser")))
				g := h.guard()
				close(g.gone)
				time.Sleep(time.Hour)
				g.running()
				readable()
				time.Sleep(3 * time.Minute)
				g.running()
				if len(g.tries) == 0 {
					t.Error("the browser is not ended once it is known again")
				}
				g.stop()
				<-g.ended
			})
		})
	}
}

// guarded is a guard in the time of a bubble.
type guarded struct {
	*host
	gone  chan struct{}
	ended chan error
	stop  context.CancelFunc
	tries []time.Duration // to end browsers, since the launcher was gone
}

// guard runs a guard that has two minutes, and no archive.
func (h *host) guard(change ...func(*GuardOptions)) *guarded {
	ctx, cancel := context.WithCancel(h.Context())
	g := &guarded{host: h, gone: make(chan struct{}), ended: make(chan error, 1), stop: cancel}
	start := time.Now()
	o := GuardOptions{
		ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: g.gone, Timeout: 2 * time.Minute, Log: h.log(),
		Archive: func() (*evidence.Archive, error) {
			g.tries = append(g.tries, time.Since(start))
			return nil, errors.New("no spool")
		},
		Clock: func() boottime.Instant { return boottime.Instant(time.Since(start)) },
	}
	for _, c := range change {
		c(&o)
	}
	go func() { g.ended <- Guard(ctx, o) }()
	return g
}

// running checks that the guard has not ended.
func (g *guarded) running() {
	g.Helper()
	synctest.Wait()
	select {
	case err := <-g.ended:
		g.Fatalf("the guard ended: %v", err)
	default:
	}
}

// The guard waits for the end of its launcher, and then as long as another one may come
// for what was left. It ends with the last browser.
func TestTheGuardWaits(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(g *guarded)
		want error
	}{
		{"for the launcher, whatever it leaves", func(g *guarded) {
			time.Sleep(time.Hour)
			g.running()
			g.stop()
		}, context.Canceled},
		{"for nothing that was left", func(g *guarded) {
			lock, err := g.root.Lock("p")
			g.must(err, lock.ClearRunning(), lock.Unlock())
			close(g.gone)
		}, nil},
		{"for the next launcher", func(g *guarded) {
			close(g.gone)
			time.Sleep(time.Minute)
			g.running()
			lock, err := g.root.Lock("p")
			g.must(err)
			time.Sleep(2 * orphanPoll)
			g.must(lock.Unlock())
		}, nil},
		{"and is ended itself", func(g *guarded) {
			close(g.gone)
			time.Sleep(time.Minute)
			g.stop()
		}, context.Canceled},
		{"in a folder that is gone", func(g *guarded) {
			close(g.gone)
			time.Sleep(time.Minute)
			g.running()
			g.must(os.RemoveAll(g.root.Dir()))
		}, fs.ErrNotExist}, // with nothing killed: this process is no browser on the profile's directory
		{"for the time that the browsers have, and tries again", func(g *guarded) {
			close(g.gone)
			time.Sleep(2*time.Minute + 3*orphanPause)
			g.running()
			first := g.tries[0]
			if first < 2*time.Minute || first > 2*time.Minute+orphanPoll {
				g.Errorf("first tried after %v", first)
			}
			for i, at := range g.tries {
				if at != first+time.Duration(i)*orphanPause {
					g.Errorf("tried at %v", g.tries)
				}
			}
			if len(g.tries) != 3 && len(g.tries) != 4 || strings.Count(g.said.String(), "it is tried again") != len(g.tries) {
				g.Errorf("%d tries", len(g.tries))
			}
			g.tries = nil
			g.stop()
		}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.must(h.files.Save(sessionfile.File{SessionID: "ses_p"}))
				h.started("p", nil)
				g := h.guard()
				defer g.stop()
				tt.do(g)
				select {
				case err := <-g.ended:
					if !errors.Is(err, tt.want) {
						t.Errorf("ended: %v", err)
					}
				case <-time.After(time.Hour):
					t.Error("it does not end")
				}
				if len(g.tries) > 0 {
					t.Errorf("tried to end browsers after %v", g.tries)
				}
			})
		})
	}
}

// ends checks that the guard ends by itself.
func (g *guarded) ends() {
	g.Helper()
	select {
	case err := <-g.ended:
		g.must(err)
	case <-time.After(time.Minute):
		g.Fatal("the guard does not end")
	}
}

// A launcher that cannot start, and is started again and again, leaves no guard each time: one watches what an
// earlier launcher left.
func TestOneGuardWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.must(h.files.Save(sessionfile.File{SessionID: "ses_p"}))
		h.started("p", nil)
		first := h.guard()
		defer first.stop()
		close(first.gone)
		first.running()
		for range 3 {
			next := h.guard()
			defer next.stop()
			time.Sleep(time.Second)
			next.running() // while its launcher lives
			close(next.gone)
			next.ends()
		}
		first.running()
		if first.stop(); !errors.Is(<-first.ended, context.Canceled) {
			t.Error("the first guard ended by itself")
		}
		last := h.guard()
		defer last.stop()
		close(last.gone)
		time.Sleep(time.Minute)
		last.running()
		last.stop()
		<-last.ended
	})
}

// looking has a function called for each look at whether a browser lives.
type looking struct {
	browser.Kernel
	lives func() bool
}

func (l looking) Lives(chrome.Identity) bool { return l.lives() }

// A guard ends because it saw no browser. If another guard found the lock taken after that look, and ended, what its
// launcher left is watched all the same.
func TestNoBrowserIsLeftBetweenTwoGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.must(h.files.Save(sessionfile.File{SessionID: "ses_p"}))
		h.started("p", nil)
		next, looks := h.guard(), 0
		defer next.stop()
		first := h.guard(func(o *GuardOptions) {
			o.Processes = looking{lives: func() bool {
				if looks++; looks == 1 { // the next launcher's browser starts after this look
					close(next.gone)
					next.ended <- <-next.ended
				}
				return looks > 1
			}}
		})
		defer first.stop()
		close(first.gone)
		time.Sleep(time.Minute)
		next.ends()
		first.running()
		first.stop()
		<-first.ended
	})
}

// A browser has a file for each of its runs, that of the record's session first among those
// that have no bundle yet.
func TestTheRunsOfAnOrphan(t *testing.T) {
	h := newHost(t)
	l := h.launch(nil)
	for id, ended := range map[string]string{"ses_latest": "", "ses_first": "", "ses_second": "", "ses_over": "released"} {
		h.must(h.files.Save(sessionfile.File{SessionID: id, Ended: ended}))
	}
	h.must(h.files.Save(sessionfile.File{SessionID: "ses_ending", Evidence: lease.Sealed{EvidenceID: "ev_1"}}))
	runs := func(ids ...string) (all []lease.Run) {
		for _, id := range ids {
			all = append(all, lease.Run{SessionID: id})
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		record  lease.Record
		started string
		want    []string
	}{
		{"one run", lease.Record{SessionID: "ses_latest", Runs: runs("ses_latest")}, "ses_latest", []string{"ses_latest"}},
		{"several", lease.Record{SessionID: "ses_latest", Runs: runs("ses_first", "ses_second", "ses_latest")}, "ses_first", []string{"ses_latest", "ses_first", "ses_second"}},
		{"the one that it was started for is over", lease.Record{SessionID: "ses_latest", Runs: runs("ses_latest")}, "ses_over", []string{"ses_latest"}},
		{"the latest is over", lease.Record{SessionID: "ses_over", Runs: runs("ses_first")}, "ses_first", []string{"ses_first"}},
		{"the latest was ending", lease.Record{SessionID: "ses_ending", Runs: runs("ses_first", "ses_second", "ses_ending")}, "ses_first", []string{"ses_first", "ses_second", "ses_ending"}},
		{"one has no file", lease.Record{SessionID: "ses_latest", Runs: runs("ses_missing", "ses_latest")}, "ses_latest", []string{"ses_latest"}},
		{"no record was kept", lease.Record{}, "ses_first", []string{"ses_first"}},
		{"all are over", lease.Record{SessionID: "ses_over"}, "ses_over", nil},
		{"no file", lease.Record{SessionID: "ses_missing"}, "ses_missing", nil},
	} {
		files, err := l.runsOf(tt.record, tt.started)
		var ids []string
		for _, f := range files {
			ids = append(ids, f.SessionID)
		}
		if !slices.Equal(ids, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("%s: %v, %v", tt.name, ids, err)
		}
	}
}

// Browsers for which no launcher comes are closed, after their evidence, and the files of
// their sessions say so to the next launcher, which decides. What a launcher has is left
// alone.
func TestTheGuardEndsBrowsers(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	r := h.serves("p")
	second := r.Clone() // shares the browser
	second.SessionID = "ses_second"
	h.must(h.files.Save(fileOf(second)))
	r.Runs = append(r.Runs, lease.Run{SessionID: "ses_second", Token: 1})
	last := r.Clone() // was granted after both, and is over
	last.SessionID, last.OwnerWorkerID, last.Runs = "ses_last", "w2", append(last.Runs, lease.Run{SessionID: "ses_p", Token: 1})
	over := fileOf(last)
	over.Ended = "released"
	h.must(h.files.Save(over))
	h.keep(last)
	left := h.browser(r)
	free := h.released(h.granted(lease.Record{ProfileID: "warm"}, "ses_warm"))
	h.keep(free)
	h.must(h.files.Save(fileOf(free)))
	warm := h.browser(free)
	jar := sessionfile.NewJar(h.dir, testkey.Key)
	h.must(jar.Keep(t.Context(), oneCookie{}, "checked"))
	h.keep(h.released(h.granted(lease.Record{ProfileID: "checked"}, "ses_checked")))
	check := h.browser(lease.Record{ProfileID: "checked", SessionID: "chk_1", Token: 1})
	h.must(h.files.Save(sessionfile.File{SessionID: "ses_taken"}))
	h.started("taken", nil)
	taken := h.lock("taken")

	gone := make(chan struct{})
	close(gone)
	o := GuardOptions{ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: gone, Archive: h.archive, Log: h.log()}
	spool := filepath.Join(h.dir, "spool")
	blind := o
	blind.Archive = func() (*evidence.Archive, error) {
		a, err := h.archive()
		return a, errors.Join(err, os.RemoveAll(spool))
	}
	before := h.file("ses_p")
	h.unlocked("p")
	if err := endOrphans(t.Context(), blind, []string{"p", "taken"}); err == nil || !strings.Contains(err.Error(), "profile p: ") || strings.Contains(err.Error(), "taken") {
		t.Errorf("without evidence: %v", err)
	}
	if after := h.file("ses_p"); !h.lives(left) || after.CloseMethod != before.CloseMethod || after.Reason != "" {
		t.Errorf("without evidence it lives: %v, %+v", h.lives(left), after)
	}
	h.unlocked("p")

	if err := Guard(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if h.lives(left) || h.lives(warm) || h.lives(check) {
		t.Errorf("they live: %v, %v, %v", h.lives(left), h.lives(warm), h.lives(check))
	}
	if kept, err := filepath.Glob(filepath.Join(h.dir, "session-cookies", lease.Key("checked")+".json")); err != nil || len(kept) != 1 {
		t.Errorf("the cookies that the browser of the check may have lacked: %v, %v", kept, err)
	}
	sealed := h.file("ses_p").Evidence
	for _, id := range []string{"ses_p", "ses_second"} {
		if f := h.file(id); f.Reason != api.ReasonOrphaned || !f.Unseen || f.CloseMethod != "cdp" || f.Evidence != sealed || f.Ended != "" {
			t.Errorf("its file: %+v", f)
		}
	}
	if f := h.file("ses_warm"); f.Reason != "" || f.Evidence.EvidenceID != "" {
		t.Errorf("the warm one's: %+v", f)
	}
	if _, running, err := h.root.Running("taken"); err != nil || !running {
		t.Errorf("what a launcher has: %v, %v", running, err)
	}
	h.must(taken.Unlock())
	h.given("p")
	h.given("warm")
	h.given("checked")

	l := h.launch(nil)
	m := l.manifest(sealed.EvidenceID)
	if m.RecoveryReason != api.ReasonOrphaned || m.LastScreenshot == "" || m.LastKnownURL != "https://shop.example/cart" || m.LeaseToken != 1 || m.SessionID != "ses_p" || m.OldWorkerID != "w" {
		t.Errorf("%+v", m)
	}
	if kinds := l.entries(sealed.EvidenceID); !slices.Equal(kinds, []checkpoint.Kind{checkpoint.KindStart, checkpoint.KindURL, checkpoint.KindStep}) {
		t.Errorf("its journal: %v", kinds)
	}
	if got := l.bundles("warm"); len(got) > 0 {
		t.Errorf("%d bundles of the warm one", len(got))
	}
	if got := l.adopts("p"); got.State != lease.ManualReview || got.Reason != api.ReasonOrphaned || got.EvidenceID != sealed.EvidenceID {
		t.Errorf("%+v", got)
	}
	if all := l.bundles("p"); len(all) != 1 {
		t.Errorf("%d bundles", len(all))
	}
}

// A browser of which the guard knows is ended also where somebody removes its files, or its disk is
// unmounted. There is no evidence then.
func TestTheGuardKillsABrowserWhoseFilesAreGone(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(h *host) error{
		"the data directory":     func(h *host) error { return os.RemoveAll(h.dir) },
		"the profiles directory": func(h *host) error { return os.RemoveAll(h.root.Dir()) },
		"another profiles directory": func(h *host) error {
			return errors.Join(os.Rename(h.root.Dir(), h.root.Dir()+".was"), os.Mkdir(h.root.Dir(), 0o700))
		},
		"the profile":             func(h *host) error { return os.RemoveAll(filepath.Join(h.root.Dir(), "p")) },
		"the file of the session": func(h *host) error { return h.files.Remove("ses_p") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			left := h.browser(h.serves("p"))
			h.unlocked("p")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			gone, looks := make(chan struct{}), 0
			close(gone)
			err := Guard(ctx, GuardOptions{
				ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: gone, Timeout: time.Hour, Log: h.log(),
				Archive: func() (*evidence.Archive, error) { return nil, errors.New("there is no place for evidence") },
				Clock: func() boottime.Instant { // it is asked when the guard has looked for browsers
					if looks++; looks == 1 {
						h.must(remove(h))
						return 0
					}
					return boottime.Instant(2 * time.Hour)
				},
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			if h.lives(left) {
				t.Error("the browser lives")
			}
			if said := h.said.String(); !strings.Contains(said, "without evidence") || strings.Contains(said, "there is no place for evidence") {
				t.Error("the guard does not say that there is no evidence, or tries to make some")
			}
		})
	}
}

// The end of a session had begun when its launcher was killed. The next one has read the file, and cannot adopt
// the browser yet, when the guard closes it: then it goes on from what the guard has done.
func TestTheGuardEndsWhatTheNextLauncherHasRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sealed  lease.Sealed // before the launcher was killed
		bundles int
	}{
		"before its evidence was sealed": {lease.Sealed{}, 1},
		"before its browser was closed":  {lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			r := h.serves("p")
			h.browser(r)
			f := fileOf(r)
			f.Reason, f.Evidence = api.ReasonHeartbeat, tt.sealed
			h.must(h.files.Save(f))
			l := h.launch(nil)
			gone := make(chan struct{})
			close(gone)
			h.must(Guard(t.Context(), GuardOptions{ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: gone, Archive: h.archive, Log: h.log()}))
			guards := h.file("ses_p")
			if guards.Evidence.EvidenceID == "" || guards.CloseMethod != "cdp" {
				t.Fatalf("the guard's file: %+v", guards)
			}
			got := l.adopts("p")
			if got.State != lease.ManualReview || got.Reason != api.ReasonHeartbeat || got.EvidenceID != guards.Evidence.EvidenceID {
				t.Errorf("%+v; want the guard's bundle, %s", got, guards.Evidence.EvidenceID)
			}
			if f := h.file("ses_p"); f.Evidence != guards.Evidence || f.CloseMethod != "cdp" || !f.Unseen {
				t.Errorf("its file: %+v", f)
			}
			if all := l.bundles("p"); len(all) != tt.bundles {
				t.Errorf("%d bundles, want %d", len(all), tt.bundles)
			}
		})
	}
}

// TestEachBrowserHasAWaitOfItsOwn: a launcher came back for one of two browsers, and ended
// again. That one waits anew.
func TestEachBrowserHasAWaitOfItsOwn(t *testing.T) {
	const timeout = 10 * time.Second
	at := func(seconds int) boottime.Instant { return boottime.Instant(time.Duration(seconds) * time.Second) }
	alone := orphaned{}
	for _, look := range []struct {
		at   int
		left map[string]int // when their locks were taken
		due  []string
		next time.Duration
	}{
		{0, map[string]int{"a": 0, "b": 0}, nil, 10 * time.Second},
		{4, map[string]int{"a": 0}, nil, 6 * time.Second}, // a launcher has b
		{8, map[string]int{"a": 0, "b": 4}, nil, 2 * time.Second},
		{10, map[string]int{"a": 0, "b": 4}, []string{"a"}, 8 * time.Second},
		{11, map[string]int{"a": 0, "b": 4}, []string{"a"}, 7 * time.Second}, // it could not be ended
		{17, map[string]int{"b": 4}, nil, time.Second},
		{18, map[string]int{"b": 17}, nil, timeout}, // a launcher had it, and ended before this look
		{28, map[string]int{"b": 17}, []string{"b"}, timeout},
	} {
		left := map[string]orphan{}
		for profile, taken := range look.left {
			left[profile] = orphan{taken: time.Unix(int64(taken), 0)}
		}
		due, next := alone.due(left, at(look.at), timeout)
		if !slices.Equal(due, look.due) || next != look.next {
			t.Errorf("after %d s: %v and %v, want %v and %v", look.at, due, next, look.due, look.next)
		}
	}
}
