package launcher

import (
	"context"
	"errors"
	"time"

	"leasehold/lease"
)

// clockEvery is how often the host's clock is compared with others.
const clockEvery = 15 * time.Second

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
