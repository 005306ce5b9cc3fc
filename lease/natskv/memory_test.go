package natskv

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/natsd"
	"leasehold/lease"
)

func eventOf(profile string, token lease.Token, sequence uint64, session string) lease.Event {
	return lease.Event{Event: lease.EventGranted, ProfileID: profile, Token: token, Sequence: sequence, SessionID: session, At: t0}
}

// TestWhatIsBetween: events that were lost are filled in up to the one that is to come, by
// their numbers. Where a record went two ways, those of the way that is over are left out.
func TestWhatIsBetween(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		seen []lease.Event
		last position
		e    lease.Event
		want string // the session of the next one; empty: none
	}{
		"nothing is remembered":      {nil, position{1, 1}, eventOf("p", 3, 5, ""), ""},
		"nothing is missing":         {[]lease.Event{eventOf("p", 1, 1, "a"), eventOf("p", 1, 2, "b")}, position{1, 1}, eventOf("p", 1, 2, "b"), ""},
		"the first that is missing":  {[]lease.Event{eventOf("p", 2, 3, "c"), eventOf("p", 1, 2, "b")}, position{1, 1}, eventOf("p", 3, 4, ""), "b"},
		"all, on a new stream":       {[]lease.Event{eventOf("p", 1, 1, "a"), eventOf("p", 1, 2, "b")}, position{}, eventOf("p", 3, 4, ""), "a"},
		"of another profile":         {[]lease.Event{eventOf("q", 1, 2, "b")}, position{1, 1}, eventOf("p", 3, 4, ""), ""},
		"what comes later":           {[]lease.Event{eventOf("p", 3, 5, "e")}, position{1, 1}, eventOf("p", 3, 4, ""), ""},
		"a number that is taken":     {[]lease.Event{eventOf("p", 1, 4, "old")}, position{1, 1}, eventOf("p", 2, 4, ""), ""},
		"a number below the last":    {[]lease.Event{eventOf("p", 2, 1, "old")}, position{1, 3}, eventOf("p", 3, 4, ""), ""},
		"two ways, the later counts": {[]lease.Event{eventOf("p", 1, 2, "old"), eventOf("p", 2, 2, "new")}, position{1, 1}, eventOf("p", 2, 3, ""), "new"},
		"one place, the later is it": {[]lease.Event{eventOf("p", 1, 2, "old"), eventOf("p", 1, 2, "new")}, position{1, 1}, eventOf("p", 2, 3, ""), "new"},
	} {
		m := newMemory(memorySize)
		for _, e := range tt.seen {
			m.add(e)
		}
		got, ok := m.between(tt.last, tt.e)
		if got.SessionID != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %v, of session %q", name, ok, got.SessionID)
		}
	}
}

// TestAMemoryHasASize: the events that came first leave first.
func TestAMemoryHasASize(t *testing.T) {
	t.Parallel()
	m := newMemory(3)
	for i, e := range []lease.Event{eventOf("p", 1, 1, ""), eventOf("q", 1, 1, ""), eventOf("p", 1, 2, ""), eventOf("p", 1, 2, ""), eventOf("p", 1, 3, "")} {
		if m.add(e); i > 0 {
			m.publish(e)
		}
	}
	if m.has(eventOf("p", 1, 1, "")) || !m.has(eventOf("q", 1, 1, "")) || !m.has(eventOf("p", 1, 2, "")) || m.has(eventOf("p", 1, 2, "another")) {
		t.Errorf("%+v", m.profiles)
	}
	m.add(eventOf("r", 1, 1, ""))
	m.forget(eventOf("p", 1, 3, ""))
	if lasts := m.lastPublished(); len(m.profiles) != 2 || len(lasts) != 1 || lasts[0].Sequence != 2 {
		t.Errorf("%+v, published %+v", m.profiles, lasts)
	}
}

// TestWhatIsMissing: a record takes along what its outbox lacks, of its own way.
func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	next := lease.Record{ProfileID: "p", Token: 3, Sequence: 6}
	m := newMemory(memorySize)
	m.publish(eventOf("p", 1, 1, "known before"))
	if !m.has(eventOf("p", 1, 1, "known before")) {
		t.Error("what was published is not remembered")
	}
	for _, e := range []lease.Event{
		eventOf("p", 2, 3, "later of two"), eventOf("p", 1, 3, "last of two"), eventOf("p", 2, 4, "there already"),
		eventOf("p", 4, 5, "of another way"), eventOf("p", 5, 7, "after it"), eventOf("q", 1, 4, "of another profile"),
	} {
		m.add(e)
	}
	var got []string
	for _, e := range m.missing(1, next, []lease.Event{eventOf("p", 2, 4, "there already")}) {
		got = append(got, e.SessionID)
	}
	if len(got) != 1 || got[0] != "last of two" {
		t.Errorf("%q", got)
	}
}

