package launcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// While the store may not be the only one, nothing is granted, nothing is made, and the launcher
// is not ready; all of them say why.
func TestNothingIsGrantedByAStoreThatMayNotBeTheOnlyOne(t *testing.T) {
	var doubted atomic.Bool
	o := optionsIn(t, t.TempDir(), evidence.Keys{})
	o.Doubt = func() error {
		if !doubted.Load() {
			return nil
		}
		return api.Refuse(api.CodeStoreUnavailable, "a and b are not one store").With("reason", "nats_servers")
	}
	o.Chrome = fakechrome.Binary(t)
	l := runIn(t, o)
	ctx := t.Context()
	if _, err := l.PutProfile(ctx, "known", api.ProfileSettings{}); err != nil {
		t.Fatal(err)
	}
	doubted.Store(true)
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
		"new settings": func(ctx context.Context) error {
			_, err := l.PutProfile(ctx, "known", api.ProfileSettings{})
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

// Where the lease store and this host's disk were put back together, the profile store still knows
// which tokens were granted since: none is granted again, and a person learns why.
func TestATokenThatTheProfileStoreHasSeenIsNotGrantedAgain(t *testing.T) {
	r := startReading(t, 2, nil)
	r.snapshot("156.0.0.0", 7, nil)
	if _, err := r.o.Root.Create("acct"); err != nil {
		t.Fatal(err)
	}
	r.profile(func(rec *lease.Record) { rec.Home, rec.Token = "here", 1 })
	if _, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "acct"}); err == nil {
		t.Fatal("a profile whose sessions were forgotten is granted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := r.host.Slots.Changed()
		e, err := r.o.Store.Get(ctx, "acct")
		if err == nil && e.Record.State == lease.ManualReview && e.Record.Token > 7 && e.Record.Reason == lease.ReasonRolledBack {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s, token %d because of %q, %v; want it before a person under a token above 7", e.Record.State, e.Record.Token, e.Record.Reason, err)
		}
	}
}
