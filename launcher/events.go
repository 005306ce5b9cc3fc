package launcher

import (
	"context"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// Events follows the events of all profiles.
func (l *Launcher) Events(ctx context.Context, after lease.Place) (api.EventFollower, error) {
	f, err := l.events.Follow(principal.Of(ctx).Name, after)
	if err != nil {
		return nil, err
	}
	return f, nil
}
