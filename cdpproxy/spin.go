package cdpproxy

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop that waits for a reply polls again and again for a while before it lets the kernel
// wake it. That is worth it only if replies really come that fast: after some spins without
// success, most are skipped.
const (
	spinFor      = 400 * time.Microsecond // how long one spin lasts
	spinInFlight = 2                      // most commands in flight: with more, throughput matters
	spinTrust    = 8                      // the highest trust of a spinner
	spinProbe    = 16                     // without trust, one in this many spins is tried
)

// spinning is how many loops of this process spin now.
var spinning atomic.Int32

// maxSpinning is how many loops of this process may spin at a time. With more, the browsers
// would not get a processor.
var maxSpinning = int32(max(1, runtime.GOMAXPROCS(0)-1))

// spinner decides whether to spin by how often that was worth it lately.
type spinner struct {
	trust   int // 0 to spinTrust: spins that paid off raise it, spins in vain lower it
	skipped int // since the last spin that was tried without trust
}

// wait spins if that may be worth it, and tells whether a descriptor is ready.
func (s *spinner) wait(fds []unix.PollFd) bool {
	if s.trust <= 0 {
		if s.skipped++; s.skipped < spinProbe {
			return false
		}
		s.skipped = 0
	}
	defer spinning.Add(-1)
	if spinning.Add(1) > maxSpinning {
		return false
	}
	for start := time.Now(); ; {
		if pollNow(fds) {
			s.trust = min(s.trust+1, spinTrust)
			return true
		}
		// Chrome may need this processor for the reply.
		yield()
		if time.Since(start) > spinFor {
			s.trust = max(s.trust-2, 0)
			return false
		}
	}
}

// pollNow polls the descriptors without waiting, and tells whether one is ready. It
// does not notify Go's scheduler of the system call, which would take longer than the
// call itself.
func pollNow(fds []unix.PollFd) bool {
	var zero unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return errno == 0 && n > 0
}

// yield gives the processor to another thread that can run.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
