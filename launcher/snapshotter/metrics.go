package snapshotter

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// How an attempt at a snapshot ended, as metrics name it.
const (
	resultMade      = "made"
	resultAbandoned = "abandoned" // the profile was wanted
	resultRefused   = "refused"   // a holder with a higher token was first
	resultFailed    = "failed"
)

type metrics struct {
	results *prometheus.CounterVec
	stored  prometheus.Counter
	last    *atomic.Int64 // ns since 1970
}

func newMetrics(s *Snapshotter, r prometheus.Registerer) metrics {
	m := metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_snapshots_total", Help: "Attempts at a snapshot of a profile, by how they ended."}, []string{"result"}),
		stored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_snapshot_stored_bytes_total", Help: "Bytes sent to the profile store, compressed and encrypted."}),
		last:    &atomic.Int64{},
	}
	for _, result := range []string{resultMade, resultAbandoned, resultRefused, resultFailed} {
		m.results.WithLabelValues(result)
	}
	r.MustRegister(m.results, m.stored, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasehold_snapshot_age_seconds", Help: "Age of the newest snapshot that this launcher made since its start; 0 before the first.",
	}, func() float64 {
		if at := m.last.Load(); at != 0 {
			return max(time.Since(time.Unix(0, at)).Seconds(), 0)
		}
		return 0
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasehold_snapshot_wait_seconds", Help: "Time since the oldest session that ended in order here and has no snapshot yet; 0 where there is none.",
	}, func() float64 { return waiting(s.o.Known(), s.due, time.Now()).Seconds() }))
	return m
}

// waiting is how long the profile that has waited longest has been waiting for a snapshot. A
// profile that was never used does not say since when it exists, and is not counted.
func waiting(known []lease.Record, due func(lease.Record) bool, now time.Time) time.Duration {
	var longest time.Duration
	for _, r := range known {
		if due(r) && !r.ReleasedAt.IsZero() {
			longest = max(longest, now.Sub(r.ReleasedAt))
		}
	}
	return longest
}

func (m metrics) made(s snapshots.Snapshot) {
	m.results.WithLabelValues(resultMade).Inc()
	m.stored.Add(float64(s.Stored))
	m.last.Store(s.CreatedAt.UnixNano())
}
