package bundles

import (
	"context"
	"time"
)

// UploadUntil uploads waiting evidence to the store at intervals, until ctx ends.
func (bs *Service) UploadUntil(ctx context.Context) {
	every := time.NewTicker(bs.o.UploadEvery)
	defer every.Stop()
	for {
		bs.Upload(ctx)
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// uploadTimeout bounds one round over the spool. Nothing waits for a round, so it is long
// enough for a large bundle and a slow store.
const uploadTimeout = 5 * time.Minute

// Upload uploads the evidence that waits in the spool.
func (bs *Service) Upload(ended context.Context) {
	ctx, cancel := context.WithTimeout(ended, uploadTimeout)
	defer cancel()
	if err := bs.host.Archive.Flush(ctx); err != nil && ended.Err() == nil {
		bs.host.Log.Warn().Err(err).Msg("evidence waits in the spool")
	}
}
