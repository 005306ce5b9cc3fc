package launcher

import "github.com/prometheus/client_golang/prometheus"

// metrics are what grants count; the rooms below count the rest. Profiles and workers
// are not labels: their number has no bound.
type metrics struct {
	grants   prometheus.Counter
	refusals *prometheus.CounterVec // by code
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		grants:   prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_grants_total", Help: "Leases granted."}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_refusals_total", Help: "Requests for a lease refused, by problem code."}, []string{"code"}),
	}
	r.MustRegister(m.grants, m.refusals)
	return m
}
