// Package travel has the ways in which the directory of a profile comes to this host, and leaves it: it is
// made, imported, cloned, restored from a snapshot, moved from another host, given to one, archived.
package travel

import (
	"context"
	"sync"

	"leasehold/launcher/host"
	"leasehold/launcher/profiles"
	"leasehold/launcher/roster"
	"leasehold/lease"
)

// Options are what only travel needs.
type Options struct {
	Roster *roster.Roster
	Timing lease.Timing
	// Chrome returns the version of this host's Chrome, as it is now.
	Chrome func(context.Context) (string, error)
	// MinFreeDisk is how many bytes have to stay free on the profiles' disk; zero: no bound.
	MinFreeDisk uint64
	// ImportRoots are the directories below which user-data-dirs may be imported from.
	ImportRoots []string
}

// Service makes, moves and archives the directories of profiles. Its methods may be called
// concurrently.
type Service struct {
	host     *host.Host
	profiles *profiles.Service
	o        Options
	ctx      context.Context // of what is brought in line in the background
	work     *sync.WaitGroup
}

// New returns the service. What it does in the background ends with ctx, and is counted in work.
func New(ctx context.Context, work *sync.WaitGroup, h *host.Host, records *profiles.Service, o Options) *Service {
	return &Service{host: h, profiles: records, o: o, ctx: ctx, work: work}
}
