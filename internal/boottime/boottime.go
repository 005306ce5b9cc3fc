// Package boottime reads the clock on which lease deadlines are counted: the
// kernel's CLOCK_BOOTTIME. Go's own monotonic clock stops while the host sleeps, so
// after a suspend a holder would believe that its lease has not expired.
package boottime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a reading of the boot-time clock: nanoseconds since this host
// started, including the time that it slept. It means nothing on another host or
// after a reboot.
type Instant int64

// Clock returns the current instant. Code that keeps deadlines takes one as a
// parameter, so that tests can set the time.
type Clock func() Instant

// Now reads the host's clock. It is a Clock.
func Now() Instant {
	var ts unix.Timespec
	// The clock exists on every kernel that Go runs on; the call cannot fail with valid
	// arguments.
	_ = unix.ClockGettime(clock, &ts)
	return Instant(ts.Nano())
}

// Monotonic reads the clock that stops while the host sleeps (CLOCK_MONOTONIC), which the times of
// Chrome's events are on.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail with valid arguments
	return time.Duration(ts.Nano())
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how much later i is than earlier.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// ID identifies this boot of the host (/proc/sys/kernel/random/boot_id). It is empty
// if the kernel does not tell. Two readings differ only if the host was restarted in
// between.
func ID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
