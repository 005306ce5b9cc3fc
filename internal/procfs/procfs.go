// Package procfs tells what the kernel knows about other processes, and about the host's
// memory. A pid identifies a process only until it is used again; a pid and a start time
// together identify one until the host restarts.
//
// It uses github.com/prometheus/procfs, except for command lines: the library returns them
// split, but the raw bytes are needed here. Chrome's helpers replace their arguments by one
// string, and only the bytes show which of the two forms a command line has.
package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process is what the kernel says of one process or thread in its stat file.
type Process struct {
	PID    int
	Parent int
	// Group is the process group. Its number is not given to another group while
	// a member lives.
	Group int
	// State is the kernel's letter, such as R, S, D, T, or Z for a zombie.
	State byte
	// StartTime is in clock ticks since the host started.
	StartTime uint64
	// CPU is the processor time that all of its threads together have used, in
	// clock ticks.
	CPU uint64
}

// Alive tells whether the process can still run. A zombie cannot: it has given up
// its files, locks and memory, however late its parent reaps it.
func (p Process) Alive() bool { return p.PID > 0 && p.State != 'Z' && p.State != 'X' && p.State != 'x' }

// Same tells whether q is this very process, whatever it has done since.
func (p Process) Same(q Process) bool { return p.PID == q.PID && p.StartTime == q.StartTime }

// mount is where the kernel shows its processes.
var mount = procfs.DefaultMountPoint

// Mount makes this package read another directory than /proc. It is for tests whose processes
// the kernel does not know, and has to be called before anything else uses the package.
func Mount(dir string) { mount = dir }

// host is the library's view of /proc. It is opened once.
var host = sync.OnceValues(func() (procfs.FS, error) { return procfs.NewFS(mount) })

// Read returns the process with the pid. The error is fs.ErrNotExist if there is
// none.
func Read(pid int) (Process, error) {
	proc, err := find(pid)
	if err != nil {
		return Process{}, err
	}
	return readStat(proc)
}

// CommandLine returns the raw command line: arguments that each end with a zero
// byte, or whatever the process has put in their place. It is empty for zombies
// and kernel threads. The error is fs.ErrNotExist if there is no such process.
func CommandLine(pid int) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(mount, strconv.Itoa(pid), "cmdline"))
	return b, processError(pid, err)
}

// HasOpen tells whether a process has a file open. If the process is gone or may not be looked
// at, the answer is no, without an error.
func HasOpen(pid int, file fs.FileInfo) (bool, error) {
	dir := filepath.Join(mount, strconv.Itoa(pid), "fd")
	open, err := os.ReadDir(dir)
	if isGone(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open files of process %d: %w", pid, err)
	}
	for _, fd := range open {
		// A descriptor that was closed meanwhile, or that has no file, is not the one.
		if fi, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(fi, file) {
			return true, nil
		}
	}
	return false, nil
}

// HasSocket tells whether a process has the socket with this inode open. The error is
// fs.ErrNotExist if there is no such process.
func HasSocket(pid int, inode uint32) (bool, error) {
	dir := filepath.Join(mount, strconv.Itoa(pid), "fd")
	open, err := os.ReadDir(dir)
	if err != nil {
		return false, processError(pid, err)
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	for _, fd := range open {
		// A descriptor that was closed meanwhile is not the one.
		if is, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && is == want {
			return true, nil
		}
	}
	return false, nil
}

// Environment returns the variables with which a process was started, unless it has written over
// them. The error is fs.ErrNotExist if there is no such process.
func Environment(pid int) ([]string, error) {
	proc, err := find(pid)
	if err != nil {
		return nil, err
	}
	environment, err := proc.Environ()
	return environment, processError(pid, err)
}

// List returns every process that this one may see. It leaves out those that end
// while it looks, and those that the host hides from this user (hidepid).
func List() ([]Process, error) {
	proc, err := host()
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	return listProcesses(proc)
}

func listProcesses(proc procfs.FS) ([]Process, error) {
	listed, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	return readAll(listed, func(err error) bool { return isGone(err) || errors.Is(err, fs.ErrPermission) })
}

// PIDs returns the process ids that this process may see. It is cheap compared with List, which
// reads a file of each process.
func PIDs() ([]int, error) {
	proc, err := host()
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	listed, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("processes of this host: %w", err)
	}
	pids := make([]int, len(listed))
	for i, p := range listed {
		pids[i] = p.PID
	}
	return pids, nil
}

