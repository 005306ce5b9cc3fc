package natskv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsd"
	"leasehold/lease"
)

// watching collects what a watch reports.
type watching struct {
	t  *testing.T
	mu sync.Mutex
	// sights has what was reported, as "fresh", "stepped", "complete" or
	// "profile/state/token".
	sights  []string
	changed chan struct{}
	// onSight, if set, is called with each sight before it is collected.
	onSight func(lease.Sight)
}

func watchOf(t *testing.T, s *Store, onSight func(lease.Sight)) *watching {
	t.Helper()
	w := &watching{t: t, changed: make(chan struct{}), onSight: onSight}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Watch(ctx, w.see) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return w
}

func (w *watching) see(s lease.Sight) {
	name := fmt.Sprintf("%s/%s/%d", s.Entry.Record.ProfileID, s.Entry.Record.State, s.Entry.Record.Token)
	switch {
	case s.Stepped:
		name = "stepped"
	case s.Fresh:
		name = "fresh"
	case s.Complete:
		name = "complete"
	}
	if w.onSight != nil {
		w.onSight(s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sights = append(w.sights, name)
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until the sights of want were reported in this order, possibly with others in
// between, and drops everything up to the last of them.
func (w *watching) await(want ...string) {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		w.mu.Lock()
		at, missing := 0, want
		for i, s := range w.sights {
			if len(missing) > 0 && s == missing[0] {
				at, missing = i+1, missing[1:]
			}
		}
		if len(missing) == 0 {
			w.sights = w.sights[at:]
			w.mu.Unlock()
			return
		}
		seen, changed := slices.Clone(w.sights), w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("the watch saw %s; want %s", strings.Join(seen, " "), strings.Join(want, " "))
		}
	}
}

func TestWatch(t *testing.T) {
	s := single(t)
	first := swapped(t, s, none("p.1"), granted(t, none("p.1"), "t"))
	var begun atomic.Int32 // a busy server may make the watch begin anew, and show all once more
	w := watchOf(t, s, func(sight lease.Sight) {
		if sight.Fresh {
			begun.Add(1)
		}
	})
	w.await("fresh", "p.1/held/1", "complete")
	released, err := first.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	swapped(t, s, first, released)
	swapped(t, s, none("p2"), granted(t, none("p2"), "t"))
	w.await("p.1/available/1", "p2/held/1")
	if err := bucketOf(t, s, Bucket).Delete(t.Context(), "p2"); err != nil {
		t.Fatal(err)
	}
	w.await("p2//0")
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sights) > 0 && begun.Load() == 1 {
		t.Errorf("and more: %v", w.sights)
	}
}

// copyDir replaces the directory to by a copy of from. The server must not run.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func released(t *testing.T, e lease.Entry) lease.Record {
	t.Helper()
	r, err := e.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever happens to the server and its files, a watch reports it and then goes on to
