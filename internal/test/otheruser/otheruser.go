// Package otheruser connects and listens as another user of the host, for tests that run as root.
package otheruser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// UID is a user that no test, and nobody else, runs as.
const UID = 54321

// Dial connects as a user.
func Dial(uid uint32, address string) (net.Conn, error) {
	return as(uid, func() (net.Conn, error) { return net.Dial("tcp", address) })
}

// Listen listens on a TCP address as a user, with these options of sockets (SOL_SOCKET).
func Listen(uid uint32, address string, options ...int) (*os.File, error) {
	return as(uid, func() (*os.File, error) {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(at.Port())})
		if at.Addr().Is4() {
			to.(*unix.SockaddrInet4).Addr = at.Addr().As4()
		} else {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		for _, o := range options {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1))
		}
		if err = errors.Join(err, unix.Bind(fd, to)); err == nil {
			err = unix.Listen(fd, 1)
		}
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		return os.NewFile(uintptr(fd), address), nil
	})
}

// as has a thread of the user make the socket. The thread is thrown away.
func as[T any](uid uint32, do func() (T, error)) (made T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// The system call itself, since package syscall would change every thread.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			err = fmt.Errorf("user %d: %w: do the tests run as root?", uid, errno)
			return
		}
		made, err = do()
	}()
	<-done
	return made, err
}

// Client returns a client whose connections are all of a user. It follows no redirect.
func Client(uid uint32) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       func(_ context.Context, _, address string) (net.Conn, error) { return Dial(uid, address) },
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirected") },
	}
}
