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

// socket is a client's connection as a descriptor that the loop alone waits for.
type socket struct {
	fd int

	conn    net.Conn // what had to be bridged, or nil
	bridge  net.Conn // our other end
	copies  sync.WaitGroup
	drained chan struct{} // closed when all that was written has reached conn
}

// takeSocket takes a connection over, and closes it on an error. A TCP connection
// is taken out of Go's own poller, which would wake a thread at each message for
// nothing. Any other (TLS) is bridged.
func takeSocket(conn net.Conn) (*socket, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return bridged(conn)
	}
	defer func() { _ = tcp.Close() }()
	raw, err := tcp.SyscallConn()
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

// bridged copies between conn and a socket pair.
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
		_, _ = io.Copy(far, conn) // how it ended, the other end shows
		_ = far.(*net.UnixConn).CloseWrite()
	})
	s.copies.Go(func() {
		defer close(s.drained)
		if _, err := io.Copy(conn, far); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			_ = far.Close() // the client takes no more: the loop learns of it
		}
	})
	return s, nil
}

// close closes the connection.
func (s *socket) close() {
	_ = unix.Close(s.fd)
	if s.conn == nil {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(cutGrace))
	<-s.drained
	_ = s.conn.Close()
	_ = s.bridge.Close()
	s.copies.Wait()
}
