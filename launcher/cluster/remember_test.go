package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/roster"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Get is that of a store which answers.
func (s *memory) Get(ctx context.Context, profile string) (lease.Entry, error) {
	if err := s.arrive(ctx); err != nil {
		return lease.Entry{}, err
	}
	defer s.mu.Unlock()
	e, ok := s.records[profile]
	if !ok {
		return lease.Entry{}, lease.ErrNotFound
	}
	return e, nil
}

// History has no events.
func (s *memory) History(ctx context.Context, _ string) ([]lease.Event, error) {
	if err := s.arrive(ctx); err != nil {
		return nil, err
	}
	s.mu.Unlock()
	return nil, nil
}

// remembering starts a launcher that remembers what an earlier one in the world's data
// directory saw, and ends it with stop.
func (w *world) remembering() (b *beat, stop func()) {
	w.Helper()
	seen, err := roster.Open(roster.Options{DataDir: w.dir, Key: testkey.Key, Log: w.log()})
	if err != nil {
		w.Fatal(err)
	}
	p := w.keep(func(o *PresenceOptions) { o.SharedStore, o.Newcomer = true, seen.Empty() })
	<-p.opened
	ctx, cancel := context.WithCancel(w.Context())
	b = newBeat(w.T, ctx, w.dir, w.store, w.log(), p.Presence, func(o *PatrolOptions) {
		o.Clock, o.Roster = w.clock, seen
		o.Recoverer = recovery.New(recovery.Options{
			LauncherID: "here", DataDir: w.dir, Key: testkey.Key, Root: o.Root, Jar: sessionfile.NewJar(w.dir, testkey.Key),
			Archive: o.Archive, Store: w.store, Roster: seen, Log: w.log(), Metrics: prometheus.NewRegistry(),
		})
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run()
		b.work.Wait()
	}()
	stop = func() { cancel(); <-ended; p.end() }
	w.Cleanup(stop)
	return b, stop
}

// wiped makes the store one that knows nothing, and says so.
func (w *world) wiped() {
	w.store.do(func() {
		clear(w.store.records)
		w.store.report(lease.Sight{Fresh: true, Stepped: true}, lease.Sight{Complete: true})
	})
	synctest.Wait()
}

// shows has the store have records, of which the launcher learns.
func (w *world) shows(age time.Duration, records ...lease.Record) {
	w.store.do(func() {
		w.store.report(lease.Sight{Fresh: true, Age: age})
		for _, r := range records {
			w.store.store(r)
		}
		w.store.report(lease.Sight{Complete: true})
	})
	synctest.Wait()
}

// Nothing is made in a store that is young, by its own clock or by this launcher's, and a
// launcher that remembers nothing waits after its own start. Only stores that others use,
// too, can be young.
func TestNothingIsMadeInAYoungStore(t *testing.T) {
	delay := timing.GrantDelay()
	for name, tt := range map[string]struct {
		alone, newcomer bool
		sights          []lease.Sight
		number          uint64 // of the store as it is now
		wait            time.Duration
	}{
		"nobody else uses it": {alone: true, sights: []lease.Sight{{Fresh: true, Stepped: true}}},
		"not seen yet":        {wait: -1},
		"just made":           {sights: []lease.Sight{{Fresh: true}}, wait: delay},
		"made a while ago":    {sights: []lease.Sight{{Fresh: true, Age: delay / 3}}, wait: delay - delay/3},
		"old":                 {sights: []lease.Sight{{Fresh: true, Age: 1000 * time.Hour}}},
		"old, to a newcomer":  {newcomer: true, sights: []lease.Sight{{Fresh: true, Age: 1000 * time.Hour}}, wait: delay},
		"lost, as the watch has not found out yet": {sights: []lease.Sight{{Fresh: true, Age: 1000 * time.Hour, Number: 1}}, number: 2, wait: delay},
		"old, and went back":                       {sights: []lease.Sight{{Fresh: true, Age: time.Hour}, {Fresh: true, Stepped: true, Age: time.Hour}}, wait: delay},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.keep(func(o *PresenceOptions) { o.SharedStore, o.Newcomer = !tt.alone, tt.newcomer })
				<-p.opened
				for _, s := range tt.sights {
					p.StoreSeen(s)
				}
				w.store.do(func() { w.store.number = tt.number })
				makeReady := func() error {
					_, err := p.MakeReady(w.Context())
					return err
				}
				var young *api.Problem
				switch at := makeReady(); {
				case tt.wait == 0:
				case !errors.As(at, &young) || young.More["reason"] != ReasonYoung || young.RetryAfter < 1:
					t.Fatalf("at first: %+v", at)
				case tt.wait < 0:
					if time.Sleep(time.Hour); makeReady() == nil || p.HomesHadTime() {
						t.Error("a store that nobody has seen")
					}
					return
				default:
					if time.Sleep(tt.wait - 1); makeReady() == nil {
						t.Error("it was not waited for long enough")
					}
					time.Sleep(time.Nanosecond)
				}
				switch number, err := p.MakeReady(w.Context()); {
				case err != nil:
					t.Errorf("in the end: %v", err)
				case !tt.alone && number != tt.number:
					t.Errorf("it may be made in store %d, want %d", number, tt.number)
				}
				w.store.do(func() { w.store.away = true })
				if err := makeReady(); !tt.alone && !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("where the store cannot be asked: %v", err)
				}
			})
		})
	}
}

