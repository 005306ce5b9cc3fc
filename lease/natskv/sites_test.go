package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/lease"
)

// siteWatch is what a watch of the files about sites has shown.
type siteWatch struct {
	mu       sync.Mutex
	complete bool
	began    int
	files    map[string]lease.SiteEntry
	kept     string // of the file that was removed last
}

func (w *siteWatch) see(s lease.SiteSight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Fresh:
		w.began++
		w.complete, w.files = false, map[string]lease.SiteEntry{}
	case s.Complete:
		w.complete = true
	case s.Entry.Gone:
		delete(w.files, s.Entry.Name)
		w.kept = string(s.Entry.Data)
	default:
		w.files[s.Entry.Name] = s.Entry
	}
}

// removed is what is kept of the file that was removed last.
func (w *siteWatch) removed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept
}

// shown is how often the watch began, and each file with its revision.
func (w *siteWatch) shown() (began int, files string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for name, e := range w.files {
		all = append(all, fmt.Sprintf("%s=%s@%d", name, e.Data, e.Revision))
	}
	slices.Sort(all)
	if !w.complete {
		return w.began, "not complete"
	}
	return w.began, strings.Join(all, " ")
}

// await waits until the files are shown by a watch that began more often than after, and returns
// how often it did. A watch may begin anew at any time: what it shows counts, not how often.
func (w *siteWatch) await(t *testing.T, after int, want string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		switch began, got := w.shown(); {
		case began > after && got == want:
			return began
		case time.Now().After(end):
			t.Fatalf("shown are %q after %d beginnings, want %q after more than %d", got, began, want, after)
		}
	}
}

func watchSites(t *testing.T, s *Store) *siteWatch {
	t.Helper()
	w := &siteWatch{}
	keepWatching(t, func(ctx context.Context) error { return s.WatchSites(ctx, w.see) })
	return w
}

// keepWatching watches until the test ends, and no sooner.
func keepWatching(t *testing.T, watch func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := watch(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("the watch has ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// TestSites: a file changes by compare-and-swap only, is seen by who watches, and may be made again
// after it was removed or lost.
func TestSites(t *testing.T) {
	s := single(t)
	watch := watchSites(t, s)
	began := watch.await(t, 0, "")
	put := func(name, data string, at uint64) (uint64, error) {
		return s.PutSite(patient(t), lease.SiteEntry{Name: name, Data: []byte(data), Revision: at})
	}
	stores := func(data string, at uint64) uint64 {
		t.Helper()
		revision, err := put("shop", data, at)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if data != "" {
			want = fmt.Sprintf("shop=%s@%d", data, revision)
		}
		watch.await(t, 0, want)
		return revision
	}
	first := stores("1", 0)
	for _, at := range []uint64{0, first + 1} {
		if _, err := put("shop", "2", at); !errors.Is(err, lease.ErrSiteMoved) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	second := stores("2", first)
	if _, err := put("shop", "", first); !errors.Is(err, lease.ErrSiteMoved) {
		t.Errorf("removed at another revision: %v", err)
	}
	stores("", second)
	third := stores("3", 0)
	if _, err := s.PutSite(patient(t), lease.SiteEntry{Name: "shop", Data: []byte("told"), Revision: third, Gone: true}); err != nil {
		t.Fatal(err)
	}
	watch.await(t, 0, "")
	if kept := watch.removed(); kept != "told" {
		t.Errorf("of a file that was removed is kept %q", kept)
	}
	stores("4", 0)
	if _, err := put("shop.*", "3", 0); err == nil || !strings.Contains(err.Error(), "want 1 to 64") {
		t.Errorf("a wildcard: %v", err)
	}
	for i, at := range []uint64{0, 0} { // the second does not know of the first
		err := s.PutSiteCounts(patient(t), lease.SiteEntry{Name: "shop", Data: []byte("{}"), Revision: at})
		if e, readErr := s.SiteCounts(patient(t), "shop"); errors.Is(err, lease.ErrSiteMoved) != (i > 0) || string(e.Data) != "{}" || e.Revision == 0 || readErr != nil {
			t.Errorf("counts %d: %v; %+v, %v", i, err, e, readErr)
		}
	}
	if e, err := s.SiteCounts(patient(t), "other"); err != nil || e.Revision != 0 || len(e.Data) > 0 {
		t.Errorf("nothing was counted: %+v, %v", e, err)
	}
	if _, err := s.SiteCounts(patient(t), "*"); err == nil || !strings.Contains(err.Error(), "want 1 to 64") {
		t.Errorf("the counts of a wildcard: %v", err)
	}
	if _, files := watch.shown(); strings.Contains(files, "{}") {
		t.Errorf("counts are shown as a file: %s", files)
	}
	deleteStream(t, s.sites)
	watch.await(t, began, "")
	stores("4", 0)
}
