package bundles

import (
	"context"
	"time"

	"leasehold/evidence"
	"leasehold/lease"
)

// How often retention is applied, how long one round may take, and how soon a round is tried that
// this launcher may not make yet.
const (
	retainEvery   = time.Hour
	retainTimeout = 30 * time.Minute
	retainAgain   = time.Minute
)

// RetainUntil removes evidence that is no longer kept, at once and then every hour, until ctx ends.
func (bs *Service) RetainUntil(ctx context.Context) {
	for ctx.Err() == nil {
		pause := retainEvery
		if !bs.Retain(ctx) {
			pause = retainAgain
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Retain is one round. It returns false if this launcher may not act: nothing could be removed then,
// and an anchor that says otherwise would wait in the spool.
func (bs *Service) Retain(ended context.Context) bool {
	if bs.host.Presence.MayAct(lease.Record{}) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ended, retainTimeout)
	defer cancel()
	now, err := bs.o.Now(ctx)
	if err != nil {
		if ended.Err() == nil {
			bs.host.Log.Warn().Err(err).Msg("no evidence is removed")
		}
		return true
	}
	done, err := bs.host.Archive.Retain(ctx, bs.o.Keep, bs.host.ID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := bs.host.Store.List(ctx)
		return needs(bs.host.ID, entries), err
	}, now)
	if err != nil && ended.Err() == nil {
		bs.host.Log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		bs.host.Log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
	}
	return true
}

// needs are the bundles that records name, and the sessions that are not over. In recovery and
// in review somebody reads the bundle, and in every other state the next bundle's chain refers
// to it. The next bundles of the profiles whose home is here are made by this launcher.
func needs(launcherID string, entries []lease.Entry) evidence.Needs {
	n := evidence.Needs{Profiles: map[string]bool{}, Evidence: map[string]string{}, Sessions: map[string]bool{}, Heads: map[string]evidence.Link{}}
	for _, e := range entries {
		if e.Record.Home == launcherID {
			n.Heads[e.Record.ProfileID] = evidence.Link{EvidenceID: e.Record.EvidenceID, SHA256: e.Record.EvidenceSHA256}
		}
		n.Profiles[e.Record.ProfileID] = true
		if e.Record.EvidenceID != "" {
			n.Evidence[e.Record.EvidenceID] = e.Record.ProfileID
		}
		for _, run := range e.Record.IncidentRuns() {
			if run.EvidenceID != "" { // it was lost while another one went on
				n.Evidence[run.EvidenceID] = e.Record.ProfileID
			}
		}
		if hand := e.Record.ByHand; hand != nil && hand.Review != nil {
			n.Evidence[hand.Review.EvidenceID] = e.Record.ProfileID
		}
		if !e.Record.State.Free() {
			for _, sessionID := range e.Record.Sessions() {
				n.Sessions[sessionID] = true
			}
		}
	}
	return n
}
