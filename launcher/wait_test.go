package launcher

import (
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// A lease store that is away for a moment, as while a cluster elects a leader, costs a request with
// wait only time.
func TestARequestWaitsForTheLeaseStore(t *testing.T) {
	l, store := startLauncher(t)
	tries := 0
	store.set(hooks{swap: func(next lease.Record) error {
		if next.State != lease.Held {
			return nil
		}
		if tries++; tries == 1 {
			return lease.ErrUnavailable
		}
		return nil
	}})
	_, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p", Create: true, Wait: api.Duration(time.Minute)})
	if err != nil || tries != 2 {
		t.Fatalf("%v after %d tries", err, tries)
	}
}
