package bundles

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/evidence"
)

// backlog is a collector of metrics about the evidence that is not in the store yet.
type backlog struct {
	archive              *evidence.Archive
	bundles, bytes, ages *prometheus.Desc
}

func newBacklog(a *evidence.Archive) *backlog {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &backlog{
		archive: a,
		bundles: desc("leasehold_evidence_spool_bundles", "Sealed bundles on the host's own disk that the evidence store does not have yet."),
		bytes:   desc("leasehold_evidence_spool_bytes", "Size of those bundles."),
		ages:    desc("leasehold_evidence_spool_wait_seconds", "Age of the oldest of those bundles; 0 where there is none."),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(to chan<- *prometheus.Desc) {
	to <- b.bundles
	to <- b.bytes
	to <- b.ages
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(to chan<- prometheus.Metric) {
	w, err := b.archive.Waiting()
	if err != nil {
		to <- prometheus.NewInvalidMetric(b.bundles, err)
		return
	}
	age := 0.0
	if !w.Oldest.IsZero() {
		age = max(time.Since(w.Oldest).Seconds(), 0)
	}
	to <- prometheus.MustNewConstMetric(b.bundles, prometheus.GaugeValue, float64(w.Bundles))
	to <- prometheus.MustNewConstMetric(b.bytes, prometheus.GaugeValue, float64(w.Bytes))
	to <- prometheus.MustNewConstMetric(b.ages, prometheus.GaugeValue, age)
}
