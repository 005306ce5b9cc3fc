package chrome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
)

// Identity names a process for as long as there are records of it.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is the kernel's: clock ticks since the host started.
	StartTime uint64 `json:"start_time"`
	BootID    string `json:"boot_id"`
}

// Browser is a running Chrome, started or adopted. It has to be given up with
// Close or Detach. All methods may be called concurrently.
type Browser struct {
	identity   Identity
	binary     string
	profileDir string
	tempDir    string
	output     string
	warnings   []string
	cgroup     *cgroup.Group // nil: none

	child            *exec.Cmd // nil if it is not our child
	commands, events *os.File  // nil after Attach
	// pidfd is this very process, whatever becomes of its pid. It is in the
	// poller, so that closing it wakes the watcher.
	pidfd *os.File

	exited   chan struct{}
	status   string // set before exited is closed
	watching sync.WaitGroup

	closing  sync.Mutex
	closed   bool
	detached bool
	rung     Rung
}

// PID returns the process id of the main process; its process group has the
// same number.
func (b *Browser) PID() int { return b.identity.PID }

// Identity returns what a later launcher needs to know the process again.
func (b *Browser) Identity() Identity { return b.identity }

// ProfileDir returns the profile's directory.
func (b *Browser) ProfileDir() string { return b.profileDir }

// TempDir returns the browser's TMPDIR, which Close removes.
func (b *Browser) TempDir() string { return b.tempDir }

// Group returns the browser's control group, or nil.
func (b *Browser) Group() *cgroup.Group { return b.cgroup }

// Processes returns the living processes of the browser, without the handlers of
// crashes, which are no part of it.
func (b *Browser) Processes() ([]procfs.Process, error) {
	all, err := procfs.List()
	if err != nil {
		return nil, err
	}
	return b.Among(all), nil
}

// Warnings returns what the user should be told of how the browser was started.
func (b *Browser) Warnings() []string { return b.warnings }

// Commands returns the end that the browser reads: JSON messages that each end
// with a zero byte. Write deadlines work. The Browser closes it. It is nil after
// Attach.
func (b *Browser) Commands() *os.File { return b.commands }

// Events returns the end that the browser writes. Read deadlines work; it ends
// when the browser does. The Browser closes it. It is nil after Attach, and
// closed after TakeEvents.
func (b *Browser) Events() *os.File { return b.events }

// TakeEvents hands over the end that the browser writes, as a nonblocking
// descriptor that is in nobody's poller: the caller waits for it, and closes it.
// Events and Close do without it from then on.
func (b *Browser) TakeEvents() (int, error) {
	fd := -1
	conn, err := b.events.SyscallConn()
	if err == nil {
		var dup error
		err = conn.Control(func(ours uintptr) { fd, dup = unix.FcntlInt(ours, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, dup)
	}
	if err != nil {
		return -1, fmt.Errorf("chrome pid %d: events: %w", b.identity.PID, err)
	}
	return fd, b.events.Close()
}

// Exited is closed when the main process has ended. It stays open after Detach.
func (b *Browser) Exited() <-chan struct{} { return b.exited }

// ExitStatus returns how the main process ended, once Exited is closed: "exit 0",
// "signal killed", or "unknown" for a browser that is not our child.
func (b *Browser) ExitStatus() string {
	select {
	case <-b.exited:
		return b.status
	default:
		return ""
	}
}

// OutputTail returns the last n bytes of what the browser printed; empty if
// there is no output file.
func (b *Browser) OutputTail(n int) string { return tail(b.output, n) }

// StartFailure explains why the browser does not answer: its exit status and
// last output, and what to do where that is known. cause is what the first call
// failed with. A pipe that ended is seen before the exit is, so StartFailure
// gives the exit half a second to follow.
func (b *Browser) StartFailure(cause error) *StartError {
	const shown = 2 << 10
	b.wait(context.Background(), 500*time.Millisecond)
	e := &StartError{Binary: b.binary, ExitStatus: b.ExitStatus(), Output: b.OutputTail(shown), Err: cause}
	e.Hint = hintFor(e.ExitStatus, e.Output, cause)
	return e
}

func tail(path string, n int) string {
	if path == "" || n <= 0 {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-int64(n))
	b, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return ""
	}
	return string(b)
}

// openPidfd returns a descriptor of the process, in the poller.
func openPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: pidfd: %w", pid, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("process %d: pidfd: %w", pid, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// watch waits for the main process to end, or for pidfd to be closed.
func (b *Browser) watch() {
	conn, err := b.pidfd.SyscallConn()
	if err != nil {
		return
	}
	if err := conn.Read(hasExited); err != nil {
		return
	}
	b.status = "unknown"
	if b.child != nil {
		// It has ended, so that this reaps it and does not wait.
		err := b.child.Wait()
		b.status = exitStatus(b.child.ProcessState, err)
	}
	close(b.exited)
}

// hasExited polls a pidfd once. Any failure counts as exited; there is none for
// a valid descriptor.
func hasExited(pidfd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || n > 0
		}
	}
}

func exitStatus(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("unknown (%v)", err)
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return "signal " + ws.Signal().String()
	}
	return fmt.Sprintf("exit %d", state.ExitCode())
}

// signal sends to the very process that was started or adopted. One that has
// ended is no error.
func (b *Browser) signal(sig unix.Signal) error {
	conn, err := b.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if errors.Is(sent, unix.ESRCH) {
		sent = nil
	}
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("chrome pid %d: %v: %w", b.identity.PID, sig, err)
	}
	return nil
}

// closeOurs closes our pipe ends and stops the watcher.
func (b *Browser) closeOurs() error {
	var errs []error
	for _, f := range []*os.File{b.commands, b.events, b.pidfd} {
		if f == nil {
			continue
		}
		// The pipe's user may have closed its end before.
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	b.watching.Wait()
	return errors.Join(errs...)
}

// Detach closes our pipe ends and leaves the browser running, for a later
// launcher to adopt. It is for a launcher that is about to end: one that lives
// on keeps the zombie of a browser that ends before it. After Close it does
// nothing.
func (b *Browser) Detach() error {
	b.closing.Lock()
	defer b.closing.Unlock()
	if b.closed || b.detached {
		return nil
	}
	b.detached = true
	err := b.closeOurs()
	if b.child != nil && b.child.ProcessState == nil {
		err = errors.Join(err, b.child.Process.Release())
	}
	return err
}
