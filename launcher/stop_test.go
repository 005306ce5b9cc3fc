package launcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheEndDoesNotWaitForWhatHangs: Stop waits for the launcher's work until its context has
// ended, and for what was told to end then only a moment more.
func TestTheEndDoesNotWaitForWhatHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, want time.Duration
		late        bool
	}{
		"nothing hangs":          {0, 0, false},
		"it ends in time":        {59 * time.Second, 59 * time.Second, false},
		"it ends a little later": {62 * time.Second, 62 * time.Second, false},
		"it hangs":               {time.Hour, time.Minute + endTimeout, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Launcher{}
				l.work.Go(func() { time.Sleep(tt.takes) })
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := l.awaitWork(ctx); errors.Is(err, context.DeadlineExceeded) != tt.late || time.Since(begun) != tt.want {
					t.Errorf("after %s: %v", time.Since(begun), err)
				}
				l.work.Wait()
			})
		})
	}
}
