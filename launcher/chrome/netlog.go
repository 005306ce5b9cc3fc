package chrome

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// netLog is our end of the NetLog's pipe. It is not in Go's poller, which would wake a thread for each
// of the many small writes of Chrome, also while nobody waits for them.
type netLog struct {
	pipe int // nonblocking
	stop int // an eventfd that ends a Read
	once sync.Once
	mu   sync.Mutex // held by Read, guards gone
	gone bool
}

// newNetLog takes a nonblocking descriptor over.
func newNetLog(pipe int) (*netLog, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, unix.Close(pipe))
	}
	return &netLog{pipe: pipe, stop: stop}, nil
}

// Read waits for Chrome, in a thread of its own.
func (n *netLog) Read(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.gone {
		fds := []unix.PollFd{{Fd: int32(n.pipe), Events: unix.POLLIN}, {Fd: int32(n.stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		if fds[1].Revents != 0 {
			break
		}
		switch read, err := unix.Read(n.pipe, p); {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case read == 0:
			return 0, io.EOF
		default:
			return read, nil
		}
	}
	return 0, os.ErrClosed
}

// Close ends a Read that waits. A second call does nothing.
func (n *netLog) Close() (err error) {
	n.once.Do(func() {
		_, err = unix.Write(n.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		n.mu.Lock()
		defer n.mu.Unlock()
		n.gone = true
		err = errors.Join(err, unix.Close(n.pipe), unix.Close(n.stop))
	})
	return err
}
