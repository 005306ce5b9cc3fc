package adopt

import (
	"errors"
	"testing"
	"time"

	"leasehold/lease"
)

// What cannot be done is tried again after pauses that become longer, up to half a minute, and the
// log has a line only when the error is another one. A profile with another token, or one that was
// looked after meanwhile, does not wait.
func TestWhatFailsIsTriedAfterAPause(t *testing.T) {
	var tries retries
	now, full, readOnly := time.Now(), errors.New("the disk is full"), errors.New("read-only file system")
	r := lease.Record{ProfileID: "p", Token: 2}
	for i, tt := range []struct {
		err   error
		news  bool
		pause time.Duration
	}{
		{full, true, time.Second}, {full, false, 2 * time.Second}, {readOnly, true, 4 * time.Second}, {readOnly, false, 8 * time.Second},
		{readOnly, false, 16 * time.Second}, {readOnly, false, 30 * time.Second}, {readOnly, false, 30 * time.Second}, {nil, false, 0}, {readOnly, true, time.Second},
	} {
		if !tries.due(r, now) {
			t.Fatalf("try %d is not made", i)
		}
		if news := tries.ended(r, tt.err, now); news != tt.news {
			t.Errorf("try %d is logged: %v, want %v", i, news, tt.news)
		}
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
