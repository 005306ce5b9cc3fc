package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/lease"
)

// How often retention is applied, and how long one round may take.
const (
	retainEvery   = time.Hour
	retainTimeout = 30 * time.Minute
)

// startRetention removes evidence that is no longer kept, at once and every hour,
// until the returned function is called.
func startRetention(c RunConfig, launcherID string, archive *evidence.Archive, records lease.Store, log zerolog.Logger) func() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	limits := evidence.Retention{MaxAge: c.EvidenceMaxAge, MaxBytes: int64(c.EvidenceMax)}
	go func() {
		defer close(done)
		for {
			retain(ctx, limits, launcherID, archive, records, log)
			select {
			case <-time.After(retainEvery):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

func retain(ctx context.Context, limits evidence.Retention, launcherID string, archive *evidence.Archive, records lease.Store, log zerolog.Logger) {
	round, cancel := context.WithTimeout(ctx, retainTimeout)
	defer cancel()
	done, err := archive.Retain(round, limits, launcherID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := records.List(ctx)
		return needs(entries), err
	}, time.Now())
	if err != nil && ctx.Err() == nil {
		log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
	}
}

// needs are the bundles that records name: in recovery and in review because
// somebody reads them, in every other state because the next bundle's chain
// begins there.
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
