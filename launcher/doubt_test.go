package launcher

import (
	"context"
	"errors"
	"testing"

	"leasehold/launcher/api"
)

// While the store may not be the only one, nothing is granted, nothing is made, and the launcher
// is not ready; all of them say why.
func TestNothingIsGrantedByAStoreThatMayNotBeTheOnlyOne(t *testing.T) {
	l, _ := startLauncher(t)
	ctx := t.Context()
	if _, err := l.PutProfile(ctx, "known", api.ProfileSettings{}); err != nil {
		t.Fatal(err)
	}
	l.o.Doubt = func() error {
		return api.Refuse(api.CodeStoreUnavailable, "a and b are not one store").With("reason", "nats_servers")
	}
	for name, try := range map[string]func(context.Context) error{
		"a grant": func(ctx context.Context) error {
			_, err := l.Acquire(ctx, api.Manifest{ProfileID: "known"})
			return err
		},
		"a new profile of a task": func(ctx context.Context) error {
			_, err := l.Acquire(ctx, api.Manifest{ProfileID: "new", Create: true})
			return err
		},
		"a new profile": func(ctx context.Context) error {
			_, err := l.PutProfile(ctx, "new", api.ProfileSettings{})
			return err
		},
		"a clone": func(ctx context.Context) error {
			_, err := l.CloneProfile(ctx, "known", api.ProfileClone{To: "new"})
			return err
		},
		"readiness": l.Ready,
	} {
		var p *api.Problem
		if err := try(ctx); !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable || p.More["reason"] != "nats_servers" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
