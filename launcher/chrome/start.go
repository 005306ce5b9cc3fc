// Package chrome runs one Chrome on a pipe: it finds the binary, makes its
// arguments, starts it, adopts one whose launcher died, and closes it by the method
// that loses least.
//
// A browser's main process inherits its two pipe ends, the profile's lock, and copies
// of the launcher's own pipe ends. So when the launcher dies, the pipe stays open, the
// browser keeps running and the profile stays locked, and a later launcher reaches the
// pipe through /proc. The consequence is that closing the pipe does not end the
// browser: Close does.
package chrome

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/internal/confine"
	"leasehold/internal/procfs"
)

// Start starts the browser and returns once its process runs. ctx is only for the
// start. Whether the browser works is seen at the first CDP call: if that fails,
// StartFailure explains it, and Close cleans up. The error is a *StartError or an
// *ArgumentError.
func Start(ctx context.Context, o Options) (*Browser, error) {
	args, warnings, err := Arguments(o, o.uid())
	if err != nil {
		return nil, err
	}
	b, err := start(ctx, o, args)
	if err != nil {
		failure := &StartError{Binary: o.Binary, Err: err}
		if binary, ok := errors.AsType[*execError](err); ok {
			failure.Hint = hintFor("", "", binary.err)
		}
		return nil, failure
	}
	b.warnings = warnings
	return b, nil
}

// execError marks an error of starting the binary itself.
type execError struct{ err error }

func (e *execError) Error() string { return e.err.Error() }
func (e *execError) Unwrap() error { return e.err }

