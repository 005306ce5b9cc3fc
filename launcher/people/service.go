// Package people lets persons into the loop: they watch a session, are asked by its worker, take it over,
// have a profile by hand, and sign its account in by a link.
package people

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/launcher/accounts"
	"leasehold/launcher/grant"
	"leasehold/launcher/host"
	"leasehold/launcher/profiles"
	"leasehold/launcher/view"
	"leasehold/launcher/workers"
)

// Service is for the persons at a host's sessions. Its methods may be called concurrently.
type Service struct {
	host     *host.Host
	profiles *profiles.Service
	grants   *grant.Service
	workers  *workers.Service
	accounts *accounts.Service
	gallery  *view.Gallery // has the views of living sessions
}

// New returns the service. What it does in the background ends with ctx, and is counted in work.
func New(ctx context.Context, work *sync.WaitGroup, h *host.Host, records *profiles.Service, grants *grant.Service, sessions *workers.Service, known *accounts.Service, metrics prometheus.Registerer) *Service {
	p := &Service{host: h, profiles: records, grants: grants, workers: sessions, accounts: known}
	p.gallery = view.New(ctx, work, view.Options{Ended: p.ended, Log: h.Log, Metrics: metrics})
	return p
}