// report changes, and the streams are there again.
func TestWatchGetsOver(t *testing.T) {
	type world struct {
		dir, old string
		srv      *natsd.Server
		proxy    *proxy
	}
	restart := func(t *testing.T, w *world) {
		w.srv = start(t, w.dir)
		w.proxy.serve(w.srv)
	}
	for name, tt := range map[string]struct {
		fault func(t *testing.T, w *world, s *Store)
		// want is what the watch reports about p.1, which was released after old was
		// copied.
		want []string
	}{
		"restart of the server": {
			fault: func(t *testing.T, w *world, _ *Store) {
				w.srv.Shutdown()
				restart(t, w)
			},
			want: []string{"fresh", "p.1/available/1", "complete"},
		},
		"lost connection": {
			fault: func(_ *testing.T, w *world, _ *Store) { w.proxy.cut()() },
			want:  []string{"fresh", "p.1/available/1", "complete"},
		},
		"wiped store": {
			fault: func(t *testing.T, w *world, _ *Store) {
				w.srv.Shutdown()
				copyDir(t, t.TempDir(), filepath.Join(w.dir, "jetstream"))
				restart(t, w)
			},
			want: []string{"stepped", "p.1//0", "complete"},
		},
		"older copy of the store": {
			fault: func(t *testing.T, w *world, _ *Store) {
				w.srv.Shutdown()
				copyDir(t, w.old, filepath.Join(w.dir, "jetstream"))
				restart(t, w)
			},
			want: []string{"stepped", "p.1/held/1", "complete"},
		},
		"older copy of the store, written to by others": {
			fault: func(t *testing.T, w *world, _ *Store) {
				mend := w.proxy.cut()
				w.srv.Shutdown()
				copyDir(t, w.old, filepath.Join(w.dir, "jetstream"))
				restart(t, w)
				other := open(t, inProcess(t, w.srv))
				for i := range 10 {
					p := "other." + strconv.Itoa(i)
					swapped(t, other, none(p), granted(t, none(p), "t"))
				}
				mend()
			},
			want: []string{"stepped", "p.1/held/1", "complete"},
		},
		"bucket deleted": {
			fault: func(t *testing.T, _ *world, s *Store) { deleteStream(t, s.leases.stream) },
			want:  []string{"stepped", "p.1//0", "complete"},
		},
		"bucket deleted and made again": {
			fault: func(t *testing.T, _ *world, s *Store) {
				deleteStream(t, s.leases.stream)
				soon(t, func() error { return second2(s.leases.js.CreateStream(t.Context(), leasesConfig())) })
			},
			want: []string{"stepped", "p.1//0", "complete"},
		},
		"its consumer deleted": {
			fault: func(t *testing.T, _ *world, s *Store) {
				stream, err := s.leases.js.Stream(t.Context(), "KV_"+Bucket)
				if err != nil {
					t.Fatal(err)
				}
				for name := range stream.ConsumerNames(t.Context()).Name() {
					if err := stream.DeleteConsumer(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
						t.Fatal(err)
					}
				}
			},
			want: []string{"fresh", "p.1/available/1", "complete"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{dir: t.TempDir(), old: filepath.Join(t.TempDir(), "old")}
			w.srv = start(t, w.dir)
			first := open(t, inProcess(t, w.srv))
			held := swapped(t, first, none("p.1"), granted(t, none("p.1"), "t"))
			flushed(t, first)
			first.Close()
			first.nc.Close()
			w.srv.Shutdown()
			copyDir(t, filepath.Join(w.dir, "jetstream"), w.old)
			w.srv = start(t, w.dir)

			w.proxy = startProxy(t, w.srv)
			s := open(t, dialPlain(t, w.proxy.url()))
			watch := watchOf(t, s, nil)
			watch.await("fresh", "p.1/held/1", "complete")
			swapped(t, s, held, released(t, held))
			swapped(t, s, none("other"), granted(t, none("other"), "t")) // a key that the old copy does not have
			watch.await("other/held/1")
			flushed(t, s)
			tt.fault(t, w, s)
			watch.await(tt.want...)

			// Without anything else being done, all streams are there again.
			grantedLater(t, s, "later")
			watch.await("later/held/1")
			if err := presenceOf("boot")(patient(t), s); err != nil {
				t.Error(err)
			}
			flushed(t, s)
			wantHistory(t, s, "later", "granted/1/1")
			for _, st := range []*stream{s.leases.stream, s.hosts.stream, s.events} {
				have, err := st.js.Stream(t.Context(), st.name)
				if err != nil {
					t.Fatalf("%s: %v", st.name, err)
				}
				if c := have.CachedInfo().Config; !c.DenyPurge || !c.DenyDelete || c.AllowRollup {
					t.Errorf("%s: %+v", st.name, c)
				}
			}
		})
	}
}

