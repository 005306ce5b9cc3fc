package natskv

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

// queueWatch is who waits, as a watch has shown it.
type queueWatch struct {
	mu       sync.Mutex
	fresh    int
	complete bool
	waiters  map[string]lease.WaiterEntry
}

func (w *queueWatch) see(s lease.WaiterSight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Fresh:
		w.fresh++
		w.complete, w.waiters = false, map[string]lease.WaiterEntry{}
	case s.Complete:
		w.complete = true
	case s.Gone:
		delete(w.waiters, s.Entry.Waiter.ID)
	default:
		w.waiters[s.Entry.Waiter.ID] = s.Entry
	}
}

// shown are the ids, in the order of the revisions.
func (w *queueWatch) shown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []lease.WaiterEntry
	for _, e := range w.waiters {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b lease.WaiterEntry) int { return int(a.Revision) - int(b.Revision) })
	var ids []string
	for _, e := range all {
		ids = append(ids, e.Waiter.LauncherID+"/"+e.Waiter.ID)
	}
	if !w.complete {
		return "not complete"
	}
	return strings.Join(ids, " ")
}

func (w *queueWatch) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); w.shown() != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q wait, want %q", w.shown(), want)
		}
	}
}

func watchQueue(t *testing.T, s *Store) *queueWatch {
	t.Helper()
	w := &queueWatch{}
	keepWatching(t, func(ctx context.Context) error { return s.WatchWaiters(ctx, w.see) })
	return w
}

func TestWaiters(t *testing.T) {
	s := single(t)
	put := func(launcher, id string) uint64 {
		t.Helper()
		revision, err := s.PutWaiter(patient(t), lease.Waiter{ID: id, LauncherID: launcher, ProfileID: "p", Labels: lease.Labels{"a": "b"}, Priority: 2})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	w := watchQueue(t, s)
	w.await(t, "")
	first := put("host-1.example", "a")
	if second := put("host-2", "b"); second <= first {
		t.Errorf("revision %d after %d", second, first)
	}
	w.await(t, "host-1.example/a host-2/b")
	later := watchQueue(t, s)
	later.await(t, "host-1.example/a host-2/b")
	put("host-1.example", "a") // once more, with a later revision
	w.await(t, "host-2/b host-1.example/a")
	w.mu.Lock()
	e := w.waiters["b"]
	w.mu.Unlock()
	if e.Waiter.Labels["a"] != "b" || e.Waiter.Priority != 2 || e.Waiter.ProfileID != "p" {
		t.Errorf("%+v", e)
	}
	if err := s.DropWaiter(t.Context(), "host-2", "b"); err != nil {
		t.Fatal(err)
	}
	w.await(t, "host-1.example/a")
	later.await(t, "host-1.example/a")
	watchQueue(t, s).await(t, "host-1.example/a")

	for name, err := range map[string]error{
		"a launcher that is none": second2(s.PutWaiter(patient(t), lease.Waiter{ID: "x", LauncherID: "a b"})),
		"an id that is none":      second2(s.PutWaiter(patient(t), lease.Waiter{ID: "x.y", LauncherID: "a"})),
		"a wildcard":              s.DropWaiter(t.Context(), "a", "*"),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	// What no store wrote is not shown.
	for _, m := range [][2]string{{"host-1.c", "{}"}, {"x", "{}"}, {"host-1.d", `{"id":"e","launcher_id":"host-1"}`}} {
		if err := s.nc.Publish("$KV."+Queue+"."+m[0], []byte(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	put("z", "z")
	w.await(t, "host-1.example/a z/z")

	// The bucket is lost: it is made again, and the watch begins anew.
	deleteStream(t, s.queue)
	w.await(t, "")
	put("z", "y")
	w.await(t, "z/y")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fresh < 2 {
		t.Errorf("it began %d times", w.fresh)
	}
}

// A bucket that somebody configured otherwise is not used, and the error says why; the leases do
// not depend on it.
func TestABucketThatIsNoQueue(t *testing.T) {
	s := single(t)
	if _, err := s.queue.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_" + Queue, Subjects: []string{"$KV." + Queue + ".>"}, MaxMsgsPerSubject: 5}); err != nil {
		t.Fatal(err)
	}
	if err := s.WatchWaiters(t.Context(), func(lease.WaiterSight) {}); err == nil || !strings.Contains(err.Error(), "history") {
		t.Errorf("%v", err)
	}
	happens(t, s, "p")
}

// TestWhatIsNoWaiter is not shown: whoever may write to the bucket could have put it there.
func TestWhatIsNoWaiter(t *testing.T) {
	t.Parallel()
	const fine = `{"launcher_id":"a","id":"w1"}`
	for _, tt := range []struct {
		key, data string
		shown     bool
	}{
		{"a.w1", fine, true},
		{"a.w2", fine, false},
		{"b.w1", fine, false},
		{"a.w1.x", `{"launcher_id":"a","id":"w1.x"}`, false},
		{"a", fine, false},
		{"a.", `{"launcher_id":"a","id":""}`, false},
		{".w1", `{"launcher_id":"","id":"w1"}`, false},
		{"a.w1", `{`, false},
	} {
		sight, shown := waiterSight(message{Subject: "$KV." + Queue + "." + tt.key, Seq: 7, Data: []byte(tt.data)})
		if shown != tt.shown || shown && (sight.Gone || sight.Entry.Revision != 7) {
			t.Errorf("%s %s: %v %+v", tt.key, tt.data, shown, sight)
		}
	}
}
