package natskv

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are the publisher's metrics, about what the publisher itself knows.
func (p *publisher) gauges() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_events_unpublished", Help: "Events of this launcher's view that are not on the event stream yet."}, func() float64 {
			n, _ := p.queued()
			return float64(n)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_events_unpublished_wait_seconds", Help: "Age of the oldest of those events; 0 where there is none."}, func() float64 {
			oldest := p.oldest()
			if oldest.IsZero() {
				return 0
			}
			return max(time.Since(oldest).Seconds(), 0)
		}),
	}
}

// oldest is the time of the oldest event in the queue; zero if the queue is empty.
func (p *publisher) oldest() (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range p.queue {
		if len(queue) > 0 && (at.IsZero() || queue[0].At.Before(at)) {
			at = queue[0].At
		}
	}
	return at
}
