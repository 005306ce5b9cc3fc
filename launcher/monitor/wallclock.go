package monitor

import (
	"math"

	"golang.org/x/sys/unix"
)

// wallOffset is how many ms the wall clock is ahead of the clock of Chrome's events, which is
// the kernel's CLOCK_MONOTONIC. Chrome reports both with each request, but reads them one after
// the other: on a busy host they may be tens of ms apart.
func wallOffset() float64 {
	best, offset := math.MaxFloat64, 0.0
	for range 3 {
		before, wall, after := readClock(unix.CLOCK_MONOTONIC), readClock(unix.CLOCK_REALTIME), readClock(unix.CLOCK_MONOTONIC)
		if after-before < best {
			best, offset = after-before, wall-(before+after)/2
		}
	}
	return offset
}

// readClock reads one of the kernel's clocks, in ms.
func readClock(id int32) float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // it cannot fail with valid arguments
	return float64(ts.Nano()) / 1e6
}
