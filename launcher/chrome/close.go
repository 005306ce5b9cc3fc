package chrome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
)

// CloseMethod is the method by which a browser was ended.
type CloseMethod string

// The methods, from the one that loses nothing to those that lose the last 30 seconds
// of cookies. SIGTERM is not used: Chrome takes it for an orderly end, and loses the
// cookies all the same.
const (
	AlreadyExited     CloseMethod = "already_exited"
	ClosedByCDP       CloseMethod = "cdp"
	ClosedByInterrupt CloseMethod = "sigint"
	ClosedByKill      CloseMethod = "sigkill"
	// ClosedByGroupKill is ClosedByKill by the control group, where the browser has one.
	ClosedByGroupKill CloseMethod = "cgroup_kill"
)

// Killed tells whether processes were killed, which may have lost data.
func (m CloseMethod) Killed() bool { return m == ClosedByKill || m == ClosedByGroupKill }

// CloseTimeouts is how long each method may take. Zero means the default.
type CloseTimeouts struct {
	Ask       time.Duration // 10 s
	Interrupt time.Duration // 5 s
	Kill      time.Duration // 5 s
	// AtOnce says that the browser is not asked to end, nor sent SIGINT: nothing in its
	// directory is to be kept, and its pages are not to send what they would at their end.
	AtOnce bool
	// BeforeSignal is called once before the first signal, if the browser did not end
	// without one. Its error ends Close, with the browser as it is. nil: nothing is
	// called.
	BeforeSignal func() error
}

// Asking is how long a browser may take for what it is asked before it is asked to end.
func (b CloseTimeouts) Asking() time.Duration { return b.withDefaults().Ask }

func (b CloseTimeouts) withDefaults() CloseTimeouts {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&b.Ask, 10*time.Second)
	set(&b.Interrupt, 5*time.Second)
	set(&b.Kill, 5*time.Second)
	return b
}

// NotSignalledError says that CloseTimeouts.BeforeSignal did not let the browser be ended by
// signals, and why. It lives.
type NotSignalledError struct{ Err error }

func (e *NotSignalledError) Error() string {
	return "it does not end by itself, and is not killed: " + e.Err.Error()
}
func (e *NotSignalledError) Unwrap() error { return e.Err }

// afterFailedAsk is how long a browser may take to end after ask has failed, if its pipe did not end.
const afterFailedAsk = time.Second

// Close ends the browser. It tries one method after the other until the browser has
// ended: ask, which sends Browser.close and returns when its context ends at the
// latest; SIGINT; SIGKILL of the whole process group, by the control group if the
// browser has one. ask may be nil if the browser cannot be reached. If its error is io.EOF, the
// pipe has ended, and the answer with it: the browser is ending.
//
// Close then waits until no process of the group is left. A helper that does not end
// is killed, and the method counts as sigkill. At last Close closes our pipe ends,
// removes TempDir, and returns the strongest method that was used.
//
// When ctx ends, Close stops where it is and may be called again. After a Close that
// ended the browser, another one returns the same method.
func (b *Browser) Close(ctx context.Context, ask func(context.Context) error, bounds CloseTimeouts) (CloseMethod, error) {
	b.closing.Lock()
	defer b.closing.Unlock()
	switch {
	case b.closed:
		return b.method, nil
	case b.detached:
		return "", fmt.Errorf("chrome pid %d: close: it was detached; adopt it first", b.identity.PID)
	}
	if err := b.end(ctx, ask, bounds.withDefaults()); err != nil {
		return b.method, fmt.Errorf("chrome pid %d: close, at %s: %w", b.identity.PID, b.method, err)
	}
	b.closed = true
	err := b.closeOurs()
	if b.tempDir != "" {
		err = errors.Join(err, os.RemoveAll(b.tempDir))
	}
	if err != nil {
		return b.method, fmt.Errorf("chrome pid %d ended (%s), but not all could be cleaned up: %w", b.identity.PID, b.method, err)
	}
	return b.method, nil
}

