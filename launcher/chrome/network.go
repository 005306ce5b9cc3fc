package chrome

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
)

// Everything that a browser sends goes through one of its processes: the network service.
// While that process is stopped by a signal nothing leaves the browser, and its pages can
// still be looked at. What they send meanwhile waits in the memory of the process: it goes
// out when the process goes on, and is gone when it is killed. Chrome then starts another.

// The arguments by which Chrome's helpers say what they are.
const (
	networkArgument  = "--utility-sub-type=network.mojom.NetworkService"
	rendererArgument = "--type=renderer"
	zygoteArgument   = "--type=zygote" // each browser has one
)

// ErrNoNetworkService says that a browser has no process through which everything goes that it
// sends: it is about to start one, or it is not a Chrome as we know it.
var ErrNoNetworkService = errors.New("the browser has no network service")

// ErrNoZygote says that a browser does not even have the process from which others are
// made, so that no network service is to be waited for.
var ErrNoZygote = errors.New("it starts no processes")

// ErrStopping says that a network service was told to stop, and that it is not known whether it has: it
// stops as soon as the kernel gets to it, and stays so until it is told to go on.
var ErrStopping = errors.New("it was told to stop, and it is not known whether it has")

// NetworkService is the process of a browser through which everything goes that it sends.
// Its methods may be called concurrently. Close has to be called when it is done with.
type NetworkService struct {
	process procfs.Process
	pidfd   *os.File // in the poller
}

// NetworkService finds the browser's network service. The error wraps ErrNoNetworkService
// where there is none.
func (b *Browser) NetworkService() (*NetworkService, error) {
	found, err := b.helpers(networkArgument)
	if err != nil {
		return nil, err
	}
	// One that has ended and another that has just been started may both be there.
	for i := len(found) - 1; i >= 0; i-- {
		n, err := openNetworkService(found[i])
		if !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
	}
	err = ErrNoNetworkService
	if zygotes, listing := b.helpers(zygoteArgument); listing == nil && len(zygotes) == 0 {
		err = fmt.Errorf("%w: %w", err, ErrNoZygote)
	}
	return nil, fmt.Errorf("chrome pid %d: %w", b.identity.PID, err)
}

// openNetworkService opens a pidfd of this very process. It is opened before the start
// time is compared, so no other process that got the pid meanwhile is meant.
func openNetworkService(p procfs.Process) (*NetworkService, error) {
	pidfd, err := openPidfd(p.PID)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	now, err := procfs.Read(p.PID)
	if err == nil && (now.StartTime != p.StartTime || now.Group != p.Group || !now.Alive()) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, pidfd.Close())
	}
	return &NetworkService{process: p, pidfd: pidfd}, nil
}

// helpers returns the living processes of the browser that have one of the arguments, in the
// order in which they were started.
func (b *Browser) helpers(arguments ...string) ([]procfs.Process, error) {
	members, err := b.Processes()
	if err != nil {
		return nil, err
	}
	var found []procfs.Process
	for _, p := range members {
		line, err := procfs.CommandLine(p.PID)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if p.PID != b.identity.PID && slices.ContainsFunc(arguments, func(a string) bool { return hasArgument(line, a) }) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b procfs.Process) int { return cmp.Compare(a.StartTime, b.StartTime) })
	return found, nil
}

// hasArgument tells whether a helper's command line has exactly this argument. Helpers
// join theirs with spaces.
func hasArgument(line []byte, argument string) bool {
	isBreak := func(r rune) bool { return r == 0 || r == ' ' }
	for _, field := range bytes.FieldsFunc(line, isBreak) {
		if string(field) == argument {
			return true
		}
	}
	return false
}

// PID is the process id.
func (n *NetworkService) PID() int { return n.process.PID }

// AwaitRest returns when the process has nothing to do: all its threads slept throughout a
// moment. Then it has taken in everything that was sent to it before.
func (n *NetworkService) AwaitRest(ctx context.Context) error {
	if err := awaitRest(ctx, n.process.PID); err != nil {
		return fmt.Errorf("network service %d: %w", n.process.PID, err)
	}
	return nil
}