// TestWhatIsStoredAsAWatchBeginsIsShown before it says that it has shown everything: a launcher that
// has just stored something would take it for lost.
func TestWhatIsStoredAsAWatchBeginsIsShown(t *testing.T) {
	s := single(t)
	for name, tt := range map[string]struct {
		store func(name string) error
		watch func(ctx context.Context, see func(fresh, complete bool)) error
	}{
		"leases": {
			func(name string) error { return grantOf(name)(patient(t), s) },
			func(ctx context.Context, see func(bool, bool)) error {
				return s.Watch(ctx, func(l lease.Sight) { see(l.Fresh, l.Complete) })
			},
		},
		"waiters": {
			func(name string) error {
				return second2(s.PutWaiter(patient(t), lease.Waiter{ID: name, LauncherID: "a"}))
			},
			func(ctx context.Context, see func(bool, bool)) error {
				return s.WatchWaiters(ctx, func(l lease.WaiterSight) { see(l.Fresh, l.Complete) })
			},
		},
		"sites": {
			func(name string) error {
				return second2(s.PutSite(patient(t), lease.SiteEntry{Name: name, Data: []byte("{}")}))
			},
			func(ctx context.Context, see func(bool, bool)) error {
				return s.WatchSites(ctx, func(l lease.SiteSight) { see(l.Fresh, l.Complete) })
			},
		},
	} {
		ctx, stop := context.WithCancel(t.Context())
		stored, shown := 0, 0 // a watch that begins anew shows what was stored before, too
		err := tt.watch(ctx, func(fresh, complete bool) {
			switch {
			case fresh:
				stored, shown = stored+1, 0
				if err := tt.store(fmt.Sprint("n", stored)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			case complete:
				stop()
			default:
				shown++
			}
		})
		stop()
		if err != nil || shown != stored {
			t.Errorf("%s: %d shown, want the %d that were stored; %v", name, shown, stored, err)
		}
	}
}

// grantedLater grants a lease as soon as the store can be reached.
func grantedLater(t *testing.T, s *Store, profile string) {
	t.Helper()
	if err := grantOf(profile)(patient(t), s); err != nil {
		t.Fatal(err)
	}
}

// deleteStream deletes a stream, which its store does not make again before the server has answered.
// A stream that is made while the server still deletes the one before has the messages of that one,
// and loses its files.
func deleteStream(t *testing.T, st *stream) {
	t.Helper()
	st.asking <- struct{}{}
	defer func() { <-st.asking }()
	if err := st.js.DeleteStream(patient(t), st.name); err != nil {
		t.Fatal(err)
	}
}

// A record is made in the store that was looked at, or the caller is told that it was made
// in another one. Whoever names no store makes it in any.
func TestARecordIsMadeInTheStoreThatWasLookedAt(t *testing.T) {
	s := single(t)
	look := func() uint64 {
		t.Helper()
		sight, err := s.Look(patient(t))
		if err != nil || !sight.Fresh || sight.Number == 0 || sight.Age < 0 {
			t.Fatalf("%+v, %v", sight, err)
		}
		return sight.Number
	}
	before := look()
	swapped(t, s, lease.Entry{Record: lease.Record{ProfileID: "p1"}, Number: before}, granted(t, none("p1"), "x"))
	if now := look(); now != before {
		t.Errorf("store %d, and then %d", before, now)
	}
	deleteStream(t, s.leases.stream)
	for profile, seen := range map[string]bool{"p2": false, "p3": true} {
		if seen && look() == before {
			t.Error("a store that was made anew has the number of the one before")
		}
		_, err := s.Swap(patient(t), lease.Entry{Record: lease.Record{ProfileID: profile}, Number: before}, granted(t, none(profile), "x"))
		if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, errReplaced) {
			t.Errorf("%s: %v", profile, err)
		}
		if e, err := s.Get(patient(t), profile); err != nil || e.Record.Token != 1 {
			t.Errorf("%s, which was made all the same: %+v, %v", profile, e, err)
		}
		flushed(t, s)
		wantHistory(t, s, profile, "granted/1/1")
	}
	swapped(t, s, none("p4"), granted(t, none("p4"), "x"))
	now := look()
	last := swapped(t, s, lease.Entry{Record: lease.Record{ProfileID: "p5"}, Number: now}, granted(t, none("p5"), "x"))
	last.Number = before // it is there already, and so it does not matter
	swapped(t, s, last, last.Record)
}