// TestWhatIsStoredWhileEverythingIsShownIsNotForgotten: a recovery raises the token of a profile while the
// watch, which began again, shows all records; its write is shown after them. The launcher remembers
// the higher token at once, and the store has not forgotten it.
func TestWhatIsStoredWhileEverythingIsShownIsNotForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		b, _ := w.remembering()
		before := free("p", "here")
		before.Token = 5
		w.shows(time.Hour, before)
		time.Sleep(timing.GrantDelay())
		after := before
		after.Token = 6
		w.store.do(func() {
			w.store.report(lease.Sight{Fresh: true, Age: time.Hour}, lease.Sight{Entry: w.store.records["p"]}, lease.Sight{Complete: true})
			w.store.store(after)
			b.o.Roster.See(after) // as whoever stored it does
		})
		synctest.Wait()
		if _, err := b.presence.MakeReady(w.Context()); err != nil {
			t.Errorf("nothing can be made: %v", err)
		}
		w.wiped()
		if _, err := b.presence.MakeReady(w.Context()); err == nil {
			t.Error("a store that has forgotten it is as good as any")
		}
	})
}

// What a launcher has seen of another one's profile it states itself, once that one had the
// time to do so; its own are for its recovery. Nothing can be made until then.
func TestAForgottenProfileIsRecalled(t *testing.T) {
	inWorld(t, func(w *world) {
		b, stop := w.remembering()
		far, kept := free("p", "far"), free("q", "far")
		far.Token, kept.Token = 5, 9
		w.shows(time.Hour, far, kept, lease.Record{ProfileID: "o", State: lease.Available, Home: "here", Token: 3})
		time.Sleep(timing.GrantDelay())
		for _, when := range []string{"while it runs", "while it was away"} {
			if when == "while it runs" {
				w.wiped()
			} else {
				stop()
				w.store.do(func() {
					w.store.sights = nil
					clear(w.store.records)
				})
				b, stop = w.remembering()
				w.shows(time.Hour)
			}
			// The home of the second is quick, and knows more.
			kept.Token++
			w.store.do(func() { w.store.store(kept) })
			time.Sleep(timing.GrantDelay()/2 - time.Second)
			if r := w.record("p"); r.State != "" {
				t.Errorf("%s: its home had no time: %+v", when, r)
			}
			if _, err := b.presence.MakeReady(w.Context()); err == nil {
				t.Errorf("%s: a profile can be made before everybody had the time to say what there is", when)
			}
			w.until("recalled", timing.TTL, func() bool { return w.record("p").State != "" })
			if r := w.record("p"); r.State != lease.Quarantined || r.Token != 5 || r.Home != "far" || r.RememberedBy != "here" || r.Reason != lease.ReasonRecordLost {
				t.Errorf("%s: %+v", when, r)
			}
			time.Sleep(timing.GrantDelay())
			if _, err := b.presence.MakeReady(w.Context()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if r := w.record("q"); r.Token != kept.Token || r.State != lease.Available {
				t.Errorf("%s: what is known is stated over what is: %+v", when, r)
			}
			if r := w.record("o"); r.State != "" {
				t.Errorf("%s: its own: %+v", when, r)
			}
		}
	})
}

// A profile that was made anew under another home is contested at once, by whoever
// remembers the first one, and once.
func TestAProfileThatWasMadeAnewIsContested(t *testing.T) {
	for name, first := range map[string]string{"of another": "far", "of this one": "here"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				_, _ = w.remembering()
				known := lease.Record{ProfileID: "p", State: lease.Available, Home: first, Token: 5}
				w.shows(time.Hour, known)
				time.Sleep(time.Second)
				anew := held("p", "nearby")
				anew.Token = 1
				w.shows(time.Hour, anew)
				time.Sleep(timing.TTL)
				r := w.record("p")
				if r.State != lease.Quarantined || r.Token != 6 || r.Home != first || r.OtherHome != "nearby" || r.Reason != lease.ReasonContested {
					t.Errorf("%+v", r)
				}
				contests := slices.DeleteFunc(w.writes(), func(what string) bool { return what != "p quarantined" })
				if len(contests) != 1 {
					t.Errorf("%d contests", len(contests))
				}
				if said := w.said.String(); !strings.Contains(said, "another launcher made it anew") {
					t.Errorf("nobody is told:\n%s", said)
				}
			})
		})
	}
}

