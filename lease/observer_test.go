package lease

import (
	"testing"
	"time"

	"leasehold/internal/boottime"
)

// observing is the observer of launcher "o", with the time at which it is asked.
type observing struct {
	*Observer
	now boottime.Instant
}

const abandonAfter = 10 * time.Minute

func observe() *observing { return &observing{Observer: NewObserver("o", abandonAfter), now: 1000} }

func (w *observing) after(d time.Duration) { w.now = w.now.Add(d) }

func (w *observing) see(all ...PresenceEntry) { w.Presences(all, w.now) }

func (w *observing) lease(r Record) Step { return w.Lease(Entry{Record: r, Revision: 5}, w.now) }

func live(revision uint64, epoch uint64, nonce string) PresenceEntry {
	return PresenceEntry{Presence: Presence{LauncherID: "l", Epoch: epoch, TTLSeconds: 30, Nonce: nonce}, Revision: revision}
}

func closed(p PresenceEntry) PresenceEntry {
	p.Presence.Closed, p.Revision = true, p.Revision+1
	return p
}

func held() Record {
	return Record{ProfileID: "p", State: Held, Home: "l", LauncherID: "l", PresenceEpoch: 3, TTLSeconds: 30, Token: 7}
}

func at(s State) Record {
	r := held()
	r.State = s
	return r
}

func nothing(s Step) bool { return s.Fact == "" && s.Close == nil }

func TestObserverWaitsItsWholeTime(t *testing.T) {
	for name, shown := range map[string][]PresenceEntry{
		"live": {live(1, 3, "a")}, "missing": nil, "set back": {live(1, 2, "a")}, "came back, and silent again": {live(1, 4, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			w := observe()
			w.see(shown...)
			if s := w.lease(held()); !nothing(s) {
				t.Fatalf("at first sight: %+v", s)
			}
			w.after(timing.ObserverWait() - 1)
			w.see(shown...)
			if s := w.lease(held()); !nothing(s) {
				t.Fatalf("a nanosecond before its time: %+v", s)
			}
			w.after(1)
			s := w.lease(held())
			if s.Fact != "" || s.Close == nil || !s.Close.Closed || s.Close.LauncherID != "l" || s.Close.ClosedBy != "o" || s.Close.Epoch < 3 {
				t.Fatalf("%+v: want the presence closed", s)
			}
			if len(shown) > 0 && s.Prev.Revision != shown[0].Revision || len(shown) == 0 && s.Prev.Revision != 0 {
				t.Fatalf("closes over %+v, want what was shown", s.Prev)
			}
		})
	}
}

func TestObserverStartsAgainWithEveryChange(t *testing.T) {
	for name, changed := range map[string][]PresenceEntry{
		"renewed": {live(2, 3, "b")}, "a smaller revision": {live(1, 3, "z")}, "the same revision by another write": {live(9, 3, "b")},
		"opened again": {live(10, 4, "b")}, "gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := observe()
			w.see(live(9, 3, "a"))
			w.after(timing.ObserverWait() - 1)
			w.see(changed...)
			w.after(timing.ObserverWait() - 1)
			w.see(changed...)
			if s := w.lease(held()); !nothing(s) {
				t.Fatalf("%+v: it did not start again", s)
			}
			w.after(1)
			if s := w.lease(held()); s.Close == nil {
				t.Fatalf("%+v: it waits for ever", s)
			}
		})
	}
}

func TestObserverStartsAgainWhenTheStoreWentBack(t *testing.T) {
	w := observe()
	w.see(live(9, 3, "a"))
	w.after(timing.ObserverWait())
	w.Start(w.now)
	if s := w.lease(held()); !nothing(s) {
		t.Fatalf("%+v: the holder had no time to write again what the store forgot", s)
	}
	w.after(timing.ObserverWait())
	if s := w.lease(held()); s.Close == nil {
		t.Fatalf("%+v: it waits for ever", s)
	}
}

// The observer sees a lease before it has seen anything of its launcher.
func TestObserverOfAnUnknownLauncher(t *testing.T) {
	w := observe()
	if s := w.lease(held()); !nothing(s) {
		t.Fatalf("at first sight: %+v", s)
	}
	w.after(timing.ObserverWait())
	if s := w.lease(held()); s.Close == nil || s.Prev.Revision != 0 || s.Close.Epoch != 3 {
		t.Fatalf("%+v: want a closed presence where there is none", s)
	}
}

