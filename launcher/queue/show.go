package queue

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

// show describes the members, in the order of their arrival.
func show(members []member, records []lease.Record) []Shown {
	if len(members) == 0 {
		return nil
	}
	named := map[string][]member{} // by profile
	var open []member              // members that name no profile
	for _, m := range members {
		if m.waiter.ProfileID == "" {
			open = append(open, m)
		} else {
			named[m.waiter.ProfileID] = append(named[m.waiter.ProfileID], m)
		}
	}
	ahead := map[string]int{} // by id
	profiles := map[string][]string{}
	for _, r := range records {
		for i, m := range line(slices.Concat(named[r.ProfileID], open), &r) {
			id := m.waiter.ID
			if before, known := ahead[id]; !known || i < before {
				ahead[id] = i
			}
			profiles[id] = append(profiles[id], r.ProfileID)
		}
	}
	slices.SortFunc(members, func(a, b member) int { return Compare(a.rank, b.rank, true) })
	all := make([]Shown, len(members))
	for i, m := range members {
		all[i] = Shown{Waiter: *m.waiter, Ahead: ahead[m.waiter.ID], Profiles: profiles[m.waiter.ID], Arrived: m.rank.Arrival}
		if m.waiter.ProfileID != "" && len(all[i].Profiles) == 0 {
			all[i].Profiles = []string{m.waiter.ProfileID}
		}
		slices.Sort(all[i].Profiles)
	}
	return all
}

// metrics are about the requests of this launcher that wait, or have waited.
type metrics struct {
	waited *prometheus.HistogramVec // by how it ended
}

func newMetrics(q *Queue, r prometheus.Registerer) metrics {
	m := metrics{waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "leasehold_wait_seconds", Help: "How long requests waited for a lease at this launcher, by how it ended.",
		Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"end"})}
	for _, end := range []string{Granted, Refused, TimedOut, Gone, Elsewhere} {
		m.waited.WithLabelValues(end) // shown from the start
	}
	gauge := func(name, help string, value func(now time.Time) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			q.mu.Lock()
			defer q.mu.Unlock()
			return value(time.Now())
		})
	}
	r.MustRegister(m.waited,
		gauge("leasehold_waiting", "Requests that wait for a lease at this launcher: for a profile, for any that fits, or for a place.", func(time.Time) float64 { return float64(len(q.own)) }),
		gauge("leasehold_waiting_longest_seconds", "How long the one of them has waited that has waited longest; 0 where there is none.", func(now time.Time) float64 {
			var longest time.Duration
			for _, t := range q.own {
				longest = max(longest, now.Sub(t.entered))
			}
			return longest.Seconds()
		}),
		gauge("leasehold_waiting_elsewhere", "Requests that wait at other launchers on the lease store, as far as those live.", func(time.Time) float64 {
			n := 0
			for _, s := range q.others {
				if q.lives(s) {
					n++
				}
			}
			return float64(n)
		}))
	return m
}
