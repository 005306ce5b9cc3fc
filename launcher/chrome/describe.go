package chrome

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/confine"
	"leasehold/internal/foreign"
	"leasehold/internal/runas"
)

// Describe has a browser on an empty, throwaway profile below tmp describe its protocol,
// as /json/protocol does. A browser does so on a port only. This one has a network of
// its own, in which nobody else can reach it.
//
// Where the kernel does not allow that, the port is one of the host for that moment: then
// the browser has to be confined, so that whoever reaches it finds no file. With
// neither, Describe returns an error.
//
// With a user the browser is that user's, and its profile is in the system's temporary
// directory.
func Describe(ctx context.Context, binary, tmp string, c *Confinement, as *runas.User) (_ []byte, err error) {
	dir, sockets, err := throwaway(tmp, as)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeSoon(dir, sockets)) }()
	env, err := environmentOf(as, sockets)
	if err != nil {
		return nil, err
	}
	var rules *confine.Rules
	if c != nil {
		// It needs no directory of anybody else.
		made, err := Confinement{}.rules(Options{Binary: binary, ProfileDir: dir, TempDir: sockets, Headless: true, User: as})
		if err != nil {
			return nil, err
		}
		made.Listen = true
		rules = &made
	}
	command := func() *exec.Cmd {
		args := []string{
			"--headless", "--remote-debugging-port=0", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu",
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
		}
		if uidOf(as) == 0 {
			args = append(args, "--no-sandbox")
		}
		cmd := exec.Command(binary, args...)
		cmd.Env = append(slices.Clone(env), "TMPDIR="+sockets)
		if as != nil {
			cmd.Dir = "/"
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	cmd := command()
	socket, err := confine.StartOffline(ctx, cmd, rules, as)
	if failed, ok := errors.AsType[*confine.StartError](err); ok && failed.Confining && rules != nil && ctx.Err() == nil {
		cmd = command()
		err = startAs(ctx, cmd, rules, as)
	}
	if err != nil {
		return nil, fmt.Errorf("a browser that nobody else can reach: %w: allow user namespaces, or --browser-sandbox", err)
	}
	if socket != nil {
		defer socket.Close()
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // its status is in ProcessState
	}()
	defer func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-exited
	}()
	port, err := awaitPort(ctx, dir, exited)
	if err != nil {
		return nil, fmt.Errorf("%s, started to be asked: %w", binary, err)
	}
	return fetch(ctx, socket, port)
}

// throwaway makes the directories of a browser that is only asked for its protocol: its
// profile, and its temporary directory.
func throwaway(tmp string, as *runas.User) (dir, sockets string, err error) {
	pattern := "protocol-"
	if as != nil { // who cannot pass through the launcher's own directories
		tmp, pattern = os.TempDir(), tempPattern
	}
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return "", "", err
	}
	if dir, err = os.MkdirTemp(tmp, pattern); err != nil {
		return "", "", err
	}
	// Chrome's socket there has to fit into a socket address: not below dir.
	if sockets, err = os.MkdirTemp("", tempPattern); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(dir))
	}
	if as != nil {
		err = errors.Join(as.Own(dir), as.Own(sockets))
	}
	if err != nil {
		return "", "", errors.Join(err, os.RemoveAll(dir), os.RemoveAll(sockets))
	}
	return dir, sockets, nil
}

// awaitPort waits for the browser to write its port into a file of its profile.
func awaitPort(ctx context.Context, dir string, exited <-chan struct{}) (int, error) {
	for {
		b, err := foreign.Read(dir, "DevToolsActivePort", 1<<10)
		if first, _, ok := bytes.Cut(b, []byte{'\n'}); err == nil && ok {
			return strconv.Atoi(string(first))
		}
		select {
		case <-exited:
			return 0, errors.New("it ended")
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fetch gets the description from a port of the loopback interface: of the network of
// the socket, or of the host if that is nil.
func fetch(ctx context.Context, socket *os.File, port int) (_ []byte, err error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != nil {
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			// On a loopback interface it is connected at once.
			if err := unix.Connect(int(socket.Fd()), &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return nil, fmt.Errorf("port %d of the browser's network: %w", port, err)
			}
			return net.FileConn(socket)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/json/protocol", port), nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return io.ReadAll(resp.Body)
}

// removeSoon removes directories of a browser that was killed. Its helpers may still
// write for a moment.
func removeSoon(dirs ...string) error {
	var err error
	for range 50 {
		err = nil
		for _, dir := range dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
