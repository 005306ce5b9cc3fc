package launcher

import (
	"context"
	"errors"
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
	// clockEvery is how often the host's clock is compared with others.
	clockEvery = 15 * time.Second
)

// watchClock says in the log when this host's clock and those of others begin to disagree, and when
// they agree again, until the launcher ends.
func (l *Launcher) watchClock() {
	every := time.NewTicker(clockEvery)
	defer every.Stop()
	for disagree := false; l.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(l.ctx, clockEvery)
		_, err := l.o.Now(ctx)
		cancel()
		switch wrong := (*lease.ClockError)(nil); {
		case errors.As(err, &wrong) && !disagree:
			disagree = true
			l.o.Log.Error().Err(err).Msg("the clocks disagree")
		case err == nil && disagree:
			disagree = false
			l.o.Log.Info().Msg("the clocks agree again")
		}
		select {
		case <-every.C:
		case <-l.ctx.Done():
		}
	}
}

// retention removes evidence that is no longer kept, at once and then every hour, until the
// launcher ends.
func (l *Launcher) retention() {
	for l.ctx.Err() == nil {
		pause := retainEvery
		if !l.retain() {
			pause = retainAgain
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
	}
}

// retain is one round. It returns false if this launcher may not act: nothing could be removed then,
// and an anchor that says otherwise would wait in the spool.
func (l *Launcher) retain() bool {
	if l.presence.MayAct(lease.Record{}) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(l.ctx, retainTimeout)
	defer cancel()
	now, err := l.o.Now(ctx)
	if err != nil {
		if l.ctx.Err() == nil {
			l.o.Log.Warn().Err(err).Msg("no evidence is removed")
		}
		return true
	}
	done, err := l.o.Archive.Retain(ctx, l.o.Bundles, l.o.ID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := l.o.Store.List(ctx)
		return needs(l.o.ID, entries), err
	}, now)
	if err != nil && l.ctx.Err() == nil {
		l.o.Log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		l.o.Log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
	}
	return true
}

// needs are the bundles that records name, and the sessions that are not over. In recovery and
// in review somebody reads the bundle, and in every other state the next bundle's chain refers
// to it. The next bundles of the profiles whose home is here are made by this launcher.
func needs(launcherID string, entries []lease.Entry) evidence.Needs {
	n := evidence.Needs{Profiles: map[string]bool{}, Evidence: map[string]bool{}, Sessions: map[string]bool{}, Heads: map[string]evidence.Link{}}
	for _, e := range entries {
		if e.Record.Home == launcherID {
			n.Heads[e.Record.ProfileID] = evidence.Link{EvidenceID: e.Record.EvidenceID, SHA256: e.Record.EvidenceSHA256}
		}
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
