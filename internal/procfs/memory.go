package procfs

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// Memory is what a process has in memory, in bytes.
type Memory struct {
	// Resident counts all of its pages. Shared counts those among them that
	// belong to a file or to shared memory: other processes may have them too.
	Resident, Shared uint64
}

// ReadMemory returns what the process has in memory. It is cheap, and works for any
// process. The error is fs.ErrNotExist if there is none.
func ReadMemory(pid int) (Memory, error) {
	proc, err := find(pid)
	if err != nil {
		return Memory{}, err
	}
	pages, err := proc.Statm()
	if err != nil {
		return Memory{}, processError(pid, err)
	}
	size := uint64(os.Getpagesize())
	return Memory{Resident: pages.Resident * size, Shared: pages.Shared * size}, nil
}

// Proportional returns the process's proportional share of memory (PSS) in bytes:
// each page divided by the number of processes that have it. It is expensive, since
// the kernel walks all of the process's pages. The error is fs.ErrPermission for a
// process that may not be looked into, such as one in Chrome's sandbox.
func Proportional(pid int) (uint64, error) {
	proc, err := find(pid)
	if err != nil {
		return 0, err
	}
	rollup, err := proc.ProcSMapsRollup()
	if err == nil && rollup == (procfs.ProcSMapsRollup{}) {
		err = errors.New("smaps_rollup has no sizes")
	}
	return rollup.Pss, processError(pid, err)
}

// HostMemory is what the host has left of its memory.
type HostMemory struct {
	// Total is how many bytes the host has.
	Total uint64
	// Available is how many bytes can be had without swapping.
	Available uint64
	// Some and Full are the shares of the last ten seconds, in percent, in which some tasks, or
	// all of them at once, waited for memory. They are zero if the kernel does not tell.
	Some, Full float64
}

// ReadHostMemory reads /proc/meminfo and /proc/pressure/memory. Some kernels do not
// have the second, or have it switched off: that is no error.
func ReadHostMemory() (HostMemory, error) {
	proc, err := host()
	if err != nil {
		return HostMemory{}, fmt.Errorf("memory of the host: %w", err)
	}
	return readHostMemory(proc)
}

func readHostMemory(proc procfs.FS) (HostMemory, error) {
	info, err := proc.Meminfo()
	if err == nil && info.MemAvailableBytes == nil {
		err = errors.New("/proc/meminfo has no MemAvailable")
	}
	if err != nil {
		return HostMemory{}, fmt.Errorf("memory of the host: %w", err)
	}
	m := HostMemory{Available: *info.MemAvailableBytes}
	if info.MemTotalBytes != nil {
		m.Total = *info.MemTotalBytes
	}
	pressure, err := proc.PSIStatsForResource("memory")
	if err != nil {
		return m, nil //nolint:nilerr // the pressure is not known then
	}
	if pressure.Some != nil {
		m.Some = pressure.Some.Avg10
	}
	if pressure.Full != nil {
		m.Full = pressure.Full.Avg10
	}
	return m, nil
}
