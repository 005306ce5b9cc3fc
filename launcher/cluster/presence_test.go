package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/internal/ownpath"
	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// kept is a presence that is being kept.
type kept struct {
	*Presence
	stop     context.CancelFunc
	opened   chan struct{}
	ended    chan struct{} // Keep has returned
	expiring chan time.Duration
}

// keep keeps a presence of the launcher "here" until the test ends.
func (w *world) keep(change func(*PresenceOptions)) *kept {
	ctx, cancel := context.WithCancel(w.Context())
	k := &kept{stop: cancel, opened: make(chan struct{}), ended: make(chan struct{}), expiring: make(chan time.Duration, 100)}
	o := PresenceOptions{
		LauncherID: "here", BootID: "boot", AdvertiseURL: "http://here.example:9222", DataDir: w.dir, Key: testkey.Key, Timing: timing, Store: w.store,
		Clock: w.clock, Log: w.log(),
	}
	if change != nil {
		change(&o)
	}
	k.Presence = NewPresence(ctx, o)
	go func() {
		defer close(k.ended)
		k.Keep(k.opened, func(left time.Duration) { k.expiring <- left })
	}()
	w.Cleanup(k.end)
	return k
}

// end ends the launcher.
func (k *kept) end() {
	k.stop()
	<-k.ended
}

// current is the keeper under which leases may be granted. There has to be one.
func (k *kept) current(t testing.TB) *lease.Keeper {
	t.Helper()
	keeper, err := k.Current()
	if err != nil {
		t.Fatal(err)
	}
	return keeper
}

// refuses checks that no lease may be granted, and returns what whoever asks is told.
func (k *kept) refuses(t testing.TB) *api.Problem {
	t.Helper()
	_, err := k.Current()
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
		t.Fatalf("asked for the presence: %v", err)
	}
	return p
}

func (w *world) read(name string) string {
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	return string(b)
}

func (w *world) write(name, content string) {
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
		w.Fatal(err)
	}
}

// stay is what the launcher keeps on disk of its stay.
func (w *world) stay() (s lastStay) {
	w.Helper()
	if err := json.Unmarshal(w.staySaid(), &s); err != nil {
		w.Fatal(err)
	}
	return s
}

// staySaid is that as it is written.
func (w *world) staySaid() []byte {
	w.Helper()
	b, err := testkey.Key.Open(signed.Stay, "here", []byte(w.read("presence-stay.json")))
	if err != nil {
		w.Fatal(err)
	}
	return b
}

func TestAPresenceIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.keep(nil)
		<-p.opened
		synctest.Wait()
		k := p.current(w)
		if s := w.stored("here"); s.Epoch != 1 || s.AdvertiseURL != "http://here.example:9222" || s.BootID != "boot" || s.TTL() != timing.TTL || s.Closed {
			t.Errorf("stored: %+v", s)
		}
		if w.read("presence-epoch") != "1\n" {
			t.Errorf("epoch on disk: %q", w.read("presence-epoch"))
		}
		first := w.stay()
		if directory, err := ownpath.Identity(w.dir); err != nil || first != (lastStay{"boot", directory, 1, k.Deadline()}) {
			t.Errorf("stay on disk: %+v, the deadline is %v", first, k.Deadline())
		}
		fence := k.Fence(1)
		// The deadline goes on on disk, too, in time for the next one to be of use.
		for range 10 {
			time.Sleep(timing.TTL)
			synctest.Wait()
			if s := w.stay(); s.Deadline <= first.Deadline || k.Deadline().Sub(s.Deadline) > timing.Renewal() {
				t.Fatalf("stay on disk: %+v, the deadline is %v", s, k.Deadline())
			}
		}
		if fence.Check() != nil || p.current(w) != k || len(p.expiring) > 0 {
			t.Errorf("fence %v, %d warnings", fence.Check(), len(p.expiring))
		}
	})
}

// A presence that another launcher closed is over, and the launcher begins another stay.
func TestALostPresenceIsOpenedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.keep(nil)
		<-p.opened
		first := p.current(w)
		fence := first.Fence(1)
		w.store.do(func() { w.store.put(w.store.presences["here"].Presence.Close("here", "far", 1, time.Now())) })
		w.until("opened again", 2*timing.Renewal(), func() bool { return w.stored("here").Epoch == 2 })
		synctest.Wait()
		again := p.current(w)
		if again == first || again.Epoch() != 2 || again.Fence(1).Check() != nil || w.stored("here").Closed {
			t.Errorf("epoch %d, fence %v", again.Epoch(), again.Fence(1).Check())
		}
		if !errors.Is(fence.Check(), lease.ErrExpired) {
			t.Errorf("the fence of the first stay: %v", fence.Check())
		}
		if s := w.stay(); w.read("presence-epoch") != "2\n" || s.Epoch != 2 || s.Deadline != again.Deadline() {
			t.Errorf("on disk: epoch %q, stay %+v", w.read("presence-epoch"), s)
		}
		if !strings.Contains(w.said.String(), "far saw no renewal") {
			t.Errorf("log:\n%s", w.said.String())
		}
	})
}

