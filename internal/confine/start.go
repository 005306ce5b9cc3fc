package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/runas"
)

// command is the name of this binary, as its first argument, while it is about to become
// another program.
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
	_, err := start(ctx, cmd, order{Rules: &r})
	return err
}

// StartAs is Start for a program of another user, with one group and no capabilities. This
// process needs the capabilities for that (runas.Check). If r is nil, the program has no rules.
// pass are directories through which the user has to be able to pass: a *PassError names the
// first one, or one above it, through which that user cannot.
func StartAs(ctx context.Context, cmd *exec.Cmd, r *Rules, as runas.User, pass ...string) error {
	_, err := start(ctx, cmd, order{Rules: r, As: &as, Pass: pass})
	return err
}

// StartOffline is Start for a program in a network of its own, which consists of a loopback
// interface that nobody else can reach. It returns a TCP socket (IPv4) of that network, not
// connected to anything yet: the caller can connect it to the program, and closes it. If r is
// nil, the program has that network, but no rules. If as is given, it is a program of that
// user.
//
// A user that is not root has to be allowed to make user namespaces, and cannot start a program
// of another user in this way: that user does not exist in the new namespace.
func StartOffline(ctx context.Context, cmd *exec.Cmd, r *Rules, as *runas.User) (socket *os.File, err error) {
	if as != nil && os.Geteuid() != 0 {
		return nil, &StartError{Path: cmd.Path, Confining: true, Err: fmt.Errorf("only root gives a program of another user (%v) a network of its own", as)}
	}
	return start(ctx, cmd, order{Rules: r, Offline: true, As: as})
}

// order is what the process is told that becomes the program.
type order struct {
	Rules   *Rules `json:"rules,omitempty"`
	Offline bool   `json:"offline,omitempty"`
	// Mapped says that the process is in a user namespace of its own, in which it has
	// to give itself its user.
	Mapped bool `json:"mapped,omitempty"`
	UID    int  `json:"uid"`
	GID    int  `json:"gid"`
	// As is the user that the program shall have.
	As *runas.User `json:"as,omitempty"`
	// Pass are directories through which this user has to be able to pass.
	Pass []string `json:"pass,omitempty"`
}

// capabilities are those that the process needs in its own namespaces before it becomes the
// program: to set user and group ids, and to bring up the network.
var capabilities = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}

