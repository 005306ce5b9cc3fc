package sites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/checkpoint/site"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that can be away, and can lose everything.
type memory struct {
	events  []string // that were published
	mu      sync.Mutex
	last    uint64
	has     map[string]lease.SiteEntry
	counts  map[string]lease.SiteEntry
	away    bool
	full    bool          // it takes nothing, and shows what it has
	changed chan struct{} // closed when something did
	lost    int
}

func newMemory() *memory {
	return &memory{has: map[string]lease.SiteEntry{}, counts: map[string]lease.SiteEntry{}, changed: make(chan struct{})}
}

func (m *memory) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) lose() {
	m.change(func() { m.has, m.last, m.lost = map[string]lease.SiteEntry{}, 0, m.lost+1 })
}

// reshow has the store show all that it has once more, as after a connection that was lost.
func (m *memory) reshow() { m.change(func() { m.lost++ }) }

func (m *memory) PutSite(_ context.Context, e lease.SiteEntry) (at uint64, err error) {
	m.change(func() {
		old := m.has[e.Name]
		switch {
		case m.away, m.full:
			err = lease.ErrUnavailable
		case e.Revision != old.Revision && (e.Revision != 0 || old.Revision != 0 && !old.Gone):
			err = lease.ErrSiteMoved
		default:
			m.last++
			at, e.Revision = m.last, m.last
			m.has[e.Name] = e
		}
	})
	return at, err
}

func (m *memory) announce(_ context.Context, e lease.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintln(e.Subject(), e.Event, e.Revision, e.Requests, e.Principal))
	return nil
}

func (m *memory) SiteCounts(_ context.Context, name string) (lease.SiteEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return lease.SiteEntry{}, lease.ErrUnavailable
	}
	return m.counts[name], nil
}

func (m *memory) PutSiteCounts(_ context.Context, e lease.SiteEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.away, m.full:
		return lease.ErrUnavailable
	case e.Revision != m.counts[e.Name].Revision:
		return lease.ErrSiteMoved
	}
	e.Revision++
	m.counts[e.Name] = e
	return nil
}