// While the store is away nothing is granted. Who waits for the first presence does not
// wait for the store.
func TestAStoreThatIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.away = true
		p := w.keep(nil)
		<-p.opened
		if q := p.refuses(w); q.RetryAfter == 0 || !strings.Contains(q.Detail, "no presence") {
			t.Errorf("%+v", q)
		}
		back := func(away bool) { w.store.do(func() { w.store.away = away }) }
		back(false)
		time.Sleep(callTime + reopenPause)
		synctest.Wait()
		fence := p.current(w).Fence(1)

		back(true)
		time.Sleep(timing.TTL)
		synctest.Wait()
		p.refuses(w)
		if left := <-p.expiring; left <= 0 || left >= timing.TTL {
			t.Errorf("warned %v before the end", left)
		}
		time.Sleep(10 * timing.TTL)
		p.refuses(w)
		back(false)
		time.Sleep(callTime + reopenPause)
		synctest.Wait()
		if k := p.current(w); k.Epoch() != 2 || k.Fence(1).Check() != nil || fence.Check() == nil {
			t.Errorf("epoch %d, fences %v and %v", k.Epoch(), fence.Check(), k.Fence(1).Check())
		}
		// Once for each time that it was away.
		if n := strings.Count(w.said.String(), "no presence in the lease store"); n != 2 {
			t.Errorf("said %d times:\n%s", n, w.said.String())
		}
	})
}

// The end of the launcher waits for no store that is away, whatever is being tried.
func TestTheEndDoesNotWaitForTheStore(t *testing.T) {
	for after := time.Duration(0); after < callTime+reopenPause; after += reopenPause / 2 {
		inWorld(t, func(w *world) {
			w.store.away = true
			p := w.keep(nil)
			<-p.opened
			time.Sleep(after)
			begun := time.Now()
			p.end()
			if took := time.Since(begun); took != 0 {
				t.Errorf("ended %v after the first try: it takes %v", after, took)
			}
		})
	}
}

// A launcher's next epoch is above all that it opened, and above what the store knows.
func TestTheEpochOnDisk(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		stored     uint64
		want       uint64
		damaged    bool
		waits      bool
	}{
		{"none", "", 0, 1, false, false},
		{"none, and the store knows one", "", 4, 5, false, true},
		{"kept", "7\n", 7, 8, false, false},
		{"the store went back", "7\n", 3, 8, false, false},
		{"the store forgot", "7\n", 0, 8, false, false},
		{"the store knows more", "7\n", 9, 10, false, true},
		{"damaged", "7x\n", 3, 4, true, true},
		{"cut short", "\n", 3, 4, true, true},
		{"too large for an epoch", "99999999999999999999\n", 3, 4, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if tt.file != "" {
					w.write("presence-epoch", tt.file)
				}
				if tt.stored > 0 {
					w.store.put(lease.Presence{LauncherID: "here", Epoch: tt.stored, TTLSeconds: 30})
				}
				p := w.keep(nil)
				<-p.opened
				if tt.waits { // it may be another directory's
					p.refuses(w)
					time.Sleep(2 * timing.TTL)
				}
				if got := p.current(w).Epoch(); got != tt.want {
					t.Errorf("epoch %d, want %d", got, tt.want)
				}
				if damaged := strings.Contains(w.said.String(), "the epoch that was kept cannot be read"); damaged != tt.damaged {
					t.Errorf("log:\n%s", w.said.String())
				}
				p.end()
				next := w.keep(nil)
				<-next.opened
				if got := next.current(w).Epoch(); got != tt.want+1 {
					t.Errorf("the next launcher: epoch %d, want %d", got, tt.want+1)
				}
			})
		})
	}
}

