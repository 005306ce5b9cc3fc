package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/evidence"
	"leasehold/lease"
)

// How often retention is applied, and how long one round may take.
const (
	retainEvery   = time.Hour
	retainTimeout = 30 * time.Minute
)

// startRetention removes evidence that is no longer kept, at once and then every hour,
// until the returned function is called.
func (s *service) startRetention() (stop func() error) {
	return background(func(ctx context.Context) {
		for ctx.Err() == nil {
			s.applyRetention(ctx)
			sleep(ctx, retainEvery)
		}
	})
}

// applyRetention is one round.
func (s *service) applyRetention(ctx context.Context) {
	round, cancel := context.WithTimeout(ctx, retainTimeout)
	defer cancel()
	now, err := s.now(round)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn().Err(err).Msg("no evidence is removed")
		}
		return
	}
	if err := s.oweStrays(round); err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("evidence that nothing names is not looked for: it is tried again")
	}
	limits := evidence.Retention{MaxAge: s.config.EvidenceMaxAge, MaxBytes: int64(s.config.EvidenceMax)}
	done, err := s.archive.Retain(round, limits, s.launcherID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := s.leases.List(ctx)
		return needs(entries), err
	}, now)
	if err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		s.log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
	}
}

// newClock makes what says how late it is to everything that removes old things.
func (s *service) newClock() {
	clock := &lease.Clock{LauncherID: s.launcherID, Store: s.leases, Shared: s.config.NATSURL != ""}
	wrong := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasehold_clock_wrong", Help: "1 if this host's clock was not believed when it was last needed to remove something old, so that nothing was removed for its age; 0 otherwise.",
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

// oweStrays makes the next bundles of the profiles whose home is here name the bundles that
// nothing names.
func (s *service) oweStrays(ctx context.Context) error {
	entries, err := s.leases.List(ctx)
	if err != nil {
		return err
	}
	heads := map[string]evidence.Link{}
	for _, e := range entries {
		if e.Record.Home == s.launcherID {
			heads[e.Record.ProfileID] = evidence.Link{EvidenceID: e.Record.EvidenceID, SHA256: e.Record.EvidenceSHA256}
		}
	}
	return s.archive.OweStrays(ctx, heads)
}

// needs are the bundles that records name, and the sessions that are not over. In recovery and
// in review somebody reads the bundle, and in every other state the next bundle's chain refers
// to it.
func needs(entries []lease.Entry) evidence.Needs {
	n := evidence.Needs{Profiles: map[string]bool{}, Evidence: map[string]bool{}, Sessions: map[string]bool{}}
	for _, e := range entries {
		n.Profiles[e.Record.ProfileID] = true
		if e.Record.EvidenceID != "" {
			n.Evidence[e.Record.EvidenceID] = true
		}
		if hand := e.Record.ByHand; hand != nil && hand.Review != nil {
			n.Evidence[hand.Review.EvidenceID] = true
		}
		if !e.Record.State.Free() {
			for _, sessionID := range e.Record.Sessions() {
				n.Sessions[sessionID] = true
			}
		}
	}
	return n
}
