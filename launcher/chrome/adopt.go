package chrome

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
)

// AdoptOptions say what the browser was started with.
type AdoptOptions struct {
	ProfileDir string
	TempDir    string
	OutputFile string
	// Group is the directory of its control group; empty if it has none.
	Group string
}

// Adopt takes the pipe of a browser whose launcher died, after it has proved that id is still
// that browser. The caller has made sure that no other launcher has the browser
// (profiledir.Root.Adopt).
//
// The caller has to drop the first message if it does not parse: the dead launcher may
// have read the beginning of it. If the dead launcher wrote the first part of a
// command, Adopt ends it so that it is none, and Chrome answers with an error without
// id. The CDP sessions of the dead launcher are still there, and answers to its
// commands may arrive: the caller has to use other ids.
//
// The error is a *NotSameError if the browser is gone. Any other error says that it
// runs, but that its pipe cannot be taken: such a browser can be attached and closed.
func Adopt(id Identity, o AdoptOptions) (*Browser, error) {
	return adopt(id, o, (*Browser).takePipe)
}

// Attach does what Adopt does, without the pipe: Commands and Events return nil. It is
// for a browser that can only be closed, by signals.
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
	// The pidfd is opened before the proofs, so they are about its process.
	if err := b.prove(); err != nil {
		return nil, errors.Join(err, pidfd.Close())
	}
	if o.Group != "" {
		// A group that the browser is not in is not its own, and is left alone.
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

// userDataDirs returns the value of every --user-data-dir on the command line of a
// main process.
func userDataDirs(line []byte) []string {
	var dirs []string
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		if dir, ok := bytes.CutPrefix(arg, []byte("--user-data-dir=")); ok {
			dirs = append(dirs, string(dir))
		}
	}
	return dirs
}
