//go:build !linux

package boottime

import "golang.org/x/sys/unix"

// clock goes on while a Mac sleeps, too.
const clock = unix.CLOCK_MONOTONIC_RAW
