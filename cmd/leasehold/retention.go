package main

import (
	"context"
	"time"

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
	if err := s.oweStrays(round); err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("evidence that nothing names is not looked for: it is tried again")
	}
	limits := evidence.Retention{MaxAge: s.config.EvidenceMaxAge, MaxBytes: int64(s.config.EvidenceMax)}
	done, err := s.archive.Retain(round, limits, s.launcherID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := s.leases.List(ctx)
		return needs(entries), err
	}, time.Now())
	if err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		s.log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
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
