// Package boottime reads the clock that lease deadlines are counted on: the
// kernel's CLOCK_BOOTTIME. Go's own monotonic clock stands still while the host
// sleeps, so a holder that wakes from suspend would believe its lease is live.
package boottime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a reading of the boot-time clock: nanoseconds since this host
// started, time asleep included. It means nothing on another host or after a
// reboot.
type Instant int64

// Clock returns the current instant. Code that keeps deadlines takes one, so
// that tests can turn it by hand.
type Clock func() Instant

// Now reads the host's clock. It is a Clock.
func Now() Instant {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists on every Linux that Go runs on; the call cannot
	// fail with valid arguments.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return Instant(ts.Nano())
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how much later i is than earlier.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// ID names this boot of the host (/proc/sys/kernel/random/boot_id), or is empty
// where the kernel does not tell. Two readings differ only if the host was
// started in between.
func ID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
