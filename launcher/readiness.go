package launcher

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
)

// readyTimeout bounds how long the lease store may take to say that it can be used. readyEvery
// is the time between two checks.
const (
	readyTimeout = 2 * time.Second
	readyEvery   = 5 * time.Second
)

// Ready tells whether a lease could be granted now. What it answers is what a grant answers.
func (l *Launcher) Ready(ctx context.Context) error {
	if l.host.Slots.Draining() {
		return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down")
	}
	if err := l.storeProblem(ctx); err != nil {
		return err
	}
	return l.hereReady()
}

// hereReady says why nothing is granted although the lease store can be used; nil if it is. That
// all places are taken is no reason: they become free by themselves.
func (l *Launcher) hereReady() error {
	if _, err := l.host.Granting(); err != nil {
		return err
	}
	if p := l.host.Slots.Short(); p != nil {
		return p
	}
	return nil
}

// filesReady returns which files, beside those of profiles, a session would lack on this host.
func (o Options) filesReady() error {
	err := o.FileRoots.Ready()
	if err == nil && o.FilesReady != nil {
		err = o.FilesReady()
	}
	return err
}

// storeProblem says why the lease store cannot be used; nil where it can.
func (l *Launcher) storeProblem(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return host.Problem(l.o.Ping(ctx))
}

// storeFound is storeProblem for the check at intervals. What the store has answered since the
// last check says that it can be used: renewals of the presence come about as often.
func (l *Launcher) storeFound(ctx context.Context) error {
	if l.o.Reached != nil && l.o.Reached(readyEvery+time.Second) {
		return nil
	}
	return l.storeProblem(ctx)
}

// readiness is the result of the latest check of whether leases can be granted. It is kept so
// that a scrape of the metrics does not ask the lease store.
type readiness struct {
	clock boottime.Clock

	mu      sync.Mutex
	ready   bool
	storeUp bool
	// downSince is the time since which the lease store cannot be used. It counts only while
	// storeUp is false.
	downSince boottime.Instant
	// said is what was logged about the store last. It starts as true: only a store that cannot
	// be used is worth a line.
	said bool
}

// newReadiness returns one that has not found anything usable yet.
func newReadiness(clock boottime.Clock, metrics prometheus.Registerer) *readiness {
	if clock == nil {
		clock = boottime.Now
	}
	r := &readiness{clock: clock, downSince: clock(), said: true}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return value()
		})
	}
	metrics.MustRegister(
		gauge("leasehold_ready", "1 while leases can be granted, 0 while they cannot, as /readyz says it; looked at every 5 seconds.", func() float64 { return oneIf(r.ready) }),
		gauge("leasehold_lease_store_up", "1 while the lease store in NATS can be used, 0 while it cannot; looked at every 5 seconds.", func() float64 { return oneIf(r.storeUp) }),
		gauge("leasehold_lease_store_down_seconds", "How long the lease store in NATS could not be used; 0 while it can.", func() float64 { return r.down().Seconds() }),
	)
	return r
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// down is how long the lease store has not been usable. The caller has locked the mutex.
func (r *readiness) down() time.Duration {
	if r.storeUp {
		return 0
	}
	return r.clock().Sub(r.downSince)
}

// found takes in the result of a check. news says that it has to be logged; down is how long
// the store had not been usable before.
func (r *readiness) found(storeUp, ready bool) (news bool, down time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news, down = storeUp != r.said, r.down()
	if r.storeUp && !storeUp {
		r.downSince = r.clock()
	}
	r.storeUp, r.ready, r.said = storeUp, ready, storeUp
	return news, down
}

// watchReadiness checks at intervals whether leases can be granted, until the launcher ends.
func (l *Launcher) watchReadiness() {
	every := time.NewTicker(readyEvery)
	defer every.Stop()
	for {
		err := l.storeFound(l.ctx)
		if l.ctx.Err() != nil {
			return
		}
		here := l.hereReady()
		news, down := l.readiness.found(err == nil, err == nil && here == nil && !l.host.Slots.Draining())
		switch {
		case news && err != nil:
			l.o.Log.Warn().Err(err).Msg("the lease store cannot be used: nothing is granted")
		case news:
			l.o.Log.Info().Dur("down", down).Msg("the lease store can be used")
		}
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
	}
}
