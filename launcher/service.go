package launcher

import (
	"context"
	"encoding/json"

	"leasehold/launcher/accounts"
	"leasehold/launcher/api"
	"leasehold/launcher/bundles"
	"leasehold/launcher/grant"
	"leasehold/launcher/people"
	"leasehold/launcher/profiles"
	"leasehold/launcher/travel"
	"leasehold/launcher/workers"
	"leasehold/lease"
)

// products answers api.Service: each method is that of the one product that has it, or of the launcher as
// a whole. It is used as an api.Service only, and nothing is written on it.
type products struct {
	*grantService
	*travelService
	*profilesService
	*accountsService
	*workersService
	*peopleService
	*bundlesService
	whole
}

// Each has another name here, since the fields of a struct cannot all be called Service.
type (
	grantService    = grant.Service
	travelService   = travel.Service
	profilesService = profiles.Service
	accountsService = accounts.Service
	workersService  = workers.Service
	peopleService   = people.Service
	bundlesService  = bundles.Service
)

// whole is what the launcher itself answers.
type whole interface {
	Events(ctx context.Context, after lease.Place) (api.EventFollower, error)
	Ready(ctx context.Context) error
	Version(ctx context.Context) (api.BrowserVersion, error)
	Protocol(ctx context.Context, sessionID string) (json.RawMessage, error)
}
