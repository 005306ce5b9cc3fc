// Package otheruser connects to a server as another user of the host, for tests that run
// as root.
package otheruser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"

	"golang.org/x/sys/unix"
)

// UID is a user that no test, and nobody else, runs as.
const UID = 54321

// Dial connects as a user. The socket is made by a thread of that user, and the thread is
// thrown away.
func Dial(uid uint32, address string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// The system call itself, since package syscall would change every thread.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- dialed{nil, fmt.Errorf("user %d: %w: do the tests run as root?", uid, errno)}
			return
		}
		conn, err := net.Dial("tcp", address)
		done <- dialed{conn, err}
	}()
	d := <-done
	return d.conn, d.err
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
