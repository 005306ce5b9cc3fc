package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// shares is a launcher whose store others use, too.
func shares(o *PresenceOptions) { o.SharedStore = true }

// copied is a copy of the launcher's data directory, as it is now.
func (w *world) copied() string {
	w.Helper()
	dir := w.TempDir()
	for _, name := range []string{"presence-epoch", "presence-stay.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(w.read(name)), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	return dir
}

// A launcher under the id of one that may live waits until that one is silent, whatever it has of
// that one's files, and whatever the store has lost.
func TestALauncherUnderTheIDOfAnotherWaits(t *testing.T) {
	for _, tt := range []struct {
		name string
		// dir is the data directory of the second launcher; nil: an empty one.
		dir func(w *world) string
		// cut is what the store has lost, or does, when the second one starts.
		cut func(w *world)
	}{
		{name: "an empty data directory"},
		{name: "a copy of the data directory while it is in use", dir: (*world).copied},
		{name: "the presence is lost", cut: func(w *world) { clear(w.store.presences) }},
		{name: "the presence is lost, and the data directory is a copy", dir: (*world).copied, cut: func(w *world) { clear(w.store.presences) }},
		{name: "the store is away at first", dir: (*world).copied, cut: func(w *world) {
			w.store.away = true
			time.AfterFunc(timing.Renewal(), func() { w.store.do(func() { w.store.away = false }) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := w.keep(func(o *PresenceOptions) { shares(o); o.LeaveOnExit = func() bool { return true } })
				<-first.opened
				w.store.do(func() { w.store.store(held("p", "here")) })
				time.Sleep(timing.Renewal() / 2)
				fence := first.current(w).Fence(1)
				dir := w.TempDir()
				if tt.dir != nil {
					dir = tt.dir(w)
				}
				if tt.cut != nil {
					w.store.do(func() { tt.cut(w) })
				}
				second := w.keep(func(o *PresenceOptions) { shares(o); o.DataDir = dir })
				<-second.opened
				time.Sleep(10 * timing.TTL)
				if q := second.refuses(w); !strings.Contains(q.Detail, "--launcher-id") {
					t.Errorf("%v", q)
				}
				if s := w.stored("here"); s.Epoch != 1 || fence.Check() != nil {
					t.Fatalf("the living one: %+v, its fence: %v", s, fence.Check())
				}
				first.end()                                             // its presence stays as it is
				time.Sleep(timing.TTL - timing.Renewal() - time.Second) // since its last renewal
				if s := w.stored("here"); s.Epoch != 1 {
					t.Errorf("it did not wait: %+v", s)
				}
				w.until("opened", 2*timing.TTL, func() bool { return w.stored("here").Epoch == 2 })
				synctest.Wait()
				second.current(w)
			})
		})
	}
}

// A launcher that comes back to its own data directory waits for nothing, although its presence
// was not closed.
func TestALauncherThatWasKilledIsBackAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		left := func(o *PresenceOptions) { shares(o); o.LeaveOnExit = func() bool { return true } }
		first := w.keep(left)
		<-first.opened
		first.end()
		next := w.keep(left)
		<-next.opened
		if k := next.current(w); k.Epoch() != 2 {
			t.Errorf("epoch %d", k.Epoch())
		}
	})
}

// unanswered is a store whose first answer to a write of a presence is lost.
type unanswered struct {
	*memory
	lost *bool
}

func (s unanswered) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	e, err := s.memory.SwapPresence(ctx, prev, next)
	if err == nil && !*s.lost {
		*s.lost = true
		return lease.PresenceEntry{}, lease.ErrUnavailable
	}
	return e, err
}