// A stream that was deleted, while no watch runs, is made again by the next call.
func TestCallsMakeStreamsAgain(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, s *Store, held lease.Entry) error{
		"get": func(t *testing.T, s *Store, _ lease.Entry) error {
			if _, err := s.Get(patient(t), "p"); !errors.Is(err, lease.ErrNotFound) {
				return fmt.Errorf("get: %w", err)
			}
			return nil
		},
		"list": func(t *testing.T, s *Store, _ lease.Entry) error { return second2(s.List(patient(t))) },
		"swap": func(t *testing.T, s *Store, held lease.Entry) error {
			_, err := s.Swap(patient(t), held, held.Record)
			var moved *lease.MovedError
			if !errors.As(err, &moved) || moved.Current == nil || moved.Current.Revision != 0 {
				return fmt.Errorf("swap over a lost record: %w", err)
			}
			return nil
		},
		"first swap": func(t *testing.T, s *Store, _ lease.Entry) error { return grantOf("q")(patient(t), s) },
		"presence":   func(t *testing.T, s *Store, _ lease.Entry) error { return second2(s.Presence(patient(t), "l")) },
		"presences":  func(t *testing.T, s *Store, _ lease.Entry) error { return second2(s.Presences(patient(t))) },
		"renewal": func(t *testing.T, s *Store, _ lease.Entry) error {
			_, err := s.SwapPresence(patient(t), lease.PresenceEntry{Presence: lease.Presence{LauncherID: "l"}, Revision: 1}, lease.Presence{LauncherID: "l"})
			var moved *lease.PresenceMovedError
			if !errors.As(err, &moved) || moved.Current == nil || moved.Current.Revision != 0 {
				return fmt.Errorf("renewal over a lost presence: %w", err)
			}
			return nil
		},
		"history": func(t *testing.T, s *Store, _ lease.Entry) error { return second2(s.History(patient(t), "p")) },
		"announce": func(t *testing.T, s *Store, _ lease.Entry) error {
			return s.Announce(patient(t), lease.Event{Event: lease.EventConflict, ProfileID: "p"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := single(t)
			held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
			if err := presenceOf("boot")(patient(t), s); err != nil {
				t.Fatal(err)
			}
			flushed(t, s)
			for _, st := range []*stream{s.leases.stream, s.hosts.stream, s.events} {
				deleteStream(t, st)
			}
			if err := call(t, s, held); err != nil {
				t.Error(err)
			}
		})
	}
}

// After the event stream was lost, the events that its launcher remembers and those that are
// still in outboxes are published again, and later ones are published as well.
func TestLostEventStream(t *testing.T) {
	s := single(t)
	p := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	grantedLater(t, s, "q")
	flushed(t, s)
	deleteStream(t, s.events)
	swapped(t, s, p, released(t, p)) // the grant was published, and is no longer in the outbox
	flushed(t, s)
	wantHistory(t, s, "p", "granted/1/1", "released/1/2")
	wantHistory(t, s, "q", "granted/1/1")
}

// A watch whose callback is slow delays no other call, and misses no record.
func TestWatchSlowly(t *testing.T) {
	s := single(t)
	entered, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := watchOf(t, s, func(lease.Sight) {
		once.Do(func() { close(entered) })
		<-resume
	})
	<-entered
	entry := none("p")
	const n = 2 * pullSize
	for i := range n {
		p := "p" + strconv.Itoa(i)
		grantedLater(t, s, p)
		entry = swapped(t, s, entry, entry.Record)
	}
	if got, err := s.Get(patient(t), "p"); err != nil || got.Revision != entry.Revision {
		t.Errorf("get while the watch is blocked: %+v, %v", got, err)
	}
	if _, err := s.List(patient(t)); err != nil {
		t.Errorf("list while the watch is blocked: %v", err)
	}
	close(resume)
	want := []string{"fresh"}
	for i := range n {
		want = append(want, "p"+strconv.Itoa(i)+"/held/1")
	}
	w.await(want...)
}