// awaitRest returns when the processes have nothing to do, and no message from one to another
// is on its way: a message would wake up its receiver.
func awaitRest(ctx context.Context, pids ...int) error {
	before := time.Duration(-1)
	for {
		var ran time.Duration
		asleep := true
		for _, pid := range pids {
			more, sleeps, err := procfs.Ran(pid)
			if err != nil {
				return err
			}
			ran, asleep = ran+more, asleep && sleeps
		}
		switch {
		case asleep && ran == before:
			return nil
		case asleep:
			before = ran
		default:
			before = -1
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not come to rest: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// Stop stops the process, and returns when none of its threads runs any more. An error that does not wrap
// ErrStopping says that the process was not told to.
func (n *NetworkService) Stop(ctx context.Context) error {
	if err := n.signal(unix.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := n.Stopped()
		if stopped {
			return nil
		}
		if err == nil {
			err = wait(ctx, time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("network service %d: %w: %w", n.process.PID, ErrStopping, err)
		}
	}
}

// Stopped tells whether none of the process's threads runs, because of a signal.
func (n *NetworkService) Stopped() (bool, error) {
	threads, err := procfs.Threads(n.process.PID)
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		if thread.State != 'T' && thread.State != 't' {
			return false, nil
		}
	}
	return len(threads) > 0, nil
}

// Continue lets a stopped process go on: it sends what waits in it.
func (n *NetworkService) Continue() error { return n.signal(unix.SIGCONT) }

// Kill ends the process with all that waits in it, and returns when it has ended.
func (n *NetworkService) Kill(ctx context.Context) error {
	if err := n.signal(unix.SIGKILL); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.AwaitEnd()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		// Close, which comes in any case, ends the waiting.
		return fmt.Errorf("network service %d does not end: %w", n.process.PID, context.Cause(ctx))
	}
}

// AwaitEnd returns when the process has ended, or n is closed. It tells which.
func (n *NetworkService) AwaitEnd() (ended bool) {
	conn, err := n.pidfd.SyscallConn()
	return err == nil && conn.Read(pidfdReadable) == nil
}

// Ended tells whether the process has ended.
func (n *NetworkService) Ended() bool {
	conn, err := n.pidfd.SyscallConn()
	ended := err != nil
	if err == nil {
		err = conn.Control(func(fd uintptr) { ended = pidfdReadable(fd) })
	}
	return ended || err != nil
}

// Close forgets the process, which stays as it is.
func (n *NetworkService) Close() error { return n.pidfd.Close() }

// signal sends a signal to this very process. One that has ended already needs none.
func (n *NetworkService) signal(sig unix.Signal) error {
	conn, err := n.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("network service %d: %w", n.process.PID, err)
	}
	var sent error
	err = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if errors.Is(sent, unix.ESRCH) {
		sent = nil
	}
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("network service %d: %v: %w", n.process.PID, sig, err)
	}
	return nil
}

// StopRenderers stops every process of the browser in which a page, a frame or a worker of
// one runs, until ContinueRenderers is called. What they have sent before is on its way.
func (b *Browser) StopRenderers() error {
	_, err := b.signalRenderers(unix.SIGSTOP)
	return err
}

// ContinueRenderers lets stopped ones go on.
func (b *Browser) ContinueRenderers() error {
	_, err := b.signalRenderers(unix.SIGCONT)
	return err
}

func (b *Browser) signalRenderers(sig unix.Signal) (found []procfs.Process, err error) {
	found, err = b.helpers(rendererArgument)
	for _, p := range found {
		err = errors.Join(err, signalProcess(p, sig))
	}
	return found, err
}

// KillRenderers ends every process of the browser in which a page, a frame or a worker of
// one runs, so that none of them can do anything more: not even what pages do when they
// are closed. It returns when all that were there are gone. Chrome may start others, for
// a worker that it wakes up.
func (b *Browser) KillRenderers(ctx context.Context) error {
	left, err := b.signalRenderers(unix.SIGKILL)
	if err != nil {
		return err
	}
	for left = slices.DeleteFunc(left, hasEnded); len(left) > 0; left = slices.DeleteFunc(left, hasEnded) {
		if err := wait(ctx, time.Millisecond); err != nil { // the release of the profile waits for them
			return fmt.Errorf("renderers of chrome pid %d do not end (pid %s): %w", b.identity.PID, pidList(left), err)
		}
	}
	_, err = b.signalRenderers(unix.SIGKILL) // those that were started meanwhile
	return err
}

// hasEnded tells whether all threads of a process have ended. A process counts as a zombie once its
// first thread has ended; what it has open is closed, and others hear of that, with the last one.
func hasEnded(p procfs.Process) bool {
	now, err := procfs.Read(p.PID)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	threads, err := procfs.Threads(p.PID)
	return !now.Same(p) || !now.Alive() && (errors.Is(err, fs.ErrNotExist) || len(threads) == 1)
}
