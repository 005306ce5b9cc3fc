package durable

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestACallThatHangsLetsItsCallerGo: and so do those that find no room any more.
func TestACallThatHangsLetsItsCallerGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, back, over := NewCalls(), make(chan struct{}), errors.New("enough")
		running := 0
		for range 2 * maxCalls {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				synctest.Wait()
				cancel(over)
			}()
			_, err := Call(ctx, calls, func() (int, error) {
				running++
				<-back
				return 1, nil
			})
			if !errors.Is(err, over) {
				t.Fatalf("error %v, want %v", err, over)
			}
		}
		if running != maxCalls {
			t.Errorf("%d calls are under way, want %d", running, maxCalls)
		}
		close(back)
		if got, err := Call(t.Context(), calls, func() (int, error) { return 2, nil }); got != 2 || err != nil {
			t.Errorf("%d, %v, want 2 and no error", got, err)
		}
	})
}
