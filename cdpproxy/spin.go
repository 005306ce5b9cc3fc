package cdpproxy

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How long a loop asks again and again before it lets the kernel wake it. That
// is only worth it while an answer is awaited, and only if answers do come that
// fast: after spins in vain, most are left out.
const (
	spinFor     = 400 * time.Microsecond
	spinAwaited = 2 // with more in flight, throughput counts
	spinTrust   = 8
	spinProbe   = 16
)

// spinning is how many loops of this process spin, of at most maxSpinning: with
// more the browsers would not get a processor.
var spinning atomic.Int32

var maxSpinning = int32(max(1, runtime.GOMAXPROCS(0)-1))

type spinner struct {
	trust   int // up to spinTrust; spins in vain lower it
	skipped int
}

// wait spins if that may be worth it, and tells whether something is ready.
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
	for begun := time.Now(); ; {
		if pollNow(fds) {
			s.trust = min(s.trust+1, spinTrust)
			return true
		}
		// Chrome may need this processor for the answer.
		yield()
		if time.Since(begun) > spinFor {
			s.trust = max(s.trust-2, 0)
			return false
		}
	}
}

// pollNow tells which descriptors are ready now. It does not tell the scheduler
// of the system call, which takes less time than that would.
func pollNow(fds []unix.PollFd) bool {
	var zero unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return errno == 0 && n > 0
}

// yield lets another thread that can run do so.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