// What a launcher kept of its stay tells the next one of this boot which leases go on.
func TestTheStayOnDisk(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(w *world, next *PresenceOptions)
		survives bool
	}{
		{"as it was left", nil, true},
		{"another boot", func(_ *world, next *PresenceOptions) { next.BootID = "another" }, false},
		{"a boot without a name", func(w *world, next *PresenceOptions) {
			next.BootID = ""
			w.write("presence-stay.json", string(testkey.Key.Sign(signed.Stay, "here", bytes.Replace(w.staySaid(), []byte(`"boot"`), []byte(`""`), 1))))
		}, false},
		{"a forged file, of the same epoch and a far deadline", func(w *world, _ *PresenceOptions) {
			w.write("presence-stay.json", strings.Replace(w.read("presence-stay.json"), `"deadline":`, `"deadline":9`, 1))
		}, false},
		{"a file without a seal", func(w *world, _ *PresenceOptions) { w.write("presence-stay.json", string(w.staySaid())) }, false},
		{"a damaged file", func(w *world, _ *PresenceOptions) { w.write("presence-stay.json", w.read("presence-stay.json")[:20]) }, false},
		{"no file", func(w *world, _ *PresenceOptions) {
			if err := os.Remove(filepath.Join(w.dir, "presence-stay.json")); err != nil {
				w.Error(err)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				leave := func(o *PresenceOptions) { o.LeaveOnExit = func() bool { return true } }
				before := w.keep(leave)
				<-before.opened
				time.Sleep(timing.Renewal() + time.Second)
				before.end()
				deadline := w.stay().Deadline
				next := w.keep(func(o *PresenceOptions) {
					leave(o)
					if tt.change != nil {
						tt.change(w, o)
					}
				})
				<-next.opened
				synctest.Wait()
				if next.Continues(1) != tt.survives || next.Continues(0) || next.Continues(2) {
					t.Fatalf("of the epochs 0 to 2: %v %v %v", next.Continues(0), next.Continues(1), next.Continues(2))
				}
				if !tt.survives {
					return
				}
				// The next stay's own deadline changes nothing about that of the one before.
				time.Sleep(deadline.Sub(w.clock()) - 1)
				if !next.Continues(1) {
					t.Error("over before its deadline")
				}
				time.Sleep(time.Nanosecond)
				if next.Continues(1) {
					t.Error("not over at its deadline")
				}
				if s := w.stay(); s.Epoch != 2 {
					t.Errorf("the next stay on disk: %+v", s)
				}
			})
		})
	}
}

// A disk that takes nothing keeps nobody from granting.
func TestAStayThatCannotBeKept(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.keep(func(o *PresenceOptions) { o.DataDir = filepath.Join(w.dir, "missing") })
		<-p.opened
		synctest.Wait()
		p.current(w)
		for _, want := range []string{"the epoch is not kept", "the deadline is not kept"} {
			if !strings.Contains(w.said.String(), want) {
				t.Errorf("not said: %s", want)
			}
		}
	})
}

func TestTheEndOfALauncher(t *testing.T) {
	for _, tt := range []struct {
		name        string
		leave, away bool
		closed      bool
		says        string
	}{
		{"browsers are closed", false, false, true, ""},
		{"browsers are left", true, false, false, ""},
		{"the store is away", false, true, false, "presence not closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.keep(func(o *PresenceOptions) { o.LeaveOnExit = func() bool { return tt.leave } })
				<-p.opened
				fence := p.current(w).Fence(1)
				w.store.do(func() { w.store.away = tt.away })
				p.end()
				p.refuses(w)
				if (fence.Check() == nil) != tt.leave {
					t.Errorf("the fence: %v", fence.Check())
				}
				w.store.do(func() { w.store.away = false })
				left := w.stored("here")
				if left.Closed != tt.closed || left.Closed && left.ClosedBy != "here" {
					t.Errorf("left: %+v", left)
				}
				if (tt.says != "") != strings.Contains(w.said.String(), "presence not closed") {
					t.Errorf("log:\n%s", w.said.String())
				}
				time.Sleep(2 * timing.TTL)
				if w.stored("here") != left {
					t.Errorf("renewed by nobody: %+v", w.stored("here"))
				}
			})
		})
	}
}

// A directory that another host could open waits until every holder that the store may
// have forgotten had the time to say so: after the start, and after each reset.
func TestSharedDirectoriesWait(t *testing.T) {
	const shared = "/proc" // no file system of a disk, so that nobody can say who has it
	inWorld(t, func(w *world) {
		p := w.keep(nil)
		<-p.opened
		for _, again := range []bool{false, true} {
			if again {
				time.Sleep(time.Hour)
				p.StoreReset()
			}
			q := p.SharedReady(shared)
			if q == nil || q.Code != api.CodeStoreUnavailable || q.RetryAfter != int(timing.GrantDelay().Seconds())+1 || !strings.Contains(q.Detail, "watched for too short a time") {
				t.Fatalf("at first: %+v", q)
			}
			if q := p.SharedReady(w.dir); q != nil {
				t.Errorf("this host's own disk: %v", q)
			}
			time.Sleep(timing.GrantDelay() - 1)
			if q := p.SharedReady(shared); q == nil || q.RetryAfter != 1 {
				t.Errorf("just before the end of the grant delay: %+v", q)
			}
			time.Sleep(time.Nanosecond)
			if q := p.SharedReady(shared); q != nil {
				t.Errorf("after the grant delay: %v", q)
			}
		}
	})
}