// TestAPresenceThatWasOpenedWithoutAnAnswerIsItsOwn: the launcher does not wait for itself to go silent,
// whether or not others use the store, and its sessions go on.
func TestAPresenceThatWasOpenedWithoutAnAnswerIsItsOwn(t *testing.T) {
	for _, shared := range []bool{false, true} {
		inWorld(t, func(w *world) {
			first := w.keep(func(o *PresenceOptions) { o.SharedStore, o.LeaveOnExit = shared, func() bool { return true } })
			<-first.opened
			first.end()
			next := w.keep(func(o *PresenceOptions) { o.SharedStore, o.Store = shared, unanswered{w.store, new(bool)} })
			<-next.opened
			time.Sleep(timing.Renewal())
			if k := next.current(w); k.Epoch() != 3 || !next.Continues(1) {
				t.Errorf("shared %v: epoch %d; its sessions go on: %v", shared, k.Epoch(), next.Continues(1))
			}
			if said := w.said.String(); strings.Contains(said, "another data directory") {
				t.Errorf("shared %v: it said:\n%s", shared, said)
			}
		})
	}
}

// A presence that was superseded is opened again when nobody else has the id any more, and not
// before.
func TestASupersededPresenceIsOpenedAgain(t *testing.T) {
	for name, other := range map[string]func(w *world) (stop func()){
		"another launcher lives for a while": func(w *world) func() {
			k, err := lease.Keep(w.Context(), lease.Presence{LauncherID: "here", BootID: "other"}, w.entry("here"), 5,
				lease.KeeperOptions{Store: w.store, Timing: timing, Clock: w.clock, Expiring: func(time.Duration) {}})
			if err != nil {
				w.Fatal(err)
			}
			return k.Stop
		},
		"a presence was written once": func(w *world) func() {
			w.store.do(func() { w.store.put(lease.Presence{LauncherID: "here", Epoch: 6, TTLSeconds: timing.TTL.Seconds()}) })
			return func() {}
		},
		"somebody opened the same epoch in a store that had forgotten it": func(w *world) func() {
			w.store.do(func() {
				w.store.put(lease.Presence{LauncherID: "here", Epoch: 1, OpenedAt: time.Now(), TTLSeconds: timing.TTL.Seconds()})
			})
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.keep(shares)
				<-p.opened
				fence := p.current(w).Fence(1)
				time.Sleep(time.Second)
				stop := other(w)
				theirs := w.stored("here").Epoch
				time.Sleep(2 * timing.Renewal())
				synctest.Wait()
				if q := p.refuses(w); !strings.Contains(q.Detail, "--launcher-id") || fence.Check() == nil {
					t.Errorf("%v; its fence: %v", q, fence.Check())
				}
				time.Sleep(timing.TTL / 2)
				if s := w.stored("here"); s.Epoch != theirs {
					t.Errorf("it took the id back from one that may live: %+v", s)
				}
				stop()
				w.until("opened again", 3*timing.TTL, func() bool { k, err := p.Current(); return err == nil && k.Epoch() == theirs+1 })
			})
		})
	}
}

// While another launcher has the id, the patrol begins nothing: it recovers no session, heals no
// profile, and takes no step with the leases of others. It does all of that once it is alone.
func TestAPatrolWithoutAPresenceBeginsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		other, err := lease.Keep(w.Context(), lease.Presence{LauncherID: "here"}, lease.PresenceEntry{}, 8, lease.KeeperOptions{Store: w.store, Timing: timing, Clock: w.clock, Expiring: func(time.Duration) {}})
		if err != nil {
			t.Fatal(err)
		}
		b := w.patrol()
		b.disk(t, "left", lease.Record{}, profiledir.Running{PID: 1, SessionID: "ses_left"})
		b.disk(t, "forgotten", free("forgotten", "here"), profiledir.Running{})
		w.store.do(func() {
			w.store.report(lease.Sight{Fresh: true})
			r := held("mine", "here")
			r.PresenceEpoch = 9
			for _, r := range []lease.Record{r, free("left", "here"), held("theirs", "far")} {
				w.store.store(r)
			}
			w.store.report(lease.Sight{Complete: true})
		})
		time.Sleep(10 * timing.TTL)
		if taken := b.taken(); len(taken) > 0 || len(w.store.writes) > 0 {
			t.Fatalf("taken %q, written %v", taken, w.store.writes)
		}
		other.Stop()
		w.until("recovered", 3*timing.TTL, func() bool { return w.record("theirs").State == lease.Quarantined })
		taken := strings.Join(b.taken(), " ")
		for _, profile := range []string{"mine", "left", "forgotten"} {
			if !strings.Contains(taken, profile) {
				t.Errorf("%s was not looked after: %s", profile, taken)
			}
		}
	})
}

