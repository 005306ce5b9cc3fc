// Package procfs reads what the kernel tells of other processes. A pid alone
// names nobody for long: pid and start time together do, until the host restarts.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one line of /proc/<pid>/stat.
type Process struct {
	PID    int
	Parent int
	// Group is the process group; its number stays taken while a member lives.
	Group int
	// State is the kernel's letter: Z is a zombie.
	State byte
	// StartTime is in clock ticks since the host started.
	StartTime uint64
	// CPU is the processor time that it has used, all of its threads together, in
	// clock ticks.
	CPU uint64
}

// Alive tells whether the process can still run. A zombie has given up its
// files, locks and memory, however long its parent takes to notice.
func (p Process) Alive() bool { return p.PID > 0 && p.State != 'Z' && p.State != 'X' && p.State != 'x' }

// Read returns the process with the pid. The error is fs.ErrNotExist if there
// is none.
func Read(pid int) (Process, error) {
	b, err := read(pid, "stat")
	if err != nil {
		return Process{}, err
	}
	return parseStat(b)
}

// CommandLine returns the raw command line: arguments that each end with a zero
// byte, or whatever the process has put in their place. It is empty for zombies
// and kernel threads. The error is fs.ErrNotExist if there is no such process.
func CommandLine(pid int) ([]byte, error) { return read(pid, "cmdline") }

// List returns every process that this one may see.
func List() ([]Process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// One that ended since the listing is no process any more; one that is
		// hidden (hidepid) is another user's.
		p, err := Read(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func read(pid int, file string) ([]byte, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return b, nil
}

// parseStat reads "pid (name) state ppid pgrp ...". The name may hold spaces and
// brackets, so the last bracket ends it.
func parseStat(b []byte) (Process, error) {
	const userTime, startTime = 14, 22 // the fields' numbers in proc_pid_stat(5)
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("process stat %.60q: want a name in brackets", b)
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) < startTime-2 || len(fields[0]) != 1 {
		return Process{}, fmt.Errorf("process stat %.60q: want at least %d fields", b, startTime)
	}
	p := Process{State: fields[0][0]}
	var errs [6]error
	var user, system uint64
	p.PID, errs[0] = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	p.Parent, errs[1] = strconv.Atoi(string(fields[1]))
	p.Group, errs[2] = strconv.Atoi(string(fields[2]))
	p.StartTime, errs[3] = strconv.ParseUint(string(fields[startTime-3]), 10, 64)
	user, errs[4] = strconv.ParseUint(string(fields[userTime-3]), 10, 64)
	system, errs[5] = strconv.ParseUint(string(fields[userTime-2]), 10, 64)
	p.CPU = user + system
	if err := errors.Join(errs[:]...); err != nil {
		return Process{}, fmt.Errorf("process stat %.60q: %w", b, err)
	}
	return p, nil
}

// Threads returns the threads of a process, its main one first: their PID is the
// thread's, their CPU its own. The error is fs.ErrNotExist if there is no such
// process.
func Threads(pid int) ([]Process, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	var all []Process
	for _, e := range entries {
		b, err := os.ReadFile(dir + "/" + e.Name() + "/stat")
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
			continue // it ended since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		t, err := parseStat(b)
		if err != nil {
			return nil, err
		}
		if t.PID == pid {
			all = append([]Process{t}, all...)
		} else {
			all = append(all, t)
		}
	}
	if len(all) == 0 || all[0].PID != pid {
		return nil, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return all, nil
}

// Ticks is a number of clock ticks as a time.
func Ticks(n uint64) time.Duration { return time.Duration(n) * (time.Second / ticks) }

// Memory is what a process has in memory, in bytes.
type Memory struct {
	// Resident counts all of its pages; Shared are those of it that are of a file
	// or shared memory, which other processes may have, too.
	Resident, Shared uint64
}

// ReadMemory returns what the process has in memory: cheap, and for any process.
// The error is fs.ErrNotExist if there is none.
func ReadMemory(pid int) (Memory, error) {
	b, err := read(pid, "statm")
	if err != nil {
		return Memory{}, err
	}
	return parseStatm(b)
}

// parseStatm reads "size resident shared ...", in pages.
func parseStatm(b []byte) (Memory, error) {
	fields := bytes.Fields(b)
	if len(fields) < 3 {
		return Memory{}, fmt.Errorf("process statm %.60q: want at least 3 fields", b)
	}
	resident, err := strconv.ParseUint(string(fields[1]), 10, 40)
	shared, sharedErr := strconv.ParseUint(string(fields[2]), 10, 40)
	if err := errors.Join(err, sharedErr); err != nil {
		return Memory{}, fmt.Errorf("process statm %.60q: %w", b, err)
	}
	page := uint64(os.Getpagesize())
	return Memory{Resident: resident * page, Shared: shared * page}, nil
}

// Proportional returns the process's proportional share of memory (PSS) in bytes:
// each page divided by how many processes have it. The kernel walks all of its
// pages for that. The error is fs.ErrPermission for processes that may not be
// looked into, such as those in Chrome's sandbox.
func Proportional(pid int) (uint64, error) {
	b, err := read(pid, "smaps_rollup")
	if err != nil {
		return 0, err
	}
	return parseRollup(b)
}

// parseRollup reads the line "Pss:  123 kB".
func parseRollup(b []byte) (uint64, error) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			fields := bytes.Fields(rest)
			if len(fields) != 2 || string(fields[1]) != "kB" {
				break
			}
			n, err := strconv.ParseUint(string(fields[0]), 10, 50)
			if err != nil {
				break
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("process smaps_rollup %.60q: want a line of Pss in kB", b)
}

// ticks is how many clock ticks a second has in what the kernel tells processes:
// on Linux the same everywhere.
const ticks = 100

// Started is when the process began on this host's clock, to the second; the zero
// time where the kernel does not tell.
func (p Process) Started() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	age := time.Duration(up.Nano()) - time.Duration(p.StartTime)*(time.Second/ticks)
	return time.Now().Add(-age).Round(time.Second)
}
