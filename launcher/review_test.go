package launcher

import (
	"errors"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestAReviewOfWhatChangedIsRefused: who says which event of the profile was the last that they saw decides
// nothing after another one, though the token is the same.
func TestAReviewOfWhatChangedIsRefused(t *testing.T) {
	l, _ := startLauncher(t)
	if _, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{}); err != nil {
		t.Fatal(err)
	}
	e, err := lease.ChangeExisting(t.Context(), l.o.Store, "p", func(e lease.Entry) (lease.Record, error) {
		r := e.Record
		r.State, r.Sequence, r.SuspectedAt = lease.ManualReview, r.Sequence+1, time.Now()
		return r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(sequence uint64) (api.Profile, error) {
		return l.Review(t.Context(), "p", api.ReviewRequest{Write: api.Write{Token: e.Record.Token}, Decision: lease.ReviewKeep, Reviewer: "ann", Sequence: sequence})
	}
	kept, err := decide(e.Record.Sequence)
	if err != nil || kept.Sequence == e.Record.Sequence {
		t.Fatalf("%+v, %v", kept, err)
	}
	var p *api.Problem
	if _, err := decide(e.Record.Sequence); !errors.As(err, &p) || p.Code != api.CodeStaleToken {
		t.Errorf("sent twice: %v, want %s", err, api.CodeStaleToken)
	}
	if _, err := decide(0); err != nil {
		t.Errorf("without the number of an event: %v", err)
	}
}
