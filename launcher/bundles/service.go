// Package bundles has the evidence about profiles: it shows and exports the bundles, uploads those that
// wait on this host's disk, and removes those that are no longer kept.
package bundles

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/evidence"
	"leasehold/launcher/host"
	"leasehold/launcher/profiles"
)

// Options are what only the evidence needs.
type Options struct {
	Keep evidence.Retention // says which evidence is kept
	// Now is launcher.Options.Now.
	Now         func(context.Context) (time.Time, error)
	UploadEvery time.Duration
	Metrics     prometheus.Registerer
}

// Service has the bundles. Its methods may be called concurrently.
type Service struct {
	host     *host.Host
	profiles *profiles.Service
	o        Options
	exports  chan struct{} // holds one element for each export under way
}

// New returns the service.
func New(h *host.Host, records *profiles.Service, o Options) *Service {
	o.Metrics.MustRegister(newBacklog(h.Archive))
	return &Service{host: h, profiles: records, o: o, exports: make(chan struct{}, maxExports)}
}