func (m *memory) WatchSites(ctx context.Context, see func(lease.SiteSight)) error {
	lost, shown := -1, uint64(0)
	for {
		m.mu.Lock()
		away, changed, fresh := m.away, m.changed, m.lost != lost
		var news []lease.SiteEntry
		if !away {
			if fresh {
				shown, lost = 0, m.lost
			}
			for _, e := range m.has {
				if e.Revision > shown {
					news = append(news, e)
				}
			}
			shown = m.last
		}
		m.mu.Unlock()
		if away {
			return lease.ErrUnavailable
		}
		if fresh {
			see(lease.SiteSight{Fresh: true})
		}
		for _, e := range news {
			see(lease.SiteSight{Entry: e})
		}
		if fresh {
			see(lease.SiteSight{Complete: true})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func file(t *testing.T, name, line string) site.File {
	t.Helper()
	f, err := site.Parse([]byte(text(name, line)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func text(name, line string) string {
	return "name: " + name + "\norigins: [\"https://" + name + ".example\"]\nrequests: [{shape: \"POST " + line + "\", is: read}]\n"
}

// launcher is a shelf that runs.
func launcher(t *testing.T, m *memory, dir string) (s *Shelf, stop func()) {
	t.Helper()
	s, err := New(Options{Store: m, Dir: dir, Announce: m.announce, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.Load(t.Context())
	synctest.Wait()
	return s, func() { cancel(); <-done }
}

func holds(t *testing.T, when string, s *Shelf, line string, want bool) {
	t.Helper()
	synctest.Wait()
	name, _, _ := strings.Cut(line, ":")
	if got, _ := s.Book().Now(site.Noted{URL: "https://" + name + ".example/", Line: line}, time.Time{}); got != want {
		t.Errorf("%s: the line %q holds: %v", when, line, got)
	}
}

// TestLaunchersShareWhatIsKnown, with who said it, and go by what they knew last while the store is
// away, or after it forgot.
func TestLaunchersShareWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, stopA := launcher(t, m, "")
		defer stopA()
		b, stopB := launcher(t, m, "")
		defer stopB()
		const line, other = "shop: POST /search is read", "shop: POST /list is read"
		first, err := a.Put(t.Context(), file(t, "shop", "/search"), 0, "ann", time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		holds(t, "at once", a, line, true)
		holds(t, "at the other launcher", b, line, true)
		f := file(t, "shop", "/search")
		f.Requests = append(f.Requests, file(t, "shop", "/list").Requests...)
		if _, err := b.Put(t.Context(), f, first.Revision+7, "bob", time.Unix(2, 0)); !errors.Is(err, lease.ErrSiteMoved) {
			t.Errorf("another revision: %v", err)
		}
		if _, err := b.Put(t.Context(), f, first.Revision, "bob", time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
		metrics := prometheus.NewRegistry()
		metrics.MustRegister(b.changes)
		if found, err := metrics.Gather(); err != nil || found[0].GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Errorf("%v, %v: one change was stored, and one was not", found, err)
		}
		holds(t, "of the other launcher", a, other, true)
		if e, _ := a.Get("shop"); e.Requests[0].SaidBy != "ann" || e.Requests[1].SaidBy != "bob" || !e.Requests[1].SaidAt.Equal(time.Unix(2, 0)) {
			t.Errorf("%+v", e.Requests)
		}

		m.change(func() { m.away = true })
		time.Sleep(2 * lookEvery)
		holds(t, "while the store is away", b, line, true)
		if _, err := a.Put(t.Context(), f, Any, "ann", time.Now()); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("while the store is away: %v", err)
		}
		m.change(func() { m.away = false })
		m.lose()
		time.Sleep(2 * lookEvery)
		holds(t, "after the store forgot", b, line, true)
		c, stopC := launcher(t, m, "")
		defer stopC()
		holds(t, "at a launcher that began then", c, other, true)

		if err := c.Delete(t.Context(), "shop", Any, "cleo", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		holds(t, "after it was removed", a, line, false)
		if err := c.Delete(t.Context(), "shop", Any, "cleo", time.Now()); !errors.Is(err, ErrUnknown) {
			t.Errorf("what is not there: %v", err)
		}
		// each change is published once, by the launcher that made it; what the store forgot is no change
		want := []string{"leasehold.site.shop site_changed 1 1 ann\n", "leasehold.site.shop site_changed 2 2 bob\n", "leasehold.site.shop site_removed 2 0 cleo\n"}
		if !slices.Equal(m.events, want) {
			t.Errorf("published is %q, want %q", m.events, want)
		}
	})
}

// TestADirectoryIsTold to the store: at the start, when a file changes, and when the store forgot;
// what people changed since stays, and what they removed stays removed.
func TestADirectoryIsTold(t *testing.T) {
	dir := t.TempDir()
	at := 0
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		at++
		if err := os.Chtimes(path, time.Unix(int64(at), 0), time.Unix(int64(at), 0)); err != nil {
			t.Fatal(err)
		}
	}
	write("shop.yaml", text("shop", "/a"))
	write("README", "no file about a site")
	const lineA, lineB, byHand = "shop: POST /a is read", "shop: POST /b is read", "shop: POST /hand is read"
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, stop := launcher(t, m, dir)
		other, stopOther := launcher(t, m, "")
		defer stopOther()
		holds(t, "at the start", other, lineA, true)
		if e, _ := other.Get("shop"); e.Requests[0].SaidBy != "the file shop.yaml" {
			t.Errorf("%+v", e)
		}
		if _, err := other.Put(t.Context(), file(t, "shop", "/hand"), Any, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lookEvery)
		holds(t, "changed by hand", s, byHand, true)
		stop()
		s, stop = launcher(t, m, dir)
		holds(t, "after a restart", s, byHand, true)
		write("shop.yaml", text("shop", "/b"))
		time.Sleep(3 * lookEvery)
		holds(t, "the file changed", other, lineB, true)
		write("shop.yaml", "name: shop\n")
		time.Sleep(3 * lookEvery)
		holds(t, "the file is wrong", other, lineB, true)
		write("shop.yaml", text("shop", "/b"))
		if want := "leasehold.site.shop site_changed 3 1 the file shop of --sites-dir\n"; !slices.Contains(m.events, want) {
			t.Errorf("published is %q, want %q in it", m.events, want)
		}
		if err := other.Delete(t.Context(), "shop", Any, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lookEvery)
		stop()
		s, stop = launcher(t, m, dir)
		defer func() { stop() }()
		time.Sleep(3 * lookEvery)
		holds(t, "removed, and after a restart", s, lineB, false)
		m.lose()
		time.Sleep(3 * lookEvery)
		holds(t, "after the store forgot even that", other, lineB, true)
		if err := os.Symlink(filepath.Join(dir, "lent"), filepath.Join(dir, "lent.yaml")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lookEvery)
		write("lent", text("lent", "/l"))
		time.Sleep(3 * lookEvery)
		holds(t, "a file that could not be opened at first", other, "lent: POST /l is read", true)
		write("lent", text("lent", "/other"))
		time.Sleep(3 * lookEvery)
		holds(t, "the file behind a link changed", other, "lent: POST /other is read", true)
	})
	if _, err := New(Options{Dir: filepath.Join(dir, "no"), Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()}); err == nil {
		t.Error("a directory that is not there is taken")
	}
	write("shop.yaml", text("shop", "/a"))
	if err := os.Chmod(filepath.Join(dir, "shop.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), "shop.yaml") {
		t.Errorf("a file that others may write: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "shop.yaml")); err != nil {
		t.Fatal(err)
	}
	write("x.yaml", text("shop2", "/a"))
	if _, err := New(Options{Dir: dir, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), "want the name of the file") {
		t.Errorf("%v", err)
	}
}

// TestWhatIsPutAfterARemovalStays: the directory's file that was removed does not come back when the store
// shows all once more, nor at a restart; and of two directories with other files neither replaces the other's then.
func TestWhatIsPutAfterARemovalStays(t *testing.T) {
	folder := func(line string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text("shop", line)), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir, second := folder("/a"), folder("/second")
	const lineA, byHand, lineB = "shop: POST /a is read", "shop: POST /hand is read", "shop: POST /second is read"
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, stop := launcher(t, m, dir)
		other, stopOther := launcher(t, m, "")
		holds(t, "at the start", other, lineA, true)
		if err := other.Delete(t.Context(), "shop", Any, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		holds(t, "removed", s, lineA, false)
		stopOther()
		other, stopOther = launcher(t, m, "")
		defer stopOther()
		if _, err := other.Put(t.Context(), file(t, "shop", "/hand"), 0, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		holds(t, "put by hand", s, byHand, true)
		m.reshow()
		time.Sleep(3 * lookEvery)
		holds(t, "all was shown once more", s, byHand, true)
		stop()
		s, stop = launcher(t, m, dir)
		time.Sleep(3 * lookEvery)
		holds(t, "after a restart", s, byHand, true)
		if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text("shop", "/a/changed")), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lookEvery)
		holds(t, "the file changed", other, "shop: POST /a/changed is read", true)
		b, stopB := launcher(t, m, second)
		defer stopB()
		holds(t, "a launcher with another directory began", s, lineB, true)
		m.reshow()
		time.Sleep(3 * lookEvery)
		holds(t, "all was shown once more to both", b, lineB, true)
		holds(t, "all was shown once more to both", s, lineB, true)
		stop()
		if n := len(m.events); n != 5 {
			t.Errorf("%d changes: %q", n, m.events)
		}
	})
}

// TestWhatTheStoreDidNotTakeIsToldAgain, without a directory too.
func TestWhatTheStoreDidNotTakeIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, stop := launcher(t, m, "")
		defer stop()
		if _, err := s.put(t.Context(), "shop", stored{File: file(t, "shop", "/x")}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		m.change(func() { m.full = true })
		m.lose()
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.full = false
		m.mu.Unlock()
		time.Sleep(lookEvery + time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.has["shop"].Data) == 0 {
			t.Error("the store was not told again what it forgot")
		}
	})
}

// overtaken is a store in which somebody else removes what is put, and whose watch shows both before
// whoever put it has the answer.
type overtaken struct {
	*memory
	shelf *Shelf
}

func (o overtaken) PutSite(ctx context.Context, e lease.SiteEntry) (uint64, error) {
	at, err := o.memory.PutSite(ctx, e)
	if err == nil {
		e.Revision = at
		o.shelf.see(lease.SiteSight{Entry: e})
		o.shelf.see(lease.SiteSight{Entry: lease.SiteEntry{Name: e.Name, Revision: at + 1, Gone: true}})
	}
	return at, err
}

// TestWhatIsRemovedStaysRemoved, whichever comes first: that it was removed, or the answer to whoever put
// it before; and that it was removed here, or that it was put before.
func TestWhatIsRemovedStaysRemoved(t *testing.T) {
	m := newMemory()
	s, err := New(Options{Store: m, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s.o.Store = overtaken{m, s}
	if _, err := s.put(t.Context(), "shop", stored{File: file(t, "shop", "/x")}, 0); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get("shop"); !errors.Is(err, ErrUnknown) {
		t.Errorf("it was removed, and is here: %+v, %v", e, err)
	}
	s.o.Store = m
	at, err := s.put(t.Context(), "other", stored{File: file(t, "other", "/x")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	put := m.has["other"]
	m.mu.Unlock()
	if _, err := s.put(t.Context(), "other", stored{}, at); err != nil {
		t.Fatal(err)
	}
	s.see(lease.SiteSight{Entry: put})
	if e, err := s.Get("other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("it was removed here, and is here: %+v, %v", e, err)
	}
}