// A home that was killed before its roster had the profile contests it all the same, by what it
// kept beside the directory: also where the other one has granted more tokens meanwhile.
func TestAHomeContestsWhatOnlyItsFloorRemembers(t *testing.T) {
	inWorld(t, func(w *world) {
		b, _ := w.remembering()
		_, err := b.root.Create("p")
		if err != nil {
			t.Fatal(err)
		}
		lock, err := b.root.Lock("p")
		if err == nil {
			err = errors.Join(lock.RaiseFloor(lease.Record{ProfileID: "p", State: lease.Available, Home: "here", Token: 5}), lock.Unlock())
		}
		if err != nil {
			t.Fatal(err)
		}
		anew := held("p", "nearby")
		anew.Token = 9
		w.shows(time.Hour, anew)
		time.Sleep(timing.TTL)
		if r := w.record("p"); r.State != lease.Quarantined || r.Token != 10 || r.Home != "here" || r.OtherHome != "nearby" || r.Reason != lease.ReasonContested {
			t.Errorf("%+v", r)
		}
	})
}

// The launcher that made a profile anew says that another one was there first.
func TestWhoMadeItAnewSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		b, _ := w.remembering()
		r := lease.Record{ProfileID: "p", State: lease.Available, Home: "here", Token: 1}
		w.shows(time.Hour, r)
		contested, err := r.Contest(lease.Known{ProfileID: "p", Home: "far", Token: 5}, lease.Record{}, 0, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.shows(time.Hour, contested)
		}
		time.Sleep(timing.TTL)
		if n := strings.Count(w.said.String(), "another launcher was the home of the profile"); n < 1 {
			t.Errorf("it is said %d times:\n%s", n, w.said.String())
		}
		if now := w.record("p"); now.Token != contested.Token || now.Home != "far" {
			t.Errorf("it contests that: %+v", now)
		}
		if b.taken() != nil {
			t.Error("it looks after a profile of another launcher")
		}
		lock, err := b.root.Lock("p")
		if err == nil {
			err = errors.Join(lock.RaiseFloor(r), lock.SetRunning(profiledir.Running{PID: 1, SessionID: "ses_p", Token: 1}), lock.Unlock())
		}
		if err != nil {
			t.Fatal(err)
		}
		if time.Sleep(timing.TTL); b.taken() == nil {
			t.Error("what it left open on the profile stays open")
		}
	})
}

// A bucket that was lost alone, and without a reconnect: the record is reported as one
// without a state. It is looked at in each look around, not only in each thorough one.
func TestALostRecordIsLookedAtAgainAndAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		lock, err := b.root.Lock("p")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.root.Create("p"); err != nil {
			t.Fatal(err)
		}
		w.sees(lease.Sight{Fresh: true}, lease.Sight{Entry: lease.Entry{Record: lease.Record{ProfileID: "p"}, Revision: 4}}, lease.Sight{Complete: true})
		// What the recovery is at is kept while the bucket is away.
		if err := lock.RaiseFloor(lease.Record{ProfileID: "p", Home: "here", State: lease.Quarantined, Token: 2}); err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		b.taken()
		time.Sleep(2 * timing.Renewal())
		synctest.Wait()
		if taken := b.taken(); len(taken) == 0 {
			t.Errorf("nobody goes on with the recovery; log:\n%s", w.said.String())
		}
	})
}