// Who may write which record.
func TestTheWriter(t *testing.T) {
	twoStores := api.Refuse(api.CodeStoreUnavailable, "a and b are not one store")
	of := func(r lease.Record, epoch uint64) lease.Record { r.PresenceEpoch = epoch; return r }
	for _, tt := range []struct {
		name   string
		record lease.Record
		open   bool // there is a presence, of epoch 2; the stay before was of epoch 1
		may    bool
		doubt  error
	}{
		{"a session of this stay", of(held("p", "here"), 2), true, true, nil},
		{"a session of the stay before", of(held("p", "here"), 1), true, true, nil},
		{"a session of a later stay", of(held("p", "here"), 3), true, false, nil},
		{"free since a later stay", of(free("p", "here"), 3), true, false, nil},
		{"another launcher's", of(held("p", "far"), 7), true, true, nil},
		{"no record", lease.Record{ProfileID: "p"}, true, true, nil},
		{"the end of a session of this stay, without a presence", of(held("p", "here"), 2), false, true, nil},
		{"the end of a session of the stay before, without a presence", of(held("p", "here"), 1), false, true, nil},
		{"a session of another stay, without a presence", of(held("p", "here"), 3), false, false, nil},
		{"a free profile of this stay, without a presence", of(free("p", "here"), 2), false, false, nil},
		{"another launcher's, without a presence", of(held("p", "far"), 2), false, false, nil},
		{"no record, without a presence", lease.Record{ProfileID: "p"}, false, false, nil},
		{"a free profile, by a store that may not be the only one", of(free("p", "here"), 2), true, false, twoStores},
		{"no record, by a store that may not be the only one", lease.Record{ProfileID: "p"}, true, false, twoStores},
		{"the end of a session, by a store that may not be the only one", of(held("p", "here"), 2), true, true, twoStores},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := w.keep(func(o *PresenceOptions) { shares(o); o.LeaveOnExit = func() bool { return true } })
				<-first.opened
				first.end()
				p := w.keep(func(o *PresenceOptions) { shares(o); o.Doubt = func() error { return tt.doubt } })
				<-p.opened
				if !tt.open {
					w.store.do(func() { w.store.put(lease.Presence{LauncherID: "here", Epoch: 3, TTLSeconds: timing.TTL.Seconds()}) })
					time.Sleep(2 * timing.Renewal())
					synctest.Wait()
					p.refuses(w)
				}
				var e lease.Entry
				w.store.do(func() {
					if e = (lease.Entry{Record: tt.record}); tt.record.State != "" {
						e = w.store.store(tt.record)
					}
				})
				_, err := p.Writer(w.store).Swap(w.Context(), e, tt.record)
				var q *api.Problem
				if (err == nil) != tt.may || err != nil && (!errors.As(err, &q) || !errors.Is(err, lease.ErrUnavailable)) {
					t.Errorf("%v", err)
				}
				_, err = p.Writer(w.store).SwapPresence(w.Context(), lease.PresenceEntry{}, lease.Presence{LauncherID: "far", Closed: true, ClosedBy: "here"})
				if (err == nil) != (tt.open && tt.doubt == nil) {
					t.Errorf("another's presence: %v", err)
				}
			})
		})
	}
}

