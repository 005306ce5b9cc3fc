package chrome

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The debugging pipe of a Chrome is two pairs of connected sockets, one for each
// direction. Real pipes would do, too, but any program of the same user can open those
// through /proc, and drive the browser past the launcher. The end of such a pair cannot
// be opened: only who may attach a debugger to Chrome can take a copy of it.

// The descriptors of a Chrome's main process.
const (
	fdCommands = 3 // read by Chrome
	fdEvents   = 4 // written by Chrome
	// Copies of our ends. With them a browser outlives its launcher, and the next one
	// finds them here.
	fdOurCommands = 5
	fdOurEvents   = 6
	// Both ends of the pipe of the NetLog. Chrome opens its own end by the first; with the
	// second the log is never without a reader, and the next launcher reads on.
	fdNetLog    = 7
	fdOurNetLog = 8
)

// pipe is the debugging pipe of a browser that is being started.
type pipe struct {
	// inherited are the browser's ends and copies of ours, in the order of the
	// browser's descriptors.
	inherited []*os.File
	// commands and events are our ends: we write commands and read events. They are
	// -1 once files has returned them.
	commands, events int
	netLog           *netLog // our end of the NetLog's pipe
}

// newPipe makes the pipe without package os: the browser's ends have to be blocking,
// while ours, and the copies of ours, are not.
func newPipe() (_ *pipe, err error) {
	p := &pipe{commands: -1, events: -1}
	defer func() {
		if err != nil {
			p.closeInherited()
			err = errors.Join(err, p.closeOurs())
		}
	}()
	for _, end := range []struct {
		name string
		ours *int
	}{{"commands", &p.commands}, {"events", &p.events}} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("pipe of the browser: %w", err)
		}
		p.inherited, *end.ours = append(p.inherited, os.NewFile(uintptr(pair[0]), end.name)), pair[1]
		enlarge(pair[0])
		enlarge(pair[1])
	}
	for _, ours := range []int{p.commands, p.events} {
		duplicate, err := unix.FcntlInt(uintptr(ours), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("pipe of the browser: %w", err)
		}
		p.inherited = append(p.inherited, os.NewFile(uintptr(duplicate), "kept open"))
	}
	return p, p.addNetLog()
}

// addNetLog makes the pipe of the NetLog. It cannot be a pair of sockets: Chrome opens it by a path.
func (p *pipe) addNetLog() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("pipe of the NetLog: %w", err)
	}
	p.inherited = append(p.inherited, os.NewFile(uintptr(ends[1]), "NetLog"))
	// Without the right to that it has less room, and Chrome waits, in a thread of its own.
	_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeSize)
	kept, err := unix.FcntlInt(uintptr(ends[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		p.inherited = append(p.inherited, os.NewFile(uintptr(kept), "kept open"))
		err = unix.SetNonblock(ends[0], true)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pipe of the NetLog: %w", err), unix.Close(ends[0]))
	}
	p.netLog, err = newNetLog(ends[0])
	return err
}

// pipeSize is how many bytes each direction should have room for. With Linux' default a large
// message takes many wake-ups. The kernel allocates the memory only for what is in it.
const pipeSize = 1 << 20

// enlarge lets a socket's sender be pipeSize bytes ahead. Without the right to that it
// may be as far ahead as the host allows everybody, which is only slower.
func enlarge(fd int) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, pipeSize); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, pipeSize)
	}
}

// files returns our ends, made nonblocking so that deadlines work. The caller closes
// them.
func (p *pipe) files() (commands, events *os.File, err error) {
	for _, ours := range []int{p.commands, p.events} {
		if err := unix.SetNonblock(ours, true); err != nil {
			return nil, nil, fmt.Errorf("pipe of the browser: %w", err)
		}
	}
	commands, events = os.NewFile(uintptr(p.commands), "browser commands"), os.NewFile(uintptr(p.events), "browser events")
	p.commands, p.events = -1, -1
	return commands, events, nil
}

func (p *pipe) closeInherited() {
	for _, f := range p.inherited {
		f.Close()
	}
}

func (p *pipe) closeOurs() error {
	var errs []error
	for _, fd := range []int{p.commands, p.events} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	p.commands, p.events = -1, -1
	if p.netLog != nil {
		errs = append(errs, p.netLog.Close())
	}
	return errors.Join(errs...)
}

// takePipe takes copies of our ends of the pipe of a browser that was adopted.
func (b *Browser) takePipe() (err error) {
	if b.commands, err = b.take(fdOurCommands, fdCommands); err != nil {
		return err
	}
	if b.events, err = b.take(fdOurEvents, fdEvents); err != nil {
		return err
	}
	if fi, statErr := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", b.identity.PID, fdOurNetLog)); statErr != nil || fi.Mode().Type() != os.ModeNamedPipe {
		err = errors.New("another version has started the browser")
	} else {
		b.netLog, err = b.takeNetLog()
	}
	if err != nil {
		b.warnings = append(b.warnings, fmt.Sprintf("what pages do not report is not known: %v", err))
	}
	// Where they came from was named by the pid only. The proofs are still true, so the pid
	// was not used again meanwhile, and the ends are the browser's own.
	if err := b.prove(); err != nil {
		return err
	}
	// A full pipe is no reason to fail. It means that the browser hangs: the first
	// call will show that, and the browser can be closed.
	if err := b.commands.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	// It ends what the launcher before may have written a part of, so that it is no command: not even if only
	// the zero byte was missing.
	if _, err := b.commands.Write([]byte("!\x00")); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("chrome pid %d: commands: %w", b.identity.PID, err)
	}
	return b.commands.SetWriteDeadline(time.Time{})
}

// take returns our end of one direction. ours is the descriptor that the browser keeps
// it in, and its own is the other end.
func (b *Browser) take(ours, its int) (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", b.identity.PID, its)
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("chrome pid %d: %s: want its debugging pipe: %w", b.identity.PID, path, err)
	}
	if fi.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("chrome pid %d: %s: want its debugging pipe, but it is a %v", b.identity.PID, path, fi.Mode().Type())
	}
	return b.copyOf(ours)
}

// takeNetLog takes a copy of our end of the NetLog's pipe.
func (b *Browser) takeNetLog() (*netLog, error) {
	f, err := b.copyOf(fdOurNetLog)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := b.duplicate(f)
	if err != nil {
		return nil, err
	}
	return newNetLog(fd)
}

func (b *Browser) copyOf(ours int) (*os.File, error) {
	fd := -1
	conn, err := b.pidfd.SyscallConn()
	if err == nil {
		var got error
		err = conn.Control(func(pidfd uintptr) { fd, got = unix.PidfdGetfd(int(pidfd), ours, 0) })
		err = errors.Join(err, got)
	}
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("chrome pid %d: a copy of its descriptor %d: %w: the kernel lets nobody of this user attach to it (kernel.yama.ptrace_scope?)", b.identity.PID, ours, err)
	}
	if err != nil {
		return nil, fmt.Errorf("chrome pid %d: a copy of its descriptor %d: %w", b.identity.PID, ours, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("chrome pid %d: descriptor %d: %w", b.identity.PID, ours, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "browser pipe"), nil
}