// A store that forgot the presence is told of it again at once.
func TestAResetHurriesTheKeeper(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.keep(nil)
		<-p.opened
		k := p.current(w)
		w.store.do(func() { clear(w.store.presences) })
		p.StoreReset()
		synctest.Wait()
		if s := w.stored("here"); s.Epoch != 1 || s.Closed || p.current(w) != k {
			t.Errorf("stored: %+v", s)
		}
	})
}

// A home that was away for so long that another launcher could have been made the home grants
// nothing of its own for the grant delay; one that was back in time does at once.
func TestAHomeThatWasAway(t *testing.T) {
	for _, tt := range []struct {
		name         string
		shared       bool
		away         time.Duration // between two launchers; 0: the first one
		waits, reset bool
	}{
		{"a first start", true, 0, true, false},
		{"back in time", true, timing.TTL / 3, false, false},
		{"back too late", true, timing.TTL, true, false},
		{"back too late, on a store of its own", false, timing.TTL, false, false},
		{"the store goes back meanwhile", true, timing.TTL, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				shares := func(o *PresenceOptions) { o.SharedStore = tt.shared }
				if tt.away != 0 {
					first := w.keep(shares)
					<-first.opened
					first.end()
					time.Sleep(tt.away)
				}
				p := w.keep(shares)
				<-p.opened
				p.current(w)
				if q := p.HomeReady(); (q != nil) != tt.waits {
					t.Fatalf("at first: %v", q)
				}
				if !tt.waits {
					return
				}
				time.Sleep(timing.GrantDelay() - time.Nanosecond)
				if q := p.HomeReady(); q == nil || q.RetryAfter != 1 || q.More["reason"] != ReasonAway || q.Code != api.CodeStoreUnavailable {
					t.Errorf("just before the end of the grant delay: %+v", q)
				}
				if tt.reset {
					p.StoreSeen(lease.Sight{Fresh: true, Stepped: true, Number: 2})
					time.Sleep(timing.GrantDelay() - time.Nanosecond)
					if q := p.HomeReady(); q == nil {
						t.Error("the wait did not start again with a store that went back")
					}
				}
				time.Sleep(time.Nanosecond)
				if q := p.HomeReady(); q != nil {
					t.Errorf("after the grant delay: %v", q)
				}
				p.StoreSeen(lease.Sight{Fresh: true, Stepped: true, Number: 3})
				if q := p.HomeReady(); q != nil {
					t.Errorf("it was here when the store went back, and so knows of every move: %v", q)
				}
			})
		})
	}
}

// A presence that was lost and is opened again is of a launcher that was away.
func TestAHomeWhosePresenceWasLost(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.keep(func(o *PresenceOptions) { o.SharedStore = true })
		<-p.opened
		time.Sleep(timing.GrantDelay())
		before := p.current(w)
		if q := p.HomeReady(); q != nil {
			t.Fatal(q)
		}
		w.store.do(func() { w.store.away = true })
		time.Sleep(2 * timing.TTL)
		w.store.do(func() { w.store.away = false })
		w.until("another presence", timing.TTL, func() bool { k, err := p.Current(); return err == nil && k != before })
		if q := p.HomeReady(); q == nil {
			t.Error("it grants at once")
		}
	})
}

// TestAHomeWhosePresenceWasClosed: what counts is the stay that was lost, and not that of the
// launcher before, which this one followed in time.
func TestAHomeWhosePresenceWasClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		shares := func(o *PresenceOptions) { o.SharedStore = true }
		first := w.keep(shares)
		<-first.opened
		first.end()
		until := w.stay().Deadline
		p := w.keep(shares)
		<-p.opened
		before := p.current(w)
		if q := p.HomeReady(); q != nil {
			t.Fatal(q)
		}
		w.store.do(func() {
			w.store.put(w.store.presences["here"].Presence.Close("here", "far", before.Epoch(), time.Now()))
		})
		w.until("another presence", timing.TTL, func() bool { k, err := p.Current(); return err == nil && k != before })
		if now := w.clock(); now >= until {
			t.Fatalf("it is %v, and the stay before counted until %v: nothing is tested", now, until)
		}
		if q := p.HomeReady(); q == nil {
			t.Error("it grants at once")
		}
	})
}
