package cluster

import (
	"testing"
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