// The longer of two TTLs counts: that of the presence, and that of the lease.
func TestObserverWaitsForTheLongerTTL(t *testing.T) {
	for _, c := range []struct{ presence, lease float64 }{{60, 30}, {30, 60}} {
		w := observe()
		p := live(1, 3, "a")
		p.Presence.TTLSeconds = c.presence
		r := held()
		r.TTLSeconds = c.lease
		w.see(p)
		w.after(Timing{TTL: 60 * time.Second}.ObserverWait() - 1)
		if s := w.lease(r); !nothing(s) {
			t.Fatalf("TTL of presence %v, of lease %v: %+v", c.presence, c.lease, s)
		}
		w.after(1)
		if s := w.lease(r); s.Close == nil {
			t.Fatalf("TTL of presence %v, of lease %v: %+v", c.presence, c.lease, s)
		}
	}
}

func TestObserverSteps(t *testing.T) {
	for name, c := range map[string]struct {
		shown PresenceEntry
		r     Record
		want  Fact
	}{
		"closed: suspect":                        {closed(live(1, 3, "a")), held(), Suspected},
		"closed: fence what is suspected":        {closed(live(1, 3, "a")), at(SuspectedStale), Fenced},
		"closed with a higher epoch: suspect":    {closed(live(1, 4, "a")), held(), Suspected},
		"closed with a higher epoch: fence":      {closed(live(1, 4, "a")), at(SuspectedStale), Fenced},
		"an older stay was closed: wait":         {closed(live(1, 2, "a")), held(), ""},
		"live":                                   {live(1, 3, "a"), held(), ""},
		"live: the holder suspects its own":      {live(1, 3, "a"), at(SuspectedStale), ""},
		"came back: it recovers its own":         {live(1, 4, "a"), held(), ""},
		"came back: it recovers what it left":    {live(1, 4, "a"), at(SuspectedStale), ""},
		"free":                                   {closed(live(1, 3, "a")), at(Available), ""},
		"to be resumed":                          {closed(live(1, 3, "a")), at(ResumePending), ""},
		"with a person":                          {closed(live(1, 3, "a")), at(ManualReview), ""},
		"its own home's, whatever it looks like": {closed(live(1, 3, "a")), func() Record { r := held(); r.Home = "o"; return r }(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := observe()
			w.see(c.shown)
			if s := w.lease(c.r); s.Fact != c.want || s.Close != nil {
				t.Fatalf("%+v, want %q", s, c.want)
			}
		})
	}
}

func TestObserverAbandons(t *testing.T) {
	for _, state := range []State{Quarantined, Inspected} {
		for name, shown := range map[string][]PresenceEntry{"closed": {closed(live(1, 3, "a"))}, "missing": nil, "silent": {live(1, 3, "a")}} {
			t.Run(string(state)+"/"+name, func(t *testing.T) {
				w := observe()
				w.see(shown...)
				w.lease(at(state))
				w.after(timing.ObserverWait())
				w.lease(at(state)) // the home is gone by now, so the wait has begun
				w.after(abandonAfter - 1)
				if name != "closed" {
					if s := w.lease(at(state)); !nothing(s) {
						t.Fatalf("before its time: %+v", s)
					}
				}
				w.after(1)
				if s := w.lease(at(state)); s.Fact != Abandoned {
					t.Fatalf("%+v: want it abandoned", s)
				}
			})
		}
	}
}

func TestObserverGivesTheHomeItsWholeTime(t *testing.T) {
	w := observe()
	w.see(closed(live(1, 3, "a")))
	w.lease(at(Quarantined))
	w.after(abandonAfter - 1)
	w.see(live(4, 4, "b")) // it came back
	if s := w.lease(at(Quarantined)); !nothing(s) {
		t.Fatalf("%+v: its home is there", s)
	}
	w.see(closed(live(4, 4, "b")))
	w.lease(at(Quarantined))
	w.after(abandonAfter - 1)
	if s := w.lease(at(Quarantined)); !nothing(s) {
		t.Fatalf("%+v: the wait did not start again", s)
	}
	if s := w.Lease(Entry{Record: at(Quarantined), Revision: 6}, w.now.Add(1)); !nothing(s) {
		t.Fatalf("%+v: the record was written, so the wait starts again", s)
	}
	w.after(1 + abandonAfter)
	if s := w.Lease(Entry{Record: at(Quarantined), Revision: 6}, w.now); s.Fact != Abandoned {
		t.Fatalf("%+v: it waits for ever", s)
	}
	w.Lease(Entry{Record: at(ManualReview), Revision: 7}, w.now)
	if s := w.Lease(Entry{Record: at(Quarantined), Revision: 6}, w.now); !nothing(s) {
		t.Fatalf("%+v: a wait of before counts", s)
	}
}

func TestObserverOf(t *testing.T) {
	w := observe()
	w.see(live(1, 3, "a"))
	if w.Of("l").Epoch != 3 || w.Of("nobody").Epoch != 0 {
		t.Fatalf("%+v", w.Of("l"))
	}
}
