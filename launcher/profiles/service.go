// Package profiles has the records of profiles: it shows them, changes their settings, takes a person's
// review, and lends a profile that nobody uses to whoever has to do something with it.
package profiles

import (
	"context"
	"time"

	"leasehold/launcher/host"
	"leasehold/launcher/snapshotter"
)

// Options are what only the records need.
type Options struct {
	Snapshotter *snapshotter.Snapshotter // nil: there is no profile store
	// Ping returns nil while the lease store can be reached.
	Ping     func(context.Context) error
	Cooldown time.Duration // after a review
	// AdvertiseURL is where workers of other hosts reach this launcher; empty: they do not.
	AdvertiseURL string
	// Over is closed when the launcher ends.
	Over <-chan struct{}
}

// Service has the records. Its methods may be called concurrently.
type Service struct {
	host  *host.Host
	o     Options
	reach reach
}

// New returns the service.
func New(h *host.Host, o Options) *Service { return &Service{host: h, o: o} }
