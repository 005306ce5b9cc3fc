package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestABusyHostIsNoSilentPage: what a page may take is counted in time that the host gives.
func TestABusyHostIsNoSilentPage(t *testing.T) {
	for _, tt := range []struct {
		name string
		busy float64 // the part of the time in which somebody waits for a processor
		want time.Duration
	}{
		{"quiet", 0, 2 * time.Second},
		{"half busy", 0.5, 4 * time.Second},
		{"busy", 1, 16 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				ctx, cancel := patience(t.Context(), 2*time.Second, func() time.Duration { return time.Hour + time.Duration(tt.busy*float64(time.Since(begun))) })
				defer cancel()
				<-ctx.Done()
				if took := time.Since(begun).Round(100 * time.Millisecond); took != tt.want || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
					t.Errorf("it ended after %v, %v; want %v", took, context.Cause(ctx), tt.want)
				}
			})
		})
	}
}

// TestATimeThatCannotBeReadHasNotGone: it is read from a file, and a process may have no more of them to open.
func TestATimeThatCannotBeReadHasNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waited := time.Hour
		clock := newClock(func() time.Duration { return waited })
		begun := clock.Now()
		for _, waited = range []time.Duration{time.Hour, 0, time.Hour} {
			time.Sleep(time.Second)
			clock.Now()
		}
		if gone := clock.Now().Sub(begun); gone != 3*time.Second {
			t.Errorf("%v are gone, want 3s", gone)
		}
	})
}

// TestPatienceHasTheErrorOfADeadline, and that of a caller that ended keeps its own.
func TestPatienceHasTheErrorOfADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := Patiently(t.Context(), time.Second, wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %v", err, context.DeadlineExceeded)
		}
		short, cancel := Patience(t.Context(), time.Second)
		defer cancel()
		if err := Patiently(short, time.Minute, wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of all pages: %v, want %v", err, context.DeadlineExceeded)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Patiently(ctx, time.Second, wait); !errors.Is(err, context.Canceled) {
			t.Errorf("of a caller that ended: %v, want %v", err, context.Canceled)
		}
		asked := errors.New("as the page said")
		if err := Patiently(t.Context(), time.Second, func(context.Context) error { return asked }); !errors.Is(err, asked) {
			t.Errorf("%v, want %v", err, asked)
		}
	})
}
