package capture

import (
	"context"
	"errors"
	"time"

	"leasehold/internal/procfs"
)

const (
	// atMost is how many times its time a busy host may give a page.
	atMost = 8
	// lookAgain is the shortest pause between two looks at how busy the host is.
	lookAgain = 10 * time.Millisecond
)

// Patience is a context that ends with context.DeadlineExceeded after d, as its cause. Time for
// which programs of this host waited for a processor does not count: a page that gets none cannot
// answer, and is not to blame for it. After eight times d it ends in any case.
func Patience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return patience(ctx, d, procfs.WaitedForCPU)
}

func patience(ctx context.Context, d time.Duration, waited func() time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	clock := newClock(waited)
	end := clock.Now().Add(d)
	var look func()
	look = func() {
		left := end.Sub(clock.Now())
		if left <= 0 {
			cancel(context.DeadlineExceeded)
			return
		}
		timer := time.AfterFunc(max(left, lookAgain), look)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	timer := time.AfterFunc(d, look)
	context.AfterFunc(ctx, func() { timer.Stop() })
	return ctx, func() { cancel(context.Canceled) }
}

// Patiently calls Chrome, for as long as Patience has. If that, or the patience of ctx, ends before the
// answer, the error is context.DeadlineExceeded.
func Patiently(ctx context.Context, d time.Duration, call func(context.Context) error) error {
	patient, cancel := Patience(ctx, d)
	defer cancel()
	err := call(patient)
	if cause := context.Cause(patient); err != nil && errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return err
}

// Clock counts time as a busy host gives it: by the time for which no program waited for a processor, and by
// an eighth of all time at least. One goroutine at a time reads it.
type Clock struct {
	waited func() time.Duration
	real   time.Time // when it was read last
	before time.Duration
	now    time.Time
}

// NewClock is a clock that begins with the time of the host.
func NewClock() *Clock { return newClock(procfs.WaitedForCPU) }

func newClock(waited func() time.Duration) *Clock {
	return &Clock{waited, time.Now(), waited(), time.Now()}
}

// Now reads the clock.
func (c *Clock) Now() time.Time {
	real, waited := time.Now(), max(c.before, c.waited()) // it is zero where it cannot be read
	gone := real.Sub(c.real)
	c.now = c.now.Add(max(gone-(waited-c.before), gone/atMost))
	c.real, c.before = real, waited
	return c.now
}
