package adopt

import (
	"errors"
	"testing"
	"time"

	"leasehold/lease"
)

// What cannot be done is tried again after pauses that become longer, up to half a minute. A profile
// with another token, or one that was looked after meanwhile, does not wait.
func TestWhatFailsIsTriedAfterAPause(t *testing.T) {
	var tries retries
	now, full := time.Now(), errors.New("the disk is full")
	r := lease.Record{ProfileID: "p", Token: 2}
	for i, tt := range []struct {
		err   error
		pause time.Duration
	}{
		{full, time.Second}, {full, 2 * time.Second}, {full, 4 * time.Second}, {full, 8 * time.Second}, {full, 16 * time.Second},
		{full, 30 * time.Second}, {full, 30 * time.Second}, {nil, 0}, {full, time.Second},
	} {
		if !tries.due(r, now) {
			t.Fatalf("try %d is not made", i)
		}
		tries.ended(r, tt.err, now)
		if tt.pause > 0 && tries.due(r, now.Add(tt.pause-1)) {
			t.Errorf("after try %d the next one is made before %v have passed", i, tt.pause)
		}
		now = now.Add(tt.pause)
	}
	now = now.Add(-time.Millisecond)
	for _, tt := range []struct {
		profile string
		token   lease.Token
		due     bool
	}{{"p", 2, false}, {"p", 3, true}, {"q", 2, true}} {
		if got := tries.due(lease.Record{ProfileID: tt.profile, Token: tt.token}, now); got != tt.due {
			t.Errorf("%s with token %d may be tried: %v, want %v", tt.profile, tt.token, got, tt.due)
		}
	}
}
