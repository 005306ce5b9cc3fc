package recovery

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/lease"
)

// captureTimeout bounds what the witnesses of a bundle may take. Each has bounds of its own, which
// are shorter, but for a host that gives a browser next to no processor time.
const captureTimeout = time.Minute

// Capture is everything that a bundle is made from.
type Capture struct {
	// Record is the lease as it was granted, or as it is now: it names the bundle before this
	// one.
	Record  lease.Record
	Path    string      // of the profile's directory
	Token   lease.Token // the worker's
	Reason  string
	Outcome string    // what the worker said about its task, if anything
	SeenAt  time.Time // the worker's last sign of life
	Journal []checkpoint.Entry
	// Commands is the part with the last CDP commands; nil: they are not known.
	Commands []byte
	Browser  Browser // nil: there is none to ask
	Shared   bool    // other runs are using the browser
	Final    bool    // the worker does not come back
}

// Capture fills a bundle with the present state of everything, before anything is changed. What
// could not be captured is named in the bundle. If no bundle can be written at all, it is
// logged, and the result is nil.
func (r *Recoverer) Capture(c Capture, log zerolog.Logger) *evidence.Bundle {
	now := time.Now().UTC()
	sum := checkpoint.Summarize(c.Journal)
	m := r.Manifest(c.Record, now)
	m.LeaseToken, m.LastHeartbeatAt, m.DetectedStaleAt = uint64(c.Token), c.SeenAt.UTC(), now
	m.LastKnownStep, m.LastKnownURL = sum.LastStep, sum.LastURL
	m.ProfileDir, m.RecoveryReason, m.Outcome = c.Path, c.Reason, c.Outcome
	ctx, cancel := context.WithTimeout(context.Background(), captureTimeout)
	defer cancel()
	b, err := r.o.Archive.New(m)
	if err != nil {
		log.Error().Err(err).Msg("evidence cannot be written")
		return nil
	}
	var adding sync.WaitGroup
	for _, w := range r.o.Witnesses(c.Browser) {
		adding.Go(func() { w.Add(ctx, c, Parts{b, log}) })
	}
	adding.Wait()
	return b
}
