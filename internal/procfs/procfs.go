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
	const startTime = 22 // the field's number in proc_pid_stat(5)
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("process stat %.60q: want a name in brackets", b)
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) < startTime-2 || len(fields[0]) != 1 {
		return Process{}, fmt.Errorf("process stat %.60q: want at least %d fields", b, startTime)
	}
	p := Process{State: fields[0][0]}
	var errs [4]error
	p.PID, errs[0] = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	p.Parent, errs[1] = strconv.Atoi(string(fields[1]))
	p.Group, errs[2] = strconv.Atoi(string(fields[2]))
	p.StartTime, errs[3] = strconv.ParseUint(string(fields[startTime-3]), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Process{}, fmt.Errorf("process stat %.60q: %w", b, err)
	}
	return p, nil
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