// Group returns the members of a process group, zombies included, and the process whose id is
// the group's number, whatever its group is.
func Group(group int) ([]Process, error) {
	pids, err := PIDs()
	if err != nil {
		return nil, err
	}
	var members []Process
	for _, pid := range pids {
		// The kernel tells the group without a file, but not of a process that has ended.
		if of, err := unix.Getpgid(pid); pid != group && (err != nil || of != group) {
			continue
		}
		p, err := Read(pid)
		if isGone(err) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		members = append(members, p)
	}
	return members, nil
}

// Threads returns the threads of a process, its main one first. PID, State and CPU
// are the thread's own. The error is fs.ErrNotExist if there is no such process.
func Threads(pid int) ([]Process, error) {
	proc, err := host()
	if err != nil {
		return nil, processError(pid, err)
	}
	listed, err := proc.AllThreads(pid)
	if err != nil {
		return nil, processError(pid, err)
	}
	all, err := readAll(listed, isGone)
	if err != nil {
		return nil, err
	}
	for i, thread := range all {
		if thread.PID == pid {
			all[0], all[i] = all[i], all[0]
			return all, nil
		}
	}
	return nil, processError(pid, fs.ErrNotExist)
}

// Ran is how long the threads of a process have run so far, together, and whether all of them
// sleep. If it returns the same time twice, with all of them asleep, none ran in between. The
// error is fs.ErrNotExist if there is no such process.
func Ran(pid int) (ran time.Duration, asleep bool, err error) {
	proc, err := host()
	if err != nil {
		return 0, false, processError(pid, err)
	}
	threads, err := proc.AllThreads(pid)
	if err != nil {
		return 0, false, processError(pid, err)
	}
	asleep = len(threads) > 0
	for _, thread := range threads {
		stat, err := readStat(thread)
		if isGone(err) {
			asleep = false // it has just ended
			continue
		}
		if err != nil {
			return 0, false, err
		}
		of, err := thread.Schedstat()
		if err != nil {
			return 0, false, processError(pid, err)
		}
		ran += time.Duration(of.RunningNanoseconds)
		asleep = asleep && stat.State == 'S'
	}
	return ran, asleep, nil
}

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// readAll reads the stat files of listed processes or threads. It leaves out those
// whose error is one to ignore.
func readAll(listed procfs.Procs, ignore func(error) bool) ([]Process, error) {
	all := make([]Process, 0, len(listed))
	for _, proc := range listed {
		p, err := readStat(proc)
		if err != nil && ignore(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func readStat(proc procfs.Proc) (Process, error) {
	s, err := proc.Stat()
	if err == nil && len(s.State) != 1 {
		err = fmt.Errorf("stat: state %.20q: want one letter", s.State)
	}
	if err != nil {
		return Process{}, processError(proc.PID, err)
	}
	return Process{
		PID: s.PID, Parent: s.PPID, Group: s.PGRP, State: s.State[0],
		StartTime: s.Starttime, CPU: uint64(s.UTime) + uint64(s.STime),
	}, nil
}

// find returns the library's process. The error is fs.ErrNotExist if there is none.
func find(pid int) (procfs.Proc, error) {
	proc, err := host()
	if err != nil {
		return procfs.Proc{}, processError(pid, err)
	}
	found, err := proc.Proc(pid)
	return found, processError(pid, err)
}

// processError names the process in an error that is not nil. The kernel reports
// one that ended while it was being read with ESRCH; that becomes fs.ErrNotExist.
func processError(pid int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		err = fs.ErrNotExist
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// ticks is how many clock ticks the kernel counts in a second: the same on every
// Linux that Go runs on.
const ticks = 100

// Ticks converts a number of clock ticks into a duration.
func Ticks(n uint64) time.Duration { return time.Duration(n) * (time.Second / ticks) }

// Started is when the process began, on this host's clock, to the second; the zero time if the
// kernel does not tell.
func (p Process) Started() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	age := time.Duration(up.Nano()) - Ticks(p.StartTime)
	return time.Now().Add(-age).Round(time.Second)
}

// WaitedForCPU is for how long, since the host started, at least one program waited for a
// processor; zero if the kernel does not count that (CONFIG_PSI).
func WaitedForCPU() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stats, err := fs.PSIStatsForResource("cpu")
	if err != nil || stats.Some == nil {
		return 0
	}
	return time.Duration(stats.Some.Total) * time.Microsecond
}
