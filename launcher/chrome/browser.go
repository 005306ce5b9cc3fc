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

// Identity names one process: no other process, earlier or later, has the same.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is the kernel's: clock ticks since the host started.
	StartTime uint64 `json:"start_time"`
	BootID    string `json:"boot_id"`
}

// Browser is a running Chrome that was started or adopted. Close or Detach has to be
// called when it is done with. All methods may be called concurrently.
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
	netLog           *netLog   // nil after Attach, and after TakeNetLog
	// pidfd stands for this very process, even if its pid is used again. It is in
	// the poller, so that closing it wakes the watcher.
	pidfd *os.File

	exited   chan struct{}
	status   string // set before exited is closed
	watching sync.WaitGroup

	closing  sync.Mutex // held by Close and Detach, guards the fields below
	closed   bool
	detached bool
	method   CloseMethod // the strongest one that Close has used
}

// PID returns the process id of the main process, which is also the number of its
// process group.
func (b *Browser) PID() int { return b.identity.PID }

// Identity returns what a later launcher needs to recognise the process.
func (b *Browser) Identity() Identity { return b.identity }

// ProfileDir returns the profile's directory.
func (b *Browser) ProfileDir() string { return b.profileDir }

// TempDir returns the browser's TMPDIR, which Close removes.
func (b *Browser) TempDir() string { return b.tempDir }

// Group returns the browser's control group, or nil.
func (b *Browser) Group() *cgroup.Group { return b.cgroup }

// Processes returns the living processes of the browser. Crash handlers are not among
// them: they do not belong to its process group.
func (b *Browser) Processes() ([]procfs.Process, error) {
	group, err := procfs.Group(b.identity.PID)
	if err != nil {
		return nil, err
	}
	return b.Among(group), nil
}

// Warnings returns warnings for the user about how the browser was started or adopted.
func (b *Browser) Warnings() []string { return b.warnings }

// Commands returns the end of the pipe that the browser reads: JSON messages that each
// end with a zero byte. Write deadlines work. The Browser closes it. It is nil after
// Attach, and closed after TakePipe.
func (b *Browser) Commands() *os.File { return b.commands }

// Events returns our end of the pipe that the browser writes. Read deadlines work, and
// reading meets the end of the file when the browser has ended. The Browser closes it.
// It is nil after Attach, and closed after TakePipe.
func (b *Browser) Events() *os.File { return b.events }

// TakeNetLog gives the caller our end of the pipe on which the network service says what it does:
// one JSON value in each line, until the browser has ended. It returns nil after Attach, and the
// second time.
func (b *Browser) TakeNetLog() io.ReadCloser {
	b.closing.Lock()
	defer b.closing.Unlock()
	taken := b.netLog
	if b.netLog = nil; taken == nil {
		return nil
	}
	return taken
}

// TakePipe gives the caller our two ends of the pipe, as nonblocking descriptors that are
// in no poller: the caller polls and closes them. Commands and Events are closed from then
// on. In Go's poller the end for commands would wake a thread for each command that the
// browser reads, since that makes room in a socket.
func (b *Browser) TakePipe() (commands, events int, err error) {
	if commands, err = b.duplicate(b.commands); err != nil {
		return -1, -1, err
	}
	if events, err = b.duplicate(b.events); err != nil {
		return -1, -1, errors.Join(err, unix.Close(commands))
	}
	return commands, events, errors.Join(b.commands.Close(), b.events.Close())
}

// duplicate returns another descriptor of one of our ends.
func (b *Browser) duplicate(end *os.File) (int, error) {
	fd := -1
	conn, err := end.SyscallConn()
	if err == nil {
		var dup error
		err = conn.Control(func(end uintptr) { fd, dup = unix.FcntlInt(end, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, dup)
	}
	if err != nil {
		return -1, fmt.Errorf("chrome pid %d: %s: %w", b.identity.PID, end.Name(), err)
	}
	return fd, nil
}

// Exited returns a channel that is closed when the main process has ended. After
// Detach it stays open.
func (b *Browser) Exited() <-chan struct{} { return b.exited }

// ExitStatus returns how the main process ended: "exit 0", "signal killed", or
// "unknown" for a browser that is not our child. It is empty until Exited is closed.
func (b *Browser) ExitStatus() string {
	select {
	case <-b.exited:
		return b.status
	default:
		return ""
	}
}

// OutputTail returns the last n bytes of what the browser printed. It is empty if
// there is no output file.
func (b *Browser) OutputTail(n int) string { return tail(b.output, n) }

// StartFailure explains why the browser does not answer, with its exit status, its
// last output, and a hint if the failure is a known one. cause is the error of the
// first call. The end of the pipe is seen before the exit is, so StartFailure waits up
// to half a second for the exit.
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

// openPidfd returns a pidfd of the process that is in the poller.
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
	if err := conn.Read(pidfdReadable); err != nil {
		return
	}
	b.status = "unknown"
	if b.child != nil {
		// It has ended, so Wait reaps it and returns at once.
		err := b.child.Wait()
		b.status = exitStatus(b.child.ProcessState, err)
	}
	close(b.exited)
}

// pidfdReadable polls a pidfd once: it is readable when its process has ended. An error
// counts as readable; for a valid descriptor there is none.
func pidfdReadable(pidfd uintptr) bool {
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

// signal sends a signal to the very process that was started or adopted. If the
// process has ended, that is no error.
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
	if b.netLog != nil {
		errs = append(errs, b.netLog.Close())
	}
	b.watching.Wait()
	return errors.Join(errs...)
}

// Detach closes our pipe ends and leaves the browser running, for a later launcher to
// adopt. It is for a launcher that is about to end: Detach stops waiting for the
// browser, so as long as the launcher runs, a browser that ends stays a zombie. After
// Close it does nothing.
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