func start(ctx context.Context, cmd *exec.Cmd, o order) (*os.File, error) {
	path := cmd.Path
	if cmd.Err != nil {
		return nil, &StartError{Path: path, Err: cmd.Err}
	}
	failed := func(err error) error { return &StartError{Path: path, Confining: true, Err: err} }
	o.UID, o.GID = os.Geteuid(), os.Getegid()
	if o.Offline {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
		if o.Mapped = o.UID != 0; o.Mapped {
			// The new process maps the ids itself: an undumpable process cannot do that for
			// another one.
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.AmbientCaps = capabilities
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, failed(err)
	}
	status, theirs, err := socketPair()
	if err != nil {
		return nil, failed(err)
	}
	defer status.Close()
	defer theirs.Close()
	// It is closed when the program starts, which shows that the start succeeded.
	fd := 3 + len(cmd.ExtraFiles)
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	cmd.Args = append([]string{command, string(text), strconv.Itoa(fd), path}, cmd.Args...)
	// This is the binary that runs, even if the file was replaced since.
	cmd.Path = "/proc/self/exe"
	if err := cmd.Start(); err != nil {
		return nil, failed(err)
	}
	if err := theirs.Close(); err != nil {
		return nil, failed(errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	socket, said, err := listen(status)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err == nil && len(said) == 0 && (socket != nil) == o.Offline {
		return socket, nil
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it has failed: its status says no more than the message
	if socket != nil {
		err = errors.Join(err, socket.Close())
	}
	var m message
	if err == nil {
		err = json.Unmarshal(said, &m)
	}
	if err != nil {
		return nil, failed(err)
	}
	return nil, &StartError{Path: path, Confining: m.Confining, Err: m.err()}
}

// socketPair returns two connected sockets: ours, and that of the new process.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "status"), os.NewFile(uintptr(fds[1]), "status")
	defer ours.Close() // FileConn has a copy
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c.(*net.UnixConn), theirs, nil
}

// ready is the message that comes together with a socket.
const ready = "+"

// listen returns the socket that the new process sent, if any, and what it said before
// it ended or became the program.
func listen(status *net.UnixConn) (socket *os.File, said []byte, err error) {
	data, beside := make([]byte, len(ready)), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := status.ReadMsgUnix(data, beside)
	if errors.Is(err, io.EOF) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if m > 0 {
		if socket, err = received(beside[:m]); err != nil {
			return nil, nil, err
		}
		n = 0
	}
	rest, err := io.ReadAll(status)
	return socket, append(data[:n], rest...), err
}

func received(beside []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil || len(fds) == 0 {
			continue
		}
		unix.CloseOnExec(fds[0])
		return os.NewFile(uintptr(fds[0]), "socket of the program's network"), nil
	}
	return nil, errors.New("want a socket, and none came")
}

// message says why the process could not become the program.
type message struct {
	Confining bool          `json:"confining,omitempty"`
	Text      string        `json:"text"`
	Errno     syscall.Errno `json:"errno,omitempty"`
	// Closed is set for a *PassError.
	Closed *PassError `json:"closed,omitempty"`
}

func (m message) err() error {
	if m.Closed != nil {
		return m.Closed
	}
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
func become(text, statusFD, path string, args []string) {
	// Capabilities belong to a thread: the one that becomes the program has to drop them.
	runtime.LockOSThread()
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
	if err := prepare(text, fd); err != nil {
		m := message{Confining: true, Text: err.Error()}
		errors.As(err, &m.Closed)
		say(m)
		return
	}
	// It ends all other threads.
	err = syscall.Exec(path, args, os.Environ())
	m := message{Text: err.Error()}
	errors.As(err, &m.Errno)
	say(m)
}

func prepare(text string, status int) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.Mapped {
		if err := mapUser(o.UID, o.GID); err != nil {
			return err
		}
	}
	if o.Offline {
		socket, err := loopback()
		if err != nil {
			return err
		}
		if err := unix.Sendmsg(status, []byte(ready), unix.UnixRights(socket), nil, 0); err != nil {
			return fmt.Errorf("sending the socket: %w", err)
		}
		if err := unix.Close(socket); err != nil {
			return err
		}
	}
	if o.Mapped {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("dropping capabilities: %w", err)
		}
	}
	if o.Rules != nil {
		if o.Rules.Attach {
			// A kernel without Yama refuses the option, and needs none.
			if err := unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("letting others attach: %w", err)
			}
		}
		if err := o.Rules.apply(); err != nil {
			return err
		}
	}
	if o.As == nil {
		return nil
	}
	return dropTo(*o.As, o.Pass)
}

// mapUser gives this process, in its new user namespace, the user and group that it has
// outside.
func mapUser(uid, gid int) error {
	for _, f := range []struct{ name, content string }{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("%d %d 1", uid, uid)},
		{"gid_map", fmt.Sprintf("%d %d 1", gid, gid)},
	} {
		if err := os.WriteFile("/proc/self/"+f.name, []byte(f.content), 0); err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
	}
	return nil
}

// loopback brings the loopback interface of this process's network up, and returns a
// socket of that network.
func loopback() (socket int, err error) {
	socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, lo)
	}
	if err == nil {
		lo.SetUint16(lo.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("loopback interface: %w", err), unix.Close(socket))
	}
	return socket, nil
}

// MakeUndumpable keeps other processes of the same user away from this process's memory,
// environment and open files: they cannot be read in /proc, and no debugger of that user can
// attach. Programs that it starts are not undumpable. Neither it nor they leave a core dump.
func MakeUndumpable() error {
	// With 0, a core_pattern that is a pipe would still get a dump.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("setrlimit(RLIMIT_CORE): %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_DUMPABLE): %w", err)
	}
	return nil
}
