package chrome

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
)

// Rung is how far the ladder had to be climbed to end a browser.
type Rung string

// The rungs, from the one that loses nothing to the one that loses the last 30
// seconds of cookies. SIGTERM is not among them: Chrome calls it an orderly end,
// and loses the cookies all the same.
const (
	RungAlreadyExited Rung = "already_exited"
	RungCDP           Rung = "cdp"
	RungInterrupt     Rung = "sigint"
	RungKill          Rung = "sigkill"
	// RungGroup is RungKill by the control group, where the browser has one.
	RungGroup Rung = "cgroup_kill"
)

// Killed tells whether processes were ended that could not say what they lost.
func (r Rung) Killed() bool { return r == RungKill || r == RungGroup }

// Bounds is how long each rung may take. Zero means the default.
type Bounds struct {
	Ask       time.Duration // 10 s
	Interrupt time.Duration // 5 s
	Kill      time.Duration // 5 s
}

func (b Bounds) withDefaults() Bounds {
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

// afterRefusal is how long a browser that could not be asked may still take to
// end: the answer may have been lost because it was ending already.
const afterRefusal = time.Second

// Close ends the browser, climbing as far as it has to: ask, which sends
// Browser.close and returns when ctx does at the latest; SIGINT; SIGKILL of the
// whole group, by the control group if it has one. ask may be nil where the browser cannot be reached. Close then
// waits until no process of the group is left (a helper that stays is killed,
// which makes the rung sigkill), closes our pipe ends, removes TempDir, and
// returns the highest rung that it took.
//
// When ctx ends, Close stops where it is and may be called again. After a Close
// that ended the browser, another returns its rung.
func (b *Browser) Close(ctx context.Context, ask func(context.Context) error, bounds Bounds) (Rung, error) {
	b.closing.Lock()
	defer b.closing.Unlock()
	switch {
	case b.closed:
		return b.rung, nil
	case b.detached:
		return "", fmt.Errorf("chrome pid %d: close: it was detached; adopt it first", b.identity.PID)
	}
	if err := b.end(ctx, ask, bounds.withDefaults()); err != nil {
		return b.rung, fmt.Errorf("chrome pid %d: close, at %s: %w", b.identity.PID, b.rung, err)
	}
	b.closed = true
	err := b.closeOurs()
	if b.tempDir != "" {
		err = errors.Join(err, os.RemoveAll(b.tempDir))
	}
	if err != nil {
		return b.rung, fmt.Errorf("chrome pid %d ended (%s), but not all could be cleaned up: %w", b.identity.PID, b.rung, err)
	}
	return b.rung, nil
}

// end returns nil when no process of the group is left.
func (b *Browser) end(ctx context.Context, ask func(context.Context) error, bounds Bounds) error {
	b.climb(RungAlreadyExited)
	if !b.hasExited() && ask != nil {
		b.climb(RungCDP)
		b.ask(ctx, ask, bounds.Ask)
	}
	if !b.hasExited() && ctx.Err() == nil {
		b.climb(RungInterrupt)
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
	if b.cgroup != nil {
		// Nothing escapes it, and nothing else is in it. Linux before 5.14 has no
		// such kill.
		if err := b.cgroup.Kill(); err == nil {
			b.climb(RungGroup)
			return b.kill(ctx, bounds.Kill)
		}
	}
	b.climb(RungKill)
	return b.kill(ctx, bounds.Kill)
}

// climb notes a rung; a Close that is called again does not come down.
func (b *Browser) climb(to Rung) {
	ladder := []Rung{"", RungAlreadyExited, RungCDP, RungInterrupt, RungKill, RungGroup}
	if slices.Index(ladder, to) > slices.Index(ladder, b.rung) {
		b.rung = to
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

// wait returns when the main process has ended, or time is up.
func (b *Browser) wait(ctx context.Context, bound time.Duration) {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-b.exited:
	case <-ctx.Done():
	case <-t.C:
	}
}

// ask runs the question and waits for the end, both within the bound.
func (b *Browser) ask(ctx context.Context, ask func(context.Context) error, bound time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, bound)
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
	if err != nil {
		bound = min(bound, afterRefusal)
	}
	b.wait(ctx, bound)
}

// kill ends the whole group. The main process goes first and by its pidfd: then
// nothing is left that could start more.
func (b *Browser) kill(ctx context.Context, bound time.Duration) error {
	if err := b.signal(unix.SIGKILL); err != nil {
		return err
	}
	deadline := time.Now().Add(bound)
	for {
		left, err := b.Processes()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			b.wait(ctx, time.Until(deadline)) // for its status
			if b.hasExited() {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("SIGKILL did not end pid %s within %v: look for them in an uninterruptible wait (state D)", pidList(left), bound)
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

// waitGroup waits for the helpers to follow the main process, and returns those
// that have not when time is up.
func (b *Browser) waitGroup(ctx context.Context, bound time.Duration) ([]procfs.Process, error) {
	deadline := time.Now().Add(bound)
	for {
		left, err := b.Processes()
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// pause is between two looks at the processes: helpers take milliseconds.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// Among returns the living processes of the browser's process group among all of
// the host's. The kernel does not give the number to anybody else while a member
// lives. When none does, it may: then there is a leader with another start time, and
// none of them is ours.
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

// killProcess sends SIGKILL to this very process: the pidfd is opened before the
// start time is compared, so that a pid that was used again is not hit.
func killProcess(p procfs.Process) error {
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
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: SIGKILL: %w", p.PID, err)
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
