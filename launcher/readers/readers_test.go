package readers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/objects"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*Room
	t        *testing.T
	store    *snapshots.Store
	objects  *hanging
	dir      string
	profiles *profiledir.Root
	at       time.Time // the cache's clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	o := &hanging{Objects: snapshots.OpenDir(filepath.Join(dir, "store"))}
	w := &world{t: t, store: snapshots.New(o, snapshots.NewKey()), objects: o, dir: dir, at: time.Unix(1000, 0)}
	w.open()
	return w
}

// hanging are the objects of a store that may hang.
type hanging struct {
	objects.Objects
	hangs chan struct{} // nil: it does not; closed when it is asked for something
}

func (o *hanging) Get(ctx context.Context, key string) ([]byte, string, error) {
	if o.hangs != nil {
		close(o.hangs)
		<-ctx.Done()
		return nil, "", context.Cause(ctx)
	}
	return o.Objects.Get(ctx, key)
}

// open opens the room, as the next launcher does.
func (w *world) open() {
	w.t.Helper()
	profiles, err := profiledir.Open(filepath.Join(w.dir, "profiles"), testkey.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.profiles = profiles
	w.Room, err = Open(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.cache.now = func() time.Time { return w.at }
}

func (w *world) options() Options {
	return Options{
		DataDir: w.dir, Profiles: w.profiles, Key: testkey.Key, Snapshots: w.store, Chrome: func(context.Context) (string, error) { return "156.0.0.0", nil }, Files: sessionfile.NewDir(w.dir, testkey.Key),
		Processes: browser.Kernel{}, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	}
}

func (w *world) seal(profile string, token lease.Token) snapshots.Snapshot {
	w.t.Helper()
	from := w.t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(from, "Local State"), []byte("{}"), 0o600),
		os.Mkdir(filepath.Join(from, "Default"), 0o700), os.WriteFile(filepath.Join(from, "Default", "Cookies"), []byte(profile), 0o600),
	); err != nil {
		w.t.Fatal(err)
	}
	content, err := w.store.Read(w.t.Context(), profile, from, snapshots.ReadOptions{Spool: w.t.TempDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := w.store.Seal(w.t.Context(), content, snapshots.About{Token: token, ChromeVersion: "156.0.0.0", CreatedAt: time.Now()})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// unpack unpacks a snapshot that the test's end does not release.
func (w *world) unpack(s snapshots.Snapshot) (*Unpacked, func()) {
	w.t.Helper()
	u, release, err := w.Unpack(w.t.Context(), s.ProfileID, s.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return u, release
}

func (w *world) unpacked() int {
	w.t.Helper()
	found, err := os.ReadDir(filepath.Join(w.dir, dirName, cacheName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return len(found)
}

// TestCopiesAreApart: what is written in one copy is neither in another one nor in what they are
// copied from.
func TestCopiesAreApart(t *testing.T) {
	w := newWorld(t)
	u, release := w.unpack(w.seal("p", 1))
	defer release()
	var copies []*Copy
	for i := range 2 {
		c, err := w.Make(t.Context(), u, fmt.Sprintf("ses_%d", i))
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, c)
	}
	// In place, as SQLite does.
	f, err := os.OpenFile(filepath.Join(copies[0].Path, "Default", "Cookies"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("X"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{copies[1].Path, u.Dir} {
		if b, err := os.ReadFile(filepath.Join(dir, "Default", "Cookies")); err != nil || string(b) != "p" {
			t.Errorf("%s: %q, %v", dir, b, err)
		}
	}
	for _, c := range copies {
		if err := c.Discard(); err != nil {
			t.Error(err)
		}
	}
	if ids, err := w.root.Guarded(); err != nil || len(ids) > 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
}

// TestOneFetchForAll: who asks for one snapshot at the same time waits for one fetch; one that
// fails is tried again by the next.
func TestOneFetchForAll(t *testing.T) {
	w := newWorld(t)
	s := w.seal("p", 1)
	var work sync.WaitGroup
	dirs := make([]string, 50)
	for i := range dirs {
		work.Go(func() {
			u, release, err := w.Unpack(t.Context(), "p", s.ID)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			dirs[i] = u.Dir
		})
	}
	work.Wait()
	for _, d := range dirs {
		if d != dirs[0] {
			t.Errorf("%s and %s", d, dirs[0])
		}
	}
	if n := w.unpacked(); n != 1 {
		t.Errorf("%d are unpacked", n)
	}
	for range 2 {
		if _, _, err := w.Unpack(t.Context(), "p", "snap_none"); !errors.Is(err, snapshots.ErrNoSnapshot) {
			t.Errorf("%v", err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, _, err := w.Unpack(gone, "q", w.seal("q", 1).ID); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.cache.work.Wait() // it was fetched all the same
	if n := w.unpacked(); n != 2 {
		t.Errorf("%d are unpacked", n)
	}
}

// TestAFetchThatHangsDoesNotHoldUpTheEnd: of the launcher, although it outlives its callers.
func TestAFetchThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sealed := w.seal("p", 1)
		w.objects.hangs = make(chan struct{})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		gone, leave := context.WithCancel(t.Context())
		running.Go(func() {
			if _, _, err := w.Unpack(gone, "p", sealed.ID); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		<-w.objects.hangs
		leave()
		begun := time.Now()
		end()
		if running.Wait(); time.Since(begun) != 0 {
			t.Errorf("it ended after %s", time.Since(begun))
		}
	})
}

// TestWhatNobodyUsesGoes: an unpacked snapshot stays while it is used, and then for a while; not
// when a later one of its profile is here, nor where too many do.
func TestWhatNobodyUsesGoes(t *testing.T) {
	w := newWorld(t)
	_, release := w.unpack(w.seal("p", 1))
	w.at = w.at.Add(2 * cacheIdle)
	if w.cache.tidy(true); w.unpacked() != 1 {
		t.Fatal("one that is used was removed")
	}
	release()
	if w.cache.tidy(false); w.unpacked() != 1 {
		t.Error("one that was just used was removed")
	}
	if at, any := w.cache.next(); !any || !at.Equal(w.at.Add(cacheIdle)) {
		t.Errorf("%v, %v", at, any)
	}
	w.at = w.at.Add(cacheIdle)
	if w.cache.tidy(false); w.unpacked() != 0 {
		t.Error("an old one stays")
	}
	for token := lease.Token(2); token < 4; token++ {
		_, release := w.unpack(w.seal("p", token))
		release()
	}
	if w.cache.tidy(false); w.unpacked() != 1 {
		t.Errorf("%d of one profile stay", w.unpacked())
	}
	for i := range cacheMax + 3 {
		w.at = w.at.Add(time.Second)
		_, release := w.unpack(w.seal(fmt.Sprint("q", i), 1))
		release()
	}
	if w.cache.tidy(false); w.unpacked() != cacheMax {
		t.Errorf("%d stay", w.unpacked())
	}
	if w.cache.tidy(true); w.unpacked() != 0 || w.cache.bytes() != 0 {
		t.Errorf("%d stay", w.unpacked())
	}
}

// TestABrowserThatWasOnlyForkedKeepsItsCopy until it is gone: it names no directory yet, but has the lock
// of the copy.
func TestABrowserThatWasOnlyForkedKeepsItsCopy(t *testing.T) {
	w := newWorld(t)
	u, release := w.unpack(w.seal("p", 1))
	defer release()
	c, err := w.Make(t.Context(), u, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	forked := exec.CommandContext(t.Context(), "cat")
	forked.ExtraFiles = []*os.File{c.Lock.File()}
	end, err := forked.StdinPipe()
	if err = errors.Join(err, forked.Start(), c.Lock.Unlock()); err != nil {
		t.Fatal(err)
	}
	left, err := FindLeft(w.options())
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() {
		_, err := left.Discard(t.Context())
		removed <- err
	}()
	select {
	case err := <-removed:
		t.Errorf("the copy was removed below the browser: %v", err)
	case <-time.After(200 * time.Millisecond): // what does not look at the lock needs less
		if _, err := os.Stat(c.Path); err != nil {
			t.Error(err)
		}
		defer func() {
			if err := <-removed; err != nil {
				t.Error(err)
			}
			if ids, err := w.root.Guarded(); err != nil || len(ids) != 0 {
				t.Errorf("once it is gone: %v, %v", ids, err)
			}
		}()
	}
	if err := errors.Join(end.Close(), forked.Wait()); err != nil {
		t.Error(err)
	}
}

// TestACopyThatCouldNotBeRemovedIsRemovedLater, by the same launcher, once no process uses it.
func TestACopyThatCouldNotBeRemovedIsRemovedLater(t *testing.T) {
	w := newWorld(t)
	u, release := w.unpack(w.seal("p", 1))
	defer release()
	c, err := w.Make(t.Context(), u, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	uses := exec.CommandContext(t.Context(), "sh", "-c", "read x", "--user-data-dir="+c.Path)
	end, err := uses.StdinPipe()
	if err = errors.Join(err, uses.Start()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	if err := c.Leave(); err != nil {
		t.Fatal(err)
	}
	for taken := false; !taken; time.Sleep(time.Millisecond) { // it is tried
		if taken, err = w.root.Held("ses_1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(c.Path); err != nil {
		t.Error(err)
	}
	_ = errors.Join(end.Close(), uses.Wait()) // its exit code says that there was nothing to read
	for there := true; there; time.Sleep(time.Millisecond) {
		ids, err := w.root.Guarded()
		if there = len(ids) > 0; err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-done
}

// TestWhatALauncherLeftIsRemoved: by its guard, but for what a launcher has, and by the next one,
// with what it had unpacked.
func TestWhatALauncherLeftIsRemoved(t *testing.T) {
	w := newWorld(t)
	u, release := w.unpack(w.seal("p", 1))
	defer release()
	var copies []*Copy
	for i := range 3 {
		c, err := w.Make(t.Context(), u, fmt.Sprintf("ses_%d", i))
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, c)
	}
	killed := func(i int) { // the kernel gives up what a process had
		if err := copies[i].Lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	killed(0)
	left, err := FindLeft(w.options())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := left.Discard(t.Context()); n != 2 || err != nil { // a launcher has these
		t.Errorf("%d, %v", n, err)
	}
	if ids, err := w.root.Guarded(); err != nil || len(ids) != 2 {
		t.Fatalf("%v, %v", ids, err)
	}
	killed(1)
	if n, err := left.Discard(t.Context()); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	killed(2)
	if err := os.RemoveAll(copies[2].Path); err != nil { // it was being removed
		t.Fatal(err)
	}
	w.open()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	for {
		if ids, err := w.root.Guarded(); err != nil {
			t.Fatal(err)
		} else if len(ids) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n, err := left.Discard(t.Context()); n != 0 || err != nil { // the next launcher removed it
		t.Errorf("%d, %v", n, err)
	}
	cancel()
	<-done
	if w.unpacked() != 0 {
		t.Error("what was unpacked stays")
	}
	if cookies, err := filepath.Glob(filepath.Join(w.dir, dirName, ".leasehold", "session-cookies", "*")); err != nil || len(cookies) > 0 {
		t.Errorf("%v, %v", cookies, err)
	}
}
