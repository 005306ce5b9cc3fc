package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// command is what this binary is called, as its first argument, while it is on its way
// to become another program.
const command = "leasehold-confine"

// StartError says why a program was not started.
type StartError struct {
	// Path is the program.
	Path string
	// Confining tells that the process could not be confined. Otherwise the program
	// could not be run.
	Confining bool
	Err       error
}

func (e *StartError) Error() string {
	if e.Confining {
		return fmt.Sprintf("%s was not started, since it could not be confined: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// Start starts a command under the rules. It has the pid, process group, control group,
// environment, arguments and descriptors that cmd.Start would have given it. The caller
// must not have called Start on it, and waits for it with cmd.Wait.
//
// Start returns when the program runs, or with a *StartError; then there is nothing to
// wait for. When ctx ends before the program runs, the process is killed. The binary
// that calls Start has to call Main at the beginning of its main function.
func Start(ctx context.Context, cmd *exec.Cmd, r Rules) error {
	path := cmd.Path
	if cmd.Err != nil {
		return &StartError{Path: path, Err: cmd.Err}
	}
	failed := func(err error) error { return &StartError{Path: path, Confining: true, Err: err} }
	rules, err := json.Marshal(r)
	if err != nil {
		return failed(err)
	}
	status, theirs, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	defer status.Close()
	defer theirs.Close()
	// It is closed when the program starts: that is how the start is seen.
	fd := 3 + len(cmd.ExtraFiles)
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	cmd.Args = append([]string{command, string(rules), strconv.Itoa(fd), path}, cmd.Args...)
	// This is the binary that runs, even if the file was replaced since.
	cmd.Path = "/proc/self/exe"
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	if err := theirs.Close(); err != nil {
		return failed(errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	said, err := io.ReadAll(status)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err == nil && len(said) == 0 {
		return nil
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it has failed: its status says no more than the message
	if err != nil {
		return failed(err)
	}
	var m message
	if err := json.Unmarshal(said, &m); err != nil {
		return failed(fmt.Errorf("unexpected answer %.200q", said))
	}
	return &StartError{Path: path, Confining: m.Confining, Err: m.err()}
}

// message is how the process that could not become the program says why.
type message struct {
	Confining bool          `json:"confining,omitempty"`
	Text      string        `json:"text"`
	Errno     syscall.Errno `json:"errno,omitempty"`
}

func (m message) err() error {
	if m.Errno != 0 {
		return m.Errno
	}
	return errors.New(m.Text)
}

// Main returns at once, unless Start has started this process. Then it confines the
// process and becomes the program, and never returns.
func Main() {
	if len(os.Args) < 5 || os.Args[0] != command {
		return
	}
	become(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	os.Exit(1)
}

// become returns only if it failed, and after it has said why.
func become(rules, statusFD, path string, args []string) {
	fd, err := strconv.Atoi(statusFD)
	if err != nil {
		return
	}
	unix.CloseOnExec(fd)
	say := func(m message) {
		raw, err := json.Marshal(m)
		if err == nil {
			_, _ = unix.Write(fd, raw) // nobody else could be told
		}
	}
	var r Rules
	if err := json.Unmarshal([]byte(rules), &r); err != nil {
		say(message{Confining: true, Text: err.Error()})
		return
	}
	if err := r.apply(); err != nil {
		say(message{Confining: true, Text: err.Error()})
		return
	}
	// It ends all other threads.
	err = syscall.Exec(path, args, os.Environ())
	m := message{Text: err.Error()}
	errors.As(err, &m.Errno)
	say(m)
}

// Seal keeps other processes of the same user away from this process's memory,
// environment and open files: they cannot be read in /proc, and no debugger of that user
// can attach. Programs that it starts are not sealed. A sealed process leaves no core
// dump.
func Seal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_DUMPABLE): %w", err)
	}
	return nil
}