// backedUp returns a server whose store has a grant of p, with its directory and an old copy
// of that. The launcher that wrote it has ended.
func backedUp(t *testing.T) (srv *natsd.Server, dir, old string, held lease.Entry) {
	t.Helper()
	dir, old = t.TempDir(), filepath.Join(t.TempDir(), "old")
	srv = start(t, dir)
	first := open(t, inProcess(t, srv))
	held = swapped(t, first, none("p"), granted(t, none("p"), "t"))
	flushed(t, first)
	first.Close()
	first.nc.Close()
	srv.Shutdown()
	copyDir(t, filepath.Join(dir, "jetstream"), old)
	return start(t, dir), dir, old, held
}

// TestWhatTheStreamLostIsPublishedAgain: the store goes back to an old copy, and with it an
// event stream that had acknowledged later events. They come again, in their places: by the
// launcher that published them, or by one that saw them, once it states a record of the
// profile, and however the profile goes on.
func TestWhatTheStreamLostIsPublishedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		// goesOn is what is written after the store went back; own is the last record
		// before that, and k what a roster has of all before.
		goesOn func(t *testing.T, s *Store, own lease.Record, k lease.Known)
		// gone says that the launcher that published the events is gone, so that
		// goesOn is another one's; restarted, that this one remembers what its roster has.
		gone, restarted bool
		// remade says that the last thing which the store lost is that the profile got another
		// directory, and not a second grant.
		remade bool
		want   []string
	}{
		"nothing else happens": {
			goesOn: func(*testing.T, *Store, lease.Record, lease.Known) {},
			want:   []string{"granted/1/1", "released/1/2", "granted/2/3"},
		},
		"its holder states the lease again, over what somebody wrote": {
			goesOn: func(t *testing.T, s *Store, own lease.Record, _ lease.Known) {
				old := awaited(t, s)
				other := old.Record.Clone()
				other.SessionID = "another"
				other, err := other.Release("done", "another", lease.Sealed{}, t0.Add(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				now := swapped(t, s, old, other)
				upheld, err := now.Record.Uphold(own, 2, lease.Progress{}, t0)
				if err != nil {
					t.Fatal(err)
				}
				now = swapped(t, s, now, upheld)
				swapped(t, s, now, released(t, now))
			},
			want: []string{"granted/1/1", "released/1/2", "granted/2/3", "released/2/4"},
		},
		"nothing else happens to a profile with another directory": {
			remade: true,
			goesOn: func(*testing.T, *Store, lease.Record, lease.Known) {},
			want:   []string{"granted/1/1", "released/1/2", "remade/2/3"},
		},
		"its home heals it, which has another directory of it": {
			remade: true,
			goesOn: func(t *testing.T, s *Store, own lease.Record, _ lease.Known) {
				old := awaited(t, s)
				healed, err := old.Record.Heal(own, 2, t0)
				if err != nil {
					t.Fatal(err)
				}
				swapped(t, s, old, healed)
			},
			want: []string{"granted/1/1", "released/1/2", "remade/2/3", "available/2/4"},
		},
		"its home heals it": {
			goesOn: func(t *testing.T, s *Store, own lease.Record, _ lease.Known) {
				old := awaited(t, s)
				healed, err := old.Record.Heal(own, 2, t0)
				if err != nil {
					t.Fatal(err)
				}
				swapped(t, s, old, healed)
			},
			want: []string{"granted/1/1", "released/1/2", "granted/2/3", "quarantined/3/4", "expired/3/5"},
		},
		"another launcher recalls it": {
			gone: true,
			goesOn: func(t *testing.T, s *Store, own lease.Record, _ lease.Known) {
				old := awaited(t, s)
				recalled, err := old.Record.Recall(own.Known(), "other", 0, 0, t0)
				if err != nil {
					t.Fatal(err)
				}
				swapped(t, s, old, recalled)
			},
			want: []string{"granted/1/1", "released/1/2", "granted/2/3", "quarantined/2/4", "expired/2/5"},
		},
		"another launcher recalls it, which was restarted since": {
			gone: true, restarted: true,
			goesOn: func(t *testing.T, s *Store, _ lease.Record, k lease.Known) {
				old := awaited(t, s)
				recalled, err := old.Record.Recall(k, "other", 0, 0, t0)
				if err != nil {
					t.Fatal(err)
				}
				swapped(t, s, old, recalled)
			},
			want: []string{"granted/1/1", "released/1/2", "granted/2/3", "quarantined/2/4", "expired/2/5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, dir, old, held := backedUp(t)
			p := startProxy(t, srv)
			s := open(t, dialPlain(t, p.url()))
			witness := s
			if tt.gone {
				witness = open(t, dialPlain(t, p.url()))
			}
			watch := watchOf(t, witness, nil)
			watch.await("fresh", "p/held/1", "complete")
			free := swapped(t, s, held, released(t, held))
			watch.await("p/available/1")
			next := granted(t, free, "again")
			if tt.remade {
				var err error
				if next, err = free.Record.Remake("ann", t0); err != nil {
					t.Fatal(err)
				}
			}
			own := swapped(t, s, free, next)
			watch.await(fmt.Sprintf("p/%s/2", next.State))
			flushed(t, s)
			if tt.gone {
				s.Close()
				s.nc.Close()
			}
			setBack(t, srv, p, dir, old)
			states := witness
			if tt.restarted {
				states = open(t, dialPlain(t, p.url()))
			}
			// Once as much was written as was lost, the watch could not see that it was lost.
			watch.await("stepped", "complete")
			tt.goesOn(t, states, own.Record, held.Record.Known().Learn(free.Record).Learn(own.Record))
			soon(t, func() error {
				events, err := witness.History(t.Context(), "p")
				if err == nil && len(events) < len(tt.want) {
					err = fmt.Errorf("%d events", len(events))
				}
				return err
			})
			flushed(t, witness)
			wantHistory(t, witness, "p", tt.want...)
		})
	}
}

// setBack puts an old copy of the store into its place.
func setBack(t *testing.T, srv *natsd.Server, p *proxy, dir, old string) {
	t.Helper()
	srv.Shutdown()
	copyDir(t, old, filepath.Join(dir, "jetstream"))
	p.serve(start(t, dir))
}

// awaited returns the record of p as soon as the store can be reached.
func awaited(t *testing.T, s *Store) lease.Entry {
	t.Helper()
	var e lease.Entry
	soon(t, func() (err error) {
		e, err = s.Get(patient(t), "p")
		return err
	})
	return e
}

// TestARecordTakesLostEventsAlong: the launcher that states a profile again cannot publish
// itself. Whoever publishes for it has never seen what was lost.
func TestARecordTakesLostEventsAlong(t *testing.T) {
	t.Parallel()
	srv, dir, old, held := backedUp(t)
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	free := swapped(t, s, held, released(t, held))
	own := swapped(t, s, free, granted(t, free, "again"))
	flushed(t, s)

	p.set(func(p *proxy) { p.loseRequest = times(-1, "leasehold.") })
	srv.Shutdown()
	copyDir(t, old, filepath.Join(dir, "jetstream"))
	srv = start(t, dir)
	p.serve(srv)
	forgot := awaited(t, s)
	healed, err := forgot.Record.Heal(own.Record, 2, t0)
	if err != nil {
		t.Fatal(err)
	}
	now := swapped(t, s, forgot, healed)
	next := open(t, inProcess(t, srv))
	flushed(t, next)
	wantHistory(t, next, "p", "granted/1/1", "released/1/2", "granted/2/3", "quarantined/3/4", "expired/3/5")
	p.set(func(p *proxy) { p.loseRequest = times(0, "") })
	flushed(t, s)
	if now = swapped(t, s, now, now.Record); len(now.Record.Outbox) != 0 {
		t.Errorf("what is published stays in the record: %+v", now.Record.Outbox)
	}
	m := newMemory(memorySize)
	for n := uint64(1); n <= 2*maxMissing; n++ {
		m.add(eventOf("p", 1, n, ""))
	}
	if lost := m.missing(0, lease.Record{ProfileID: "p", Token: 2, Sequence: 2 * maxMissing}, nil); len(lost) != maxMissing {
		t.Errorf("a record takes %d events along", len(lost))
	}
}

// After the store went back, a position is used a second time. The event that has it then is
// published, also if the watch showed it, in the record's outbox, before its writer put it into the
// queue.
func TestAnEventThatTheWatchShowsFirstIsPublished(t *testing.T) {
	p := &publisher{queue: map[string][]lease.Event{}, tails: map[string]tail{}, memory: newMemory(10), idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	at := time.Now()
	before := lease.Event{Event: "inspected", ProfileID: "p", Token: 2, Sequence: 5, At: at}
	p.memory.publish(before)
	p.tails["p"] = tail{position: positionOf(before), seq: 7}
	again := before
	again.At = at.Add(time.Second)
	p.remember([]lease.Event{again})
	p.enqueue("p", []lease.Event{again})
	if e, ok := p.head("p"); !ok || !isSame(e, again) {
		t.Errorf("the queue begins with %+v, %v", e, ok)
	}
	p.confirm(again)
	p.tails["p"] = tail{position: positionOf(again), seq: 8}
	if left := p.outbox(5, lease.Record{ProfileID: "p", Token: 2, Sequence: 6, Outbox: []lease.Event{again}}); len(left) != 0 {
		t.Errorf("what is on the stream stays in the outbox: %+v", left)
	}
}
