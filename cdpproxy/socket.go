package cdpproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a client's connection as a descriptor that only the loop waits for.
type socket struct {
	fd int // non-blocking

	// These are for a connection that is bridged.
	conn    net.Conn // nil: it is not
	bridge  net.Conn // the other end of fd
	copies  sync.WaitGroup
	drained chan struct{} // closed when what was written to fd has reached conn
}

// takeSocket takes over a connection, and closes it on an error. A connection that is a socket
// is removed from Go's own poller, which would wake another thread for each message. Any other
// connection, such as one with TLS, is bridged.
func takeSocket(conn net.Conn) (*socket, error) {
	var plain syscall.Conn
	switch conn := conn.(type) {
	case *net.TCPConn:
		plain = conn
	case *net.UnixConn:
		plain = conn
	default:
		return bridged(conn)
	}
	defer func() { _ = conn.Close() }()
	raw, err := plain.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("the client's socket: %w", err)
	}
	s := &socket{}
	if controlErr := raw.Control(func(fd uintptr) {
		s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); err == nil {
		err = controlErr
	}
	if err != nil {
		return nil, fmt.Errorf("the client's socket: %w", err)
	}
	return s, nil
}

// bridged returns one end of a socket pair, and copies between the other end and conn.
func bridged(conn net.Conn) (*socket, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("a socket pair for the client's connection: %w", err)
	}
	file := os.NewFile(uintptr(pair[1]), "bridge")
	far, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		_ = conn.Close()
		return nil, errors.Join(fmt.Errorf("a socket pair for the client's connection: %w", err), unix.Close(pair[0]))
	}
	s := &socket{fd: pair[0], conn: conn, bridge: far, drained: make(chan struct{})}
	s.copies.Go(func() {
		_, _ = io.Copy(far, conn) // an error ends the pair just as the end of conn does
		_ = far.(*net.UnixConn).CloseWrite()
	})
	s.copies.Go(func() {
		defer close(s.drained)
		if _, err := io.Copy(conn, far); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			_ = far.Close() // the client accepts no more: this tells the loop
		}
	})
	return s, nil
}

// close closes the connection, after what was written has reached it or cutTimeout has
// passed.
func (s *socket) close() {
	_ = unix.Close(s.fd)
	if s.conn == nil {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(cutTimeout))
	<-s.drained
	_ = s.conn.Close()
	_ = s.bridge.Close()
	s.copies.Wait()
}
