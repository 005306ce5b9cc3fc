package launcher

import (
	"context"
	"time"
)

// uploads uploads waiting evidence to the store at intervals, until the launcher ends.
func (l *Launcher) uploads() {
	every := time.NewTicker(max(l.o.Timing.Renewal(), time.Second))
	defer every.Stop()
	for {
		l.upload()
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// uploadTimeout bounds one round over the spool. Nothing waits for a round, so it is long
// enough for a large bundle and a slow store.
const uploadTimeout = 5 * time.Minute

// upload uploads the evidence that waits in the spool.
func (l *Launcher) upload() {
	ctx, cancel := context.WithTimeout(l.ctx, uploadTimeout)
	defer cancel()
	if err := l.o.Archive.Flush(ctx); err != nil && l.ctx.Err() == nil {
		l.o.Log.Warn().Err(err).Msg("evidence waits in the spool")
	}
}