// A launcher that may have been superseded, or has no presence, stores and removes nothing in the
// stores of evidence and of snapshots. Evidence waits in its spool, and is stored once it is alone.
func TestTheStoresOfALauncherWithoutAPresence(t *testing.T) {
	another := func(w *world) (stop func()) {
		k, err := lease.Keep(w.Context(), lease.Presence{LauncherID: "here", BootID: "other"}, w.entry("here"), 8,
			lease.KeeperOptions{Store: w.store, Timing: timing, Clock: w.clock, Expiring: func(time.Duration) {}})
		if err != nil {
			w.Fatal(err)
		}
		return k.Stop
	}
	for _, tt := range []struct {
		name          string
		before, after func(w *world) (stop func()) // what happens before the launcher starts, and afterwards
	}{
		{name: "a presence"},
		{name: "another launcher has its id", before: another},
		{name: "it was superseded", after: func(w *world) func() {
			stop := another(w)
			time.Sleep(2 * timing.Renewal())
			return stop
		}},
		{name: "it was not renewed in time", after: func(w *world) func() {
			w.store.do(func() { w.store.away = true })
			time.Sleep(timing.TTL)
			return func() { w.store.do(func() { w.store.away = false }) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				t := w.T
				must := func(errs ...error) {
					t.Helper()
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
				}
				spool, err := evidence.OpenSpool(filepath.Join(w.dir, "spool"))
				must(err)
				stored, err := evidence.OpenDirStore(filepath.Join(w.dir, "evidence"))
				must(err)
				old, _ := storetest.Seal(t, storetest.Spool(t), "p", "ev_old", 1, evidence.Link{})
				must(stored.Put(t.Context(), old))
				storetest.Seal(t, spool, "p", "ev_waits", 2, evidence.Link{})
				folder := t.TempDir()
				must(snapshots.OpenDir(folder).Put(t.Context(), "old", []byte("old"), ""))

				stop := func() {}
				if tt.before != nil {
					stop = tt.before(w)
				}
				p := w.keep(shares)
				<-p.opened
				if tt.after != nil {
					stop = tt.after(w)
				}
				synctest.Wait()
				may := tt.before == nil && tt.after == nil
				archive, objects := evidence.NewArchive(spool, stored, w.log()).Through(p.Bundles), p.Objects(snapshots.OpenDir(folder))
				picture, noPicture := archive.PutPicture(t.Context(), evidence.Manifest{ProfileID: "p", SessionID: "ses_1"}, []byte("jpeg"), "")
				for what, err := range map[string]error{
					"a bundle of the spool": archive.Flush(t.Context()), "a picture": noPicture, "removing a picture": archive.DropPictures(t.Context(), "p", picture),
					"removing a bundle": p.Bundles(stored).Delete(t.Context(), old.Manifest),
					"an object":         objects.Put(t.Context(), "new", []byte("new"), ""), "removing an object": objects.Delete(t.Context(), "old"),
				} {
					if q := (*api.Problem)(nil); (err == nil) != may || err != nil && !errors.As(err, &q) {
						t.Errorf("%s: %v", what, err)
					}
				}
				has := func(want string, wantWaiting int) {
					t.Helper()
					list, err := stored.List(t.Context(), "")
					must(err)
					ids := []string{}
					for _, m := range list {
						ids = append(ids, m.EvidenceID)
					}
					waiting, err := spool.Sealed()
					must(err)
					if got := strings.Join(ids, " "); got != want || len(waiting) != wantWaiting {
						t.Errorf("the store has %q, want %q; in the spool: %q", got, want, waiting)
					}
				}
				kept, err := snapshots.OpenDir(folder).List(t.Context(), "")
				must(err)
				if may {
					has("ev_waits", 0)
				} else {
					has("ev_old", 1)
				}
				if got := strings.Join(kept, " "); got != map[bool]string{true: "new", false: "old"}[may] {
					t.Errorf("the profile store has %q", got)
				}
				if !may {
					stop()
					w.until("alone", 5*timing.TTL, func() bool { _, err := p.Current(); return err == nil })
					must(archive.Flush(t.Context()))
					has("ev_waits ev_old", 0)
				}
			})
		})
	}
}
