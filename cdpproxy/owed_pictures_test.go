package cdpproxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestOwedPicturesAreAwaitedOnce: a page that does not draw is waited for as long as is said,
// and not again.
func TestOwedPicturesAreAwaitedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p owedPictures
		p.asked(inFlight{"S", 1})
		for _, want := range []time.Duration{time.Second, 0} {
			begun := time.Now()
			p.await(t.Context(), time.Second, nil)
			if took := time.Since(begun); took != want {
				t.Errorf("waited for %v, want %v", took, want)
			}
		}
		p.asked(inFlight{"S", 2})
		p.settled(inFlight{"S", 2})
		if p.count.Load() != 1 {
			t.Errorf("%d are owed, want the first one", p.count.Load())
		}
		for id := range int64(2 * maxNoted) {
			p.asked(inFlight{"T", id})
		}
		if n := len(p.owed); n > maxNoted {
			t.Errorf("%d are kept", n)
		}
	})
}
