// Package grant decides who gets a profile, and grants it: a lease with a browser, or an ephemeral
// session on a copy of a snapshot.
package grant

import (
	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/tracing"
	"leasehold/launcher/host"
	"leasehold/launcher/profiles"
	"leasehold/launcher/readers"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/travel"
)

// Options are what only grants need.
type Options struct {
	Files   sessionfile.Dir // has the journals of lost sessions
	Readers *readers.Room
	Tracer  *tracing.Tracer // nil: no spans are made
	Metrics prometheus.Registerer
}

// Service grants the profiles of a host. Its methods may be called concurrently.
type Service struct {
	host     *host.Host
	profiles *profiles.Service
	travel   *travel.Service
	o        Options
	metrics  metrics
}

// New returns the service.
func New(h *host.Host, records *profiles.Service, moves *travel.Service, o Options) *Service {
	return &Service{host: h, profiles: records, travel: moves, o: o, metrics: newMetrics(o.Metrics, h.Proxies)}
}
