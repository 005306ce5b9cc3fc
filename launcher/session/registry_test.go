package session

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/internal/test/leasetest"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// known is the file of an earlier session of worker w's task.
func known(sessionID, profileID, task string, change ...func(*sessionfile.File)) sessionfile.File {
	f := sessionfile.File{
		SessionID: sessionID, CapabilityHash: sessionfile.HashCapability("secret of " + sessionID), Token: 3,
		Manifest: api.Manifest{ProfileID: profileID, WorkerID: "w", TaskID: task},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func ended(how string) func(*sessionfile.File) {
	return func(f *sessionfile.File) { f.Reason, f.Ended = "r", how }
}

// hostWith is a host that found these files. It has no browsers.
func hostWith(t *testing.T, files ...sessionfile.File) (h *Registry, dir sessionfile.Dir, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	dir = sessionfile.NewDir(t.TempDir(), testkey.Key)
	if _, err := dir.Load(); err != nil { // it makes the folder
		t.Fatal(err)
	}
	for _, f := range files {
		if err := dir.Begin(f); err != nil {
			t.Fatal(err)
		}
	}
	root, err := profiledir.Open(t.TempDir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := fileroots.New(fileroots.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	h, err = NewRegistry(ctx, &sync.WaitGroup{}, Options{
		FileRoots: roots,
		Root:      root, Files: dir, Announcer: NewAnnouncer("l", leasetest.New(t), zerolog.Nop(), metrics), Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, dir, cancel
}

func TestLookupOfSessionsThatAreOver(t *testing.T) {
	h, _, _ := hostWith(t,
		known("ses_over", "p", "one", ended("released: done")),
		known("ses_lost", "p", "two", func(f *sessionfile.File) { f.Reason = api.ReasonHeartbeat }),
	)
	for _, draining := range []bool{false, true} {
		for _, tt := range []struct{ id, code, says string }{
			{"ses_over", api.CodeSessionEnded, "released: done"},
			{"ses_lost", api.CodeSessionEnded, "the launcher that served it is gone"},
			{"ses_none", map[bool]string{false: api.CodeUnknownSession, true: api.CodeShuttingDown}[draining], "ses_none"},
		} {
			if _, err := h.Lookup(tt.id); problem(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("draining %v, %s: %v", draining, tt.id, err)
			}
		}
		if s, err := h.Show("ses_over"); err != nil || s.State != api.SessionEnded || s.Ended != "released: done" || s.Token != 3 || s.TaskID != "one" {
			t.Errorf("shown: %+v, %v", s, err)
		}
		if _, err := h.Show("ses_none"); err == nil {
			t.Error("a session that nobody knows is shown")
		}
		h.Drain()
	}
	if !h.Draining() {
		t.Error("not draining")
	}
}

// TestASessionOfAnEarlierLauncherIsWaitedFor until it is known what becomes of it, but not
// for ever.
func TestASessionOfAnEarlierLauncherIsWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name  string
		until func(h *Registry, stop context.CancelFunc)
		code  string
		took  time.Duration
	}{
		{"it is known", func(h *Registry, _ context.CancelFunc) { time.Sleep(3 * time.Second); h.Known("ses_1") }, api.CodeSessionEnded, 3 * time.Second},
		{"it is known of another one", func(h *Registry, _ context.CancelFunc) { h.Known("ses_2") }, api.CodeStoreUnavailable, resumeWait},
		{"it is never known", func(*Registry, context.CancelFunc) {}, api.CodeStoreUnavailable, resumeWait},
		{"the launcher stops", func(_ *Registry, stop context.CancelFunc) { time.Sleep(time.Second); stop() }, api.CodeStoreUnavailable, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _, stop := hostWith(t, known("ses_1", "p", "one"), known("ses_2", "q", "one"))
				go tt.until(h, stop)
				begun := time.Now()
				_, err := h.Lookup("ses_1")
				if took := time.Since(begun); problem(err) != tt.code || took != tt.took {
					t.Errorf("%v after %v, want %s after %v", err, took, tt.code, tt.took)
				}
				if _, err := h.ByCapability("secret of ses_none"); problem(err) != api.CodeUnknownSession || time.Since(begun) != tt.took {
					t.Errorf("a capability of no session: %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// TestKnownWhereLetsTheRightOnesGoOn: waiters of other sessions wait on, and Of waits for
// its own task alone.
func TestKnownWhereLetsTheRightOnesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := hostWith(t, known("ses_1", "p", "one"), known("ses_2", "p", "two"), known("ses_3", "q", "one"))
		back := map[string]time.Duration{}
		var mu sync.Mutex
		begun := time.Now()
		var all sync.WaitGroup
		wait := func(name string, f func()) {
			all.Go(func() {
				f()
				mu.Lock()
				defer mu.Unlock()
				back[name] = time.Since(begun)
			})
		}
		wait("ses_1", func() { _, _ = h.Lookup("ses_1") })
		wait("ses_2", func() { _, _ = h.ByCapability("secret of ses_2") })
		wait("ses_3", func() { _, _ = h.Show("ses_3") })
		wait("of p one", func() { h.Of(anAdmin, "p", "w", "one", false) })
		wait("of q one", func() { h.Of(anAdmin, "q", "w", "one", false) })
		wait("of another task", func() { h.Of(anAdmin, "p", "w", "three", false) })
		wait("of another worker", func() { h.Of(anAdmin, "p", "v", "one", false) })
		time.Sleep(time.Second)
		h.KnownWhere(func(f sessionfile.File) bool { return f.Manifest.ProfileID == "p" })
		time.Sleep(time.Second)
		h.Known("ses_3")
		h.Known("ses_3") // once is enough
		all.Wait()
		for name, want := range map[string]time.Duration{
			"ses_1": time.Second, "ses_2": time.Second, "of p one": time.Second, "ses_3": 2 * time.Second, "of q one": 2 * time.Second,
			"of another task": 0, "of another worker": 0,
		} {
			if back[name] != want {
				t.Errorf("%s went on after %v, want %v", name, back[name], want)
			}
		}
		if f, ok := h.File("ses_3"); !ok || f.Token != 3 {
			t.Errorf("the file is forgotten: %+v", f)
		}
		if _, ok := h.Identify("ses_none"); ok {
			t.Error("a session that nobody knows is identified")
		}
	})
}

// TestRememberForgetsTheOldest: beyond the bound a tenth goes, with its files, but for
// those whose browser may live and those that are not recovered yet.
func TestRememberForgetsTheOldest(t *testing.T) {
	at := func(i int) time.Time { return time.Unix(int64(i), 0).UTC() }
	id := func(i int) string { return fmt.Sprintf("ses_%04d", i) }
	file := func(i int) sessionfile.File {
		return known(id(i), "p", "one", ended(map[bool]string{true: "released"}[i != 2]), func(f *sessionfile.File) { f.AcquiredAt = at(i) })
	}
	onDisk := []int{1, 2, 5, 7, 200, 201, maxEnded - 1}
	var files []sessionfile.File
	for _, i := range onDisk {
		files = append(files, file(i))
	}
	h, dir, _ := hostWith(t, files...)
	for i := range maxEnded { // to write them all takes too long
		f := file(i)
		h.ended[f.SessionID], h.hashes[f.CapabilityHash] = f, f.SessionID
	}
	lock, err := h.o.Root.Lock("p")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	if err := lock.SetRunning(profiledir.Running{SessionID: id(5)}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{5, 7} {
		h.o.Announcer.late[id(i)] = true
		if err := os.WriteFile(dir.Journal(id(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Remember(file(maxEnded)); err != nil {
		t.Fatal(err)
	}
	// Of those that ended, the oldest 200 are 0 to 200 without 2; 5 has a browser.
	kept := func(i int) bool { return i == 2 || i == 5 || i > 200 }
	for i := range maxEnded + 1 {
		_, known := h.File(id(i))
		_, err := h.ByCapability("secret of " + id(i))
		if known != kept(i) || (problem(err) == api.CodeSessionEnded) != kept(i) {
			t.Fatalf("%s: known %v, %v; want it kept: %v", id(i), known, err, kept(i))
		}
	}
	for _, i := range append(onDisk, maxEnded) {
		if _, err := dir.Read(id(i)); (err == nil) != kept(i) {
			t.Errorf("%s: %v; want its file kept: %v", id(i), err, kept(i))
		}
	}
	for i, kept := range map[int]bool{5: true, 7: false} {
		if _, err := os.Stat(dir.Journal(id(i))); (err == nil) != kept || h.o.Announcer.WroteLate(id(i)) != kept {
			t.Errorf("%s: journal %v, wrote late %v; want them kept: %v", id(i), err, h.o.Announcer.WroteLate(id(i)), kept)
		}
	}
}

// TestLivingSessions are found by id, capability, task and profile.
func TestLivingSessions(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{runs: 2})
	shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	one := r.begin(task("one", shared))
	two, err := r.join(task("two", shared))
	if err != nil {
		t.Fatal(err)
	}
	h := r.host
	for _, s := range []*Session{one, two} {
		byID, err := h.Lookup(s.ID())
		byCapability, err2 := h.ByCapability(s.Show().Capability)
		if byID != s || byCapability != s || h.ByID(s.ID()) != s || h.Of(anAdmin, profile, "w", s.Manifest().TaskID, false) != s {
			t.Errorf("%s: %v %v, %v %v", s.ID(), byID, err, byCapability, err2)
		}
		if f, ok := h.Identify(s.ID()); !ok || f.Token != s.Token() || f.Manifest.TaskID != s.Manifest().TaskID {
			t.Errorf("identified: %+v", f)
		}
	}
	if len(h.Living()) != 2 || h.OnProfile(profile) != one || h.OnProfile("q") != nil {
		t.Errorf("%d living, %v on the profile", len(h.Living()), h.OnProfile(profile))
	}
	for _, of := range [][3]string{{"q", "w", "one"}, {profile, "v", "one"}, {profile, "w", "three"}} {
		if h.Of(anAdmin, of[0], of[1], of[2], false) != nil {
			t.Errorf("found for %v", of)
		}
	}
	if n := r.counted("leasehold_sessions"); n != 2 {
		t.Errorf("%v sessions counted", n)
	}
	// One that ends is found by its task no more, and by its id until it is over.
	r.chromium.set(func() {
		r.chromium.at["Page.captureScreenshot"] = func() {
			if !one.life.isEnding() || h.Of(anAdmin, profile, "w", "one", false) != nil {
				t.Error("a session that ends is found by its task")
			}
			if s, err := h.Lookup(one.ID()); s != one || err != nil || one.Show().State != api.SessionRecovering {
				t.Errorf("a session that ends: %v, %v", s, err)
			}
			if _, err := one.Monitor(); problem(err) != api.CodeSessionEnded {
				t.Errorf("its monitor: %v", err)
			}
		}
	})
	if _, err := one.Release(t.Context(), api.Release{}); err != nil {
		t.Fatal(err)
	}
	r.chromium.set(func() { clear(r.chromium.at) })
	if _, err := h.Lookup(one.ID()); problem(err) != api.CodeSessionEnded {
		t.Errorf("a session that is over: %v", err)
	}
	if _, err := h.ByCapability(one.file.shown()); problem(err) != api.CodeSessionEnded {
		t.Errorf("its capability: %v", err)
	}
	if h.OnProfile(profile) != two || !slices.Equal(h.Living(), []*Session{two}) || r.counted("leasehold_sessions") != 1 {
		t.Errorf("%v are left, %v counted", h.Living(), r.counted("leasehold_sessions"))
	}
}