func start(ctx context.Context, o Options, args []string) (_ *Browser, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	fi, err := os.Stat(o.ProfileDir)
	if err == nil && !fi.IsDir() {
		err = errors.New("it is none")
	}
	if err != nil {
		return nil, fmt.Errorf("profile directory %s: want an existing directory: %w", o.ProfileDir, err)
	}
	if o.TempDir, err = makeTempDir(o.TempDir, o.ProfileDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(o.TempDir))
		}
	}()
	env, err := o.environment()
	if err != nil {
		return nil, err
	}
	output, err := openOutput(o.OutputFile)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p, err := newPipe()
	if err != nil {
		return nil, err
	}
	defer p.closeInherited()
	if o.User != nil { // who opens it by its path
		if err := p.inherited[fdNetLog-fdCommands].Chown(o.User.UID, o.User.GID); err != nil {
			return nil, errors.Join(err, p.closeOurs())
		}
	}

	cmd := exec.Command(o.Binary, args...)
	cmd.Env = append(env, tempVariable+o.TempDir)
	if o.Appearance.Timezone != "" {
		cmd.Env = append(cmd.Env, "TZ="+o.Appearance.Timezone)
	}
	if o.Appearance.Locale != "" { // by this Chrome on Linux chooses its own language
		cmd.Env = append(cmd.Env, "LANGUAGE="+strings.ReplaceAll(o.Appearance.Locale, "-", "_"))
	}
	if o.User != nil {
		cmd.Dir = "/" // it may not be able to use the launcher's
	}
	if o.DumpDir != "" {
		cmd.Env = append(cmd.Env, dumpVariable+"="+o.DumpDir)
	}
	cmd.Stdout, cmd.Stderr = output, output
	// A session of its own, not only a process group. In our session the kernel may
	// send SIGHUP to the whole group when the main process ends, and what the helpers
	// still had to write would be lost.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Group != nil {
		dir, err := o.Group.File()
		if err != nil {
			return nil, errors.Join(err, p.closeOurs())
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	cmd.ExtraFiles = p.inherited
	for _, f := range []*os.File{o.Lock, o.ProxySocket} {
		if f != nil {
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	if err := run(ctx, cmd, o); err != nil {
		return nil, errors.Join(err, p.closeOurs())
	}
	b := &Browser{child: cmd, profileDir: o.ProfileDir, tempDir: o.TempDir, binary: o.Binary, output: o.OutputFile, cgroup: o.Group, exited: make(chan struct{})}
	if err := b.begin(cmd.Process.Pid, p); err != nil {
		// It is our child and has not been waited for, so the pid is still its own. Nothing
		// can be asked of it: nobody has its pipe.
		return nil, errors.Join(&KilledAtStartError{err}, unix.Kill(-cmd.Process.Pid, unix.SIGKILL), ignoreExit(cmd.Wait()), p.closeOurs())
	}
	return b, nil
}

// KilledAtStartError says that a browser was killed as soon as it was started, before
// anything was loaded, because it could not be driven.
type KilledAtStartError struct{ Err error }

func (e *KilledAtStartError) Error() string {
	return "the browser was killed as soon as it was started, before it could be asked anything, since it cannot be driven: " + e.Err.Error()
}
func (e *KilledAtStartError) Unwrap() error { return e.Err }

// run starts the command, confined and as another user if the options say so.
func run(ctx context.Context, cmd *exec.Cmd, o Options) error {
	var rules *confine.Rules
	switch {
	case o.Confinement != nil:
		made, err := o.Confinement.rules(o)
		if err != nil {
			return &execError{err}
		}
		rules = &made
	case o.User == nil:
		if err := cmd.Start(); err != nil {
			return &execError{err}
		}
		return nil
	}
	err := startAs(ctx, cmd, rules, o.User)
	if failed, ok := errors.AsType[*confine.StartError](err); ok && !failed.Confining {
		return &execError{err}
	}
	return err
}

// dumpVariable is the environment variable that tells Chrome's crash handler the
// directory for minidumps.
const dumpVariable = "BREAKPAD_DUMP_LOCATION"

// ignoreExit drops the error that only says that a process ended with a failure.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// begin identifies the child, takes our ends of the pipe, and starts to watch for the
// exit.
func (b *Browser) begin(pid int, p *pipe) error {
	proc, err := procfs.Read(pid)
	if err != nil {
		return err
	}
	b.identity = Identity{PID: pid, StartTime: proc.StartTime, BootID: boottime.ID()}
	if b.pidfd, err = openPidfd(pid); err != nil {
		return err
	}
	if b.commands, b.events, err = p.files(); err != nil {
		return errors.Join(err, b.pidfd.Close())
	}
	b.netLog, p.netLog = p.netLog, nil
	b.watching.Go(b.watch)
	return nil
}

// makeTempDir creates the directory and returns it. The directory is removed when the
// browser is closed, so it must have nothing in common with the profile.
func makeTempDir(dir, profile string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", tempPattern)
		if err != nil {
			return "", fmt.Errorf("temporary directory: %w", err)
		}
		if err := checkTempDir(made, profile); err != nil {
			return "", errors.Join(err, os.Remove(made))
		}
		return made, nil
	}
	if err := checkTempDir(dir, profile); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("temporary directory: %w", err)
	}
	return dir, nil
}

// CheckTemp returns an error if no browser could start, because the path of the host's temporary
// directory is too long. (That of a profile's directory may have any length.)
func CheckTemp() error {
	const random = len("4294967295") // the most that os.MkdirTemp adds to a name
	temp := filepath.Clean(os.TempDir())
	if most := MaxTempDir - len("/"+tempPattern) - random; len(temp) > most {
		return fmt.Errorf("the path of the temporary directory has %d bytes: want at most %d, since that of Chrome's socket below it has to fit into a socket's address: set TMPDIR to a shorter one than %s", len(temp), most, temp)
	}
	return nil
}

func checkTempDir(dir, profile string) error {
	switch {
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == filepath.Clean(os.TempDir()):
		return fmt.Errorf("temporary directory %s: want an absolute, clean path of its own", dir)
	case within(profile, dir) || within(dir, profile):
		return fmt.Errorf("temporary directory %s: want it apart from the profile %s, since it is removed", dir, profile)
	case len(dir) > MaxTempDir:
		return fmt.Errorf("temporary directory %s: want at most %d bytes, since Chrome's socket path has to fit", dir, MaxTempDir)
	}
	return nil
}

// within tells whether the clean path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func openOutput(path string) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	// With O_APPEND somebody else can truncate the file while the browser writes it.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("output of the browser: %w", err)
	}
	return f, nil
}
