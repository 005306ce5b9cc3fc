//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

// newClock makes what says how late it is to everything that removes old things.
func (s *service) newClock() {
	clock := &lease.Clock{LauncherID: s.launcherID, Store: s.leases, Shared: s.config.NATSURL != ""}
	wrong := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasehold_clock_wrong", Help: "1 while this host's clock is not believed, so that nothing is removed for its age; 0 otherwise.",
	})
	s.metrics.MustRegister(wrong)
	s.now = func(ctx context.Context) (time.Time, error) {
		now, err := clock.Now(ctx)
		if disagree := (*lease.ClockError)(nil); errors.As(err, &disagree) {
			wrong.Set(1)
		} else if err == nil {
			wrong.Set(0)
		}
		return now, err
	}
}
