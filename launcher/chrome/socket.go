package chrome

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"leasehold/internal/peer"
	"leasehold/internal/procfs"
	"leasehold/internal/runas"
)

// A browser is not its user. What a worker or a page makes it send to a port of this host comes
// from its network service, a process of the user that it runs as, and whoever goes by the user
// alone takes it for that user. The kernel knows more: the inode of the socket at the other end of
// a connection, and which processes have it open.

// ErrBrowser says that a connection comes from a browser that a sidecar started.
var ErrBrowser = errors.New("it comes from a browser of a sidecar, which is no client: what a page or a worker makes a browser send proves nobody")

// ClientsOnly returns a function that refuses the browsers of sidecars, of this and of others of
// its user, and whatever else runs as the browser user, if there is one. It does not refuse those
// whose socket is not known: they prove no user either. It is for connlimit.Options.Admit.
func ClientsOnly(as *runas.User) func(peer.Socket, error) error {
	return func(s peer.Socket, unknown error) error {
		switch uid := int(s.UID); {
		case unknown != nil:
			return nil
		case as != nil && uid == as.UID:
			return fmt.Errorf("%w (%s)", ErrBrowser, peer.Name(s.UID))
		case uid != os.Geteuid():
			return nil
		}
		pid, err := browserWith(s)
		if err == nil && pid != 0 {
			err = fmt.Errorf("%w (pid %d)", ErrBrowser, pid)
		}
		return err
	}
}

// UsesProxy tells whether a socket is one of a browser that a sidecar started with this proxy
// server.
func UsesProxy(s peer.Socket, server string) (bool, error) {
	pid, err := browserWith(s)
	if err != nil || pid == 0 {
		return false, err
	}
	proxy, err := ProxyAt(pid)
	return proxy == server, err
}

// ProxyAt returns the proxy server with which a browser was started; "" for none. pid is that of
// its main process.
func ProxyAt(pid int) (string, error) {
	line, err := procfs.CommandLine(pid)
	if err != nil {
		return "", err
	}
	value := ""
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if v, ok := strings.CutPrefix(arg, "--proxy-server="); ok {
			value = v
		}
	}
	return ProxyOf(value), nil
}

// browserWith returns the main process of the browser of a sidecar of which a process has the
// socket open; 0 if there is none.
func browserWith(s peer.Socket) (pid int, err error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return 0, err
	}
	groups := map[int][]int{}
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil {
			groups[group] = append(groups[group], pid)
		}
	}
	for leader, members := range groups {
		if !startedBySidecar(leader) {
			continue
		}
		for _, member := range members {
			has, err := mayConnect(member, leader)
			if err == nil && has {
				has, err = procfs.HasSocket(member, s.Inode)
			}
			switch {
			case has:
				return leader, nil
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return 0, fmt.Errorf("whether a browser has made this connection: %w", err)
			}
		}
	}
	return 0, nil
}

// mayConnect tells whether a process is one of a browser's two that open connections: the main one
// and the network service. The others, which have most of its descriptors, are not looked into.
func mayConnect(pid, leader int) (bool, error) {
	if pid == leader {
		return true, nil
	}
	line, err := procfs.CommandLine(pid)
	return hasArgument(line, networkArgument), err
}

// startedBySidecar tells whether a process is the main one of a browser that a sidecar started: it
// is driven by a pipe, and was given a temporary directory that Start makes. A process that may not
// be looked at is none, since a sidecar may look at its browsers.
func startedBySidecar(pid int) bool {
	line, err := procfs.CommandLine(pid)
	if err != nil || !hasArgument(line, "--remote-debugging-pipe") {
		return false
	}
	environment, err := procfs.Environment(pid)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(environment, func(variable string) bool {
		dir, ok := strings.CutPrefix(variable, tempVariable)
		return ok && strings.HasPrefix(filepath.Base(dir), tempPattern)
	})
}
