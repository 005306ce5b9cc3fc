package launcher

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the launcher counts. Profiles and workers are not labels:
// their number has no bound.
type metrics struct {
	grants      prometheus.Counter
	refusals    *prometheus.CounterVec // by code
	sessions    prometheus.Gauge
	connections prometheus.Gauge
	ends        *prometheus.CounterVec // by reason
	lateWrites  prometheus.Counter
	adoptions   prometheus.Counter
	pictures    *prometheus.CounterVec // by what became of them
	handovers   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		grants:      prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_grants_total", Help: "Leases granted."}),
		refusals:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_refusals_total", Help: "Requests for a lease refused, by problem code."}, []string{"code"}),
		sessions:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_sessions", Help: "Sessions alive, those in recovery included."}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_connections", Help: "Websocket connections of workers."}),
		ends:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_session_ends_total", Help: "Sessions that ended, by how."}, []string{"how"}),
		lateWrites:  prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_late_writes_total", Help: "Writes refused for a stale token."}),
		adoptions:   prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_adoptions_total", Help: "Sessions of the launcher before that went on in this one."}),
		pictures:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_pictures_total", Help: "Pictures of living sessions, by what became of them."}, []string{"how"}),
		handovers:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_warm_handover_seconds", Help: "Time to grant a warm browser to the next task, from its request's turn.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}),
	}
	r.MustRegister(m.grants, m.refusals, m.sessions, m.connections, m.ends, m.lateWrites, m.adoptions, m.pictures, m.handovers)
	return m
}
