package chrome

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
)

// AdoptOptions are what the browser was started with.
type AdoptOptions struct {
	ProfileDir string
	TempDir    string
	OutputFile string
	// Group is the directory of its control group; empty: it has none.
	Group string
}

// Adopt takes over a browser whose launcher died, after proving that id is still
// that browser. The caller has made sure that no other launcher has it
// (profiledir.Root.Adopt).
//
// What is read first may be the end of a message that the dead launcher had
// begun to read: a message that does not parse is to be dropped. Adopt ends a
// half-written command with a zero byte, which Chrome answers with an error
// without id. CDP sessions of the dead launcher are still there, and answers to
// its commands may come: use ids that it did not.
//
// The error is a *NotSameError if the browser is gone. Any other says that it
// runs but that its pipe cannot be had: Attach, to close it.
func Adopt(id Identity, o AdoptOptions) (*Browser, error) {
	return adopt(id, o, (*Browser).openPipes)
}

// Attach is Adopt without the pipe, which is nil: for a browser that can only be
// closed, by signals.
func Attach(id Identity, o AdoptOptions) (*Browser, error) {
	return adopt(id, o, func(*Browser) error { return nil })
}

func adopt(id Identity, o AdoptOptions, open func(*Browser) error) (*Browser, error) {
	if o.TempDir != "" {
		if err := checkTempDir(o.TempDir, o.ProfileDir); err != nil {
			return nil, fmt.Errorf("chrome pid %d: %w", id.PID, err)
		}
	}
	b := &Browser{identity: id, profileDir: o.ProfileDir, tempDir: o.TempDir, output: o.OutputFile, exited: make(chan struct{})}
	pidfd, err := openPidfd(id.PID)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, b.notSame("alive", "there is no such process")
	}
	if err != nil {
		return nil, err
	}
	b.pidfd = pidfd
	// The proofs come after the pidfd: they hold for what it stands for.
	if err := b.prove(); err != nil {
		return nil, errors.Join(err, pidfd.Close())
	}
	if o.Group != "" {
		// One that it is not in is not its own, and nothing is done to it.
		if b.cgroup, err = cgroup.Open(o.Group, id.PID); err != nil {
			b.warnings = append(b.warnings, fmt.Sprintf("chrome pid %d goes on without its limits: %v", id.PID, err))
		}
	}
	if err := open(b); err != nil {
		return nil, errors.Join(err, b.closeOurs())
	}
	if line, err := procfs.CommandLine(id.PID); err == nil {
		binary, _, _ := bytes.Cut(line, []byte{0})
		b.binary = string(binary)
	}
	b.watching.Go(b.watch)
	return b, nil
}

func (b *Browser) notSame(proof, detail string, args ...any) *NotSameError {
	return &NotSameError{Identity: b.identity, Proof: proof, Detail: fmt.Sprintf(detail, args...)}
}

// prove returns a *NotSameError for the first proof that fails.
func (b *Browser) prove() error {
	id := b.identity
	if boot := boottime.ID(); boot != id.BootID || boot == "" {
		return b.notSame("boot", "it was started in boot %q, this is boot %q", id.BootID, boot)
	}
	p, err := procfs.Read(id.PID)
	switch {
	case err != nil:
		return b.notSame("alive", "%v", err)
	case p.StartTime != id.StartTime:
		return b.notSame("start_time", "it started at tick %d, the pid's process at %d", id.StartTime, p.StartTime)
	case !p.Alive():
		return b.notSame("alive", "it has ended and waits for its parent")
	case p.Group != id.PID:
		return b.notSame("group", "it has to lead its process group, but is in %d", p.Group)
	}
	line, err := procfs.CommandLine(id.PID)
	if err != nil {
		return b.notSame("alive", "%v", err)
	}
	if dirs := userDataDirs(line); !slices.Equal(dirs, []string{b.profileDir}) {
		return b.notSame("profile", "it has to have --user-data-dir=%s, but has %q", b.profileDir, dirs)
	}
	return nil
}

// userDataDirs returns every --user-data-dir of a main process's command line.
func userDataDirs(line []byte) []string {
	var dirs []string
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		if dir, ok := bytes.CutPrefix(arg, []byte("--user-data-dir=")); ok {
			dirs = append(dirs, string(dir))
		}
	}
	return dirs
}

// openPipes reaches the browser's pipes through its descriptors. Opening them is
// to make new open files, so that they do not share a mode with Chrome's own.
func (b *Browser) openPipes() (err error) {
	end := func(fd, how int) (*os.File, error) {
		path := fmt.Sprintf("/proc/%d/fd/%d", b.identity.PID, fd)
		fi, err := os.Stat(path)
		if err == nil && fi.Mode()&os.ModeNamedPipe == 0 {
			err = fmt.Errorf("it is a %v", fi.Mode().Type())
		}
		if err != nil {
			return nil, fmt.Errorf("chrome pid %d: %s: want its debugging pipe: %w", b.identity.PID, path, err)
		}
		return os.OpenFile(path, how|unix.O_NONBLOCK, 0)
	}
	if b.commands, err = end(fdCommands, os.O_WRONLY); err != nil {
		return err
	}
	if b.events, err = end(fdEvents, os.O_RDONLY); err != nil {
		return err
	}
	// The paths went by the pid; the proofs still hold, so that it was its own.
	if err := b.prove(); err != nil {
		return err
	}
	// A pipe that is full is no reason to fail: the browser hangs, as the first
	// call will show, and can be closed.
	if err := b.commands.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := b.commands.Write([]byte{0}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("chrome pid %d: commands: %w", b.identity.PID, err)
	}
	return b.commands.SetWriteDeadline(time.Time{})
}