// end tries the methods in turn. It returns nil when no process of the group is left.
func (b *Browser) end(ctx context.Context, ask func(context.Context) error, bounds CloseTimeouts) error {
	b.escalate(AlreadyExited)
	if bounds.AtOnce {
		return b.killAll(ctx, bounds.Kill)
	}
	if !b.hasExited() && ask != nil {
		b.escalate(ClosedByCDP)
		b.ask(ctx, ask, bounds.Ask)
	}
	if !b.hasExited() && ctx.Err() == nil {
		if bounds.BeforeSignal != nil {
			if err := bounds.BeforeSignal(); err != nil {
				return &NotSignalledError{err}
			}
			bounds.BeforeSignal = nil
		}
		b.escalate(ClosedByInterrupt)
		if err := b.signal(unix.SIGINT); err != nil {
			return err
		}
		b.wait(ctx, bounds.Interrupt)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if b.hasExited() {
		left, err := b.waitGroup(ctx, bounds.Kill)
		if err != nil || len(left) == 0 {
			return err
		}
	}
	if bounds.BeforeSignal != nil { // helpers are left
		if err := bounds.BeforeSignal(); err != nil {
			return &NotSignalledError{err}
		}
	}
	return b.killAll(ctx, bounds.Kill)
}

func (b *Browser) killAll(ctx context.Context, timeout time.Duration) error {
	if b.cgroup != nil {
		// It kills every process of the browser, and no other. Linux before 5.14
		// does not have it.
		if err := b.cgroup.Kill(); err == nil {
			b.escalate(ClosedByGroupKill)
			return b.kill(ctx, timeout)
		}
	}
	b.escalate(ClosedByKill)
	return b.kill(ctx, timeout)
}

// escalate notes that a method is used. A weaker one, of a Close that is called again,
// does not replace a stronger one.
func (b *Browser) escalate(to CloseMethod) {
	order := []CloseMethod{"", AlreadyExited, ClosedByCDP, ClosedByInterrupt, ClosedByKill, ClosedByGroupKill}
	if slices.Index(order, to) > slices.Index(order, b.method) {
		b.method = to
	}
}

func (b *Browser) hasExited() bool {
	select {
	case <-b.exited:
		return true
	default:
		return false
	}
}

// wait returns when the main process has ended, ctx has, or the timeout has passed.
func (b *Browser) wait(ctx context.Context, timeout time.Duration) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-b.exited:
	case <-ctx.Done():
	case <-t.C:
	}
}

// ask calls the caller's ask and waits for the browser to end, both within the
// timeout.
func (b *Browser) ask(ctx context.Context, ask func(context.Context) error, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	answered := make(chan error, 1)
	go func() { answered <- ask(ctx) }()
	var err error
	select {
	case <-b.exited:
		cancel()
		<-answered //nolint:errcheck // the browser is gone, whatever was answered
		return
	case err = <-answered:
	}
	defer cancel()
	if err != nil && !errors.Is(err, io.EOF) {
		timeout = min(timeout, afterFailedAsk)
	}
	b.wait(ctx, timeout)
}

// kill ends the whole process group. The main process is killed first, by its pidfd:
// after that nothing starts more processes.
func (b *Browser) kill(ctx context.Context, timeout time.Duration) error {
	if err := b.signal(unix.SIGKILL); err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for {
		left, err := b.Processes()
		if err != nil {
			return err
		}
		if len(left) == 0 { // all that can be late is this process
			select {
			case <-b.exited: // with its status
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("SIGKILL did not end pid %s within %v: look for them in an uninterruptible wait (state D)", pidList(left), timeout)
		}
		for _, p := range left {
			if err := killProcess(p); err != nil {
				return err
			}
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// waitGroup waits for the helpers to end after the main process, and returns those
// that are left when the timeout has passed.
func (b *Browser) waitGroup(ctx context.Context, timeout time.Duration) ([]procfs.Process, error) {
	deadline := time.Now().Add(timeout)
	for {
		left, err := b.Processes()
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		if err := wait(ctx, 2*time.Millisecond); err != nil { // the release of the profile waits for them
			return nil, err
		}
	}
}

// pause waits between two looks at the processes. Helpers end within milliseconds.
func pause(ctx context.Context) error { return wait(ctx, 10*time.Millisecond) }

// wait returns after d, or with the cause if the context ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Among returns those of the processes that live and are in the browser's process group.
// Its leader is one of them, if it is there. The kernel does not give the group's number to
// another group while a member lives. Once none does, the number may be used again. That is
// seen by the start time of the group's leader, and then no process is the browser's.
func (b *Browser) Among(all []procfs.Process) []procfs.Process {
	var members []procfs.Process
	for _, p := range all {
		if p.PID == b.identity.PID && p.StartTime != b.identity.StartTime {
			return nil
		}
		if p.Group == b.identity.PID && p.Alive() && p.StartTime >= b.identity.StartTime {
			members = append(members, p)
		}
	}
	return members
}

// killProcess sends SIGKILL to this very process. The pidfd is opened before the start
// time is compared, so another process that got the pid meanwhile is not killed.
func killProcess(p procfs.Process) error { return signalProcess(p, unix.SIGKILL) }

// signalProcess sends a signal to this very process. One that has ended needs none.
func signalProcess(p procfs.Process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: pidfd: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	now, err := procfs.Read(p.PID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (now.StartTime != p.StartTime || now.Group != p.Group) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %v: %w", p.PID, sig, err)
	}
	return nil
}

func pidList(ps []procfs.Process) string {
	var names []string
	for _, p := range ps {
		names = append(names, fmt.Sprint(p.PID))
	}
	return strings.Join(names, ", ")
}
