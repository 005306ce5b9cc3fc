package cdpproxy

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollNow tells which descriptors are ready now. It does not tell the scheduler
// of the system call, which takes less time than that would.
func pollNow(fds []unix.PollFd) bool {
	var zero unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return errno == 0 && n > 0
}

// yield lets another thread that can run do so.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
