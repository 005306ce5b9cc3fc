package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

// figures are what a collector's gauges say, by name and the value of their label.
func figures(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return all
}

// lost is a profile of this host whose worker was lost so long ago, and its recovery began a
// minute later.
func lost(t testing.TB, profile string, state lease.State, ago time.Duration) lease.Record {
	t.Helper()
	r, err := held(profile, "here").Suspect("heartbeat_timeout", lease.Sealed{}, time.Now().Add(-ago))
	if err == nil && state != lease.SuspectedStale {
		r, err = r.Quarantine(0, time.Now().Add(time.Minute-ago))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.State = state
	return r
}

func signedOut(r lease.Record) lease.Record {
	r.SignedIn = lease.SignedInNo
	return r
}

func TestProfilesAreCountedByState(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.patrol()
		w.sees(lease.Sight{Fresh: true},
			sight(signedOut(free("free", "here"))), sight(held("held", "here")), sight(held("elsewhere", "far")),
			sight(lost(w, "old", lease.ManualReview, 3*time.Hour)), sight(lost(w, "older", lease.ManualReview, 5*time.Hour)),
			sight(lost(w, "task", lease.ResumePending, time.Hour)), sight(lost(w, "just", lease.SuspectedStale, 10*time.Second)),
			lease.Sight{Complete: true})
		shows := func(when string, want map[string]float64) {
			w.Helper()
			got := figures(w, b.census)
			for name, value := range want {
				if got[name] != value {
					w.Errorf("%s: %s is %v, want %v", when, name, got[name], value)
				}
			}
			if len(got) != len(counted)+len(waiting)+3 {
				w.Errorf("%s: %d figures, want one for each state and each answer, also where it is 0: %v", when, len(got), got)
			}
		}
		shows("all of them", map[string]float64{
			"leasehold_profiles available": 1, "leasehold_profiles held": 1, "leasehold_profiles manual_review": 2,
			"leasehold_profiles resume_pending": 1, "leasehold_profiles suspected_stale": 1, "leasehold_profiles quarantined": 0,
			"leasehold_accounts yes": 0, "leasehold_accounts no": 1, "leasehold_accounts unknown": 5,
			"leasehold_profile_wait_seconds manual_review":   (5*time.Hour - time.Minute).Seconds(),
			"leasehold_profile_wait_seconds resume_pending":  (time.Hour - time.Minute).Seconds(),
			"leasehold_profile_wait_seconds suspected_stale": 10, "leasehold_profile_wait_seconds quarantined": 0,
		})

		approved, err := lost(w, "older", lease.ManualReview, 5*time.Hour).Reviewed(lease.Review{Decision: lease.ReviewApprove, Reviewer: "ana", TokenSeen: 2}, 0, time.Now())
		if err != nil {
			w.Fatal(err)
		}
		moved := held("held", "far")
		moved.Token++
		w.sees(sight(approved), sight(moved), sight(lease.Record{ProfileID: "task"}))
		shows("one approved, one moved, one deleted", map[string]float64{
			"leasehold_profiles available": 2, "leasehold_profiles held": 0, "leasehold_profiles resume_pending": 0, "leasehold_profiles manual_review": 1,
			"leasehold_profile_wait_seconds manual_review": (3*time.Hour - time.Minute).Seconds(),
		})

		w.sees(lease.Sight{Fresh: true})
		shows("the store is back, and has not shown all", map[string]float64{"leasehold_profiles available": 2, "leasehold_profiles manual_review": 1})
		w.sees(sight(free("free", "here")), lease.Sight{Complete: true})
		shows("the store forgot the others", map[string]float64{"leasehold_profiles available": 1, "leasehold_profiles manual_review": 0})
	})
}

// TestProfilesOfAHomeThatIsAwayAreCountedOnce: by the first launcher that is there, or no figure would say that
// they wait.
func TestProfilesOfAHomeThatIsAwayAreCountedOnce(t *testing.T) {
	for _, tt := range []struct {
		other string // another launcher, which is there
		here  bool   // this launcher counts them
	}{{"", true}, {"zulu", true}, {"alfa", false}} {
		t.Run(tt.other, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.patrol()
				keep := func(id string, prev lease.PresenceEntry) {
					k, err := lease.Keep(w.Context(), lease.Presence{LauncherID: id}, prev, 0,
						lease.KeeperOptions{Store: w.store, Timing: timing, Clock: w.clock, Expiring: func(time.Duration) {}})
					if err != nil {
						w.Fatal(err)
					}
					w.Cleanup(k.Stop)
				}
				w.store.do(func() {
					w.store.put(w.far(""))
					w.store.put(lease.Presence{}.Open(lease.Presence{LauncherID: "aaa", TTLSeconds: timing.TTL.Seconds()}, 0, time.Now()).Close("aaa", "aaa", 1, time.Now())) // ended long ago
					w.store.report(lease.Sight{Fresh: true})
					w.store.store(held("p", "far"))
					w.store.store(free("idle", "far"))
					w.store.store(free("mine", "here"))
					w.store.report(lease.Sight{Complete: true})
				})
				if tt.other != "" {
					keep(tt.other, lease.PresenceEntry{})
				}
				// n is how many profiles of the home are counted in the state; its other one is free.
				shows := func(when string, state lease.State, n float64) {
					w.Helper()
					got := figures(w, b.census)
					if free := got["leasehold_profiles available"]; got["leasehold_profiles "+string(state)] != n || free != 1+n {
						w.Errorf("%s: %v are %s and %v are free, want %v and %v", when, got["leasehold_profiles "+string(state)], state, free, n, 1+n)
					}
					if waits := got["leasehold_profile_wait_seconds "+string(state)]; (waits > 0) != (n > 0) {
						w.Errorf("%s: %s for %v s", when, state, waits)
					}
				}
				away := 0.0
				if tt.here {
					away = 1
				}
				synctest.Wait()
				shows("its home is there", lease.Held, 0)
				w.until("quarantined", time.Hour, func() bool { return w.record("p").State == lease.Quarantined })
				time.Sleep(homeTimeout / 2)
				shows("its home is away", lease.Quarantined, away)
				w.until("a person has it", 2*time.Hour, func() bool { return w.record("p").State == lease.ManualReview })
				time.Sleep(time.Minute)
				shows("a person has it", lease.ManualReview, away)
				w.store.do(func() { w.store.away = true })
				time.Sleep(time.Hour)
				shows("the store is away", lease.ManualReview, away)
				w.store.do(func() { w.store.away = false })
				keep("far", w.entry("far"))
				time.Sleep(time.Minute)
				shows("its home is back", lease.ManualReview, 0)
			})
		})
	}
}
