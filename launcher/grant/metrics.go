package grant

import (
	"github.com/prometheus/client_golang/prometheus"

	"leasehold/launcher/proxies"
)

// metrics are what grants count; the packages below count the rest. Profiles and workers are
// not labels, since their number has no bound.
type metrics struct {
	grants   prometheus.Counter
	refusals *prometheus.CounterVec // by code
	reads    prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, proxies *proxies.Set) metrics {
	m := metrics{
		grants:   prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_grants_total", Help: "Leases granted."}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_refusals_total", Help: "Requests for a lease refused, by problem code."}, []string{"code"}),
		reads:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_reader_start_seconds", Help: "Time to begin an ephemeral session, from when it has its place.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 12)}),
	}
	upToDate := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_proxies_up_to_date", Help: "0 while the file of --proxies has a version that cannot be used, or a change that waits for the next start; otherwise 1."}, func() float64 {
		if proxies.UpToDate() {
			return 1
		}
		return 0
	})
	r.MustRegister(m.grants, m.refusals, m.reads, upToDate)
	return m
}