func TestWatchOfAClosedConnection(t *testing.T) {
	s := single(t)
	s.Close()
	s.nc.Close()
	if err := s.Watch(t.Context(), func(s lease.Sight) { t.Errorf("saw %+v", s) }); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("watch: %v", err)
	}
}

// TestAWatchTellsTheAgeOfTheStore, by the server's clock: of a bucket that was just made, of
// one that has been there for a while, and of the next one after that is lost.
func TestAWatchTellsTheAgeOfTheStore(t *testing.T) {
	s := single(t)
	ages := make(chan time.Duration, 10)
	note := func(sight lease.Sight) {
		if sight.Fresh {
			ages <- sight.Age
		}
	}
	begun := time.Now()
	watchOf(t, s, note).await("complete")
	young := <-ages
	time.Sleep(300 * time.Millisecond)
	w := watchOf(t, s, note)
	w.await("complete")
	if older := <-ages; young < 0 || older < young+250*time.Millisecond || older > time.Since(begun)+time.Minute {
		t.Errorf("%v, and then %v", young, older)
	}
	lost := time.Now()
	deleteStream(t, s.leases.stream)
	w.await("stepped", "complete")
	if anew := <-ages; anew < 0 || anew > time.Since(lost)+time.Second {
		t.Errorf("a bucket that was made %v ago is %v old", time.Since(lost), anew)
	}
}

// TestARecordComesWithItsAge, by the server's clock, where it was there before it was read; a watch
// shows a change as it happens.
func TestARecordComesWithItsAge(t *testing.T) {
	s := single(t)
	swapped(t, s, none("p"), granted(t, none("p"), "task"))
	for what, read := range map[string]func() (lease.Entry, error){
		"read": func() (lease.Entry, error) { return s.Get(patient(t), "p") },
		"listed": func() (lease.Entry, error) {
			all, err := s.List(patient(t))
			return append(all, lease.Entry{})[0], err
		},
		"watched": func() (first lease.Entry, err error) {
			watchOf(t, s, func(sight lease.Sight) {
				if sight.Entry.Record.ProfileID != "" {
					first = sight.Entry
				}
			}).await("complete")
			return first, nil
		},
	} {
		for end := time.Now().Add(time.Minute); ; {
			e, err := read()
			if err != nil {
				t.Fatal(err)
			}
			if e.Age > 0 && e.Age < time.Minute {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: it is %v old", what, e.Age)
			}
		}
	}
	ages := make(chan time.Duration, 10)
	begun := 0
	w := watchOf(t, s, func(sight lease.Sight) {
		if sight.Fresh {
			begun++
		}
		if begun > 1 {
			sight.Entry.Age = 0 // the record may have been there before a busy server made the watch begin anew
		}
		if sight.Entry.Record.ProfileID == "q" {
			ages <- sight.Entry.Age
		}
	})
	w.await("complete")
	swapped(t, s, none("q"), granted(t, none("q"), "task"))
	if age := <-ages; age != 0 {
		t.Errorf("a change: it is %v old", age)
	}
	// The clock of the server, and not this host's, is asked.
	told := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	st := &stream{told: told, heard: time.Now()}
	for at, want := range map[time.Time]time.Duration{told.Add(-time.Hour): time.Hour, told.Add(time.Hour): 0, {}: 0} {
		if got := st.age(at).Round(time.Minute); got != want {
			t.Errorf("stored at %v: %v old, want %v", at, got, want)
		}
	}
}
