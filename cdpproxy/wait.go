package cdpproxy

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Waiting is how a Mux waits for its descriptors. It is meant for tests in the time of
// testing/synctest, which stands still while a thread waits in the kernel.
type Waiting interface {
	// Poll is poll(2). A negative timeout means none.
	Poll(fds []unix.PollFd, timeout time.Duration) error
	// Wrote is called when the Mux has written to a descriptor, or closed one: whoever waits
	// for the other end may find something there.
	Wrote()
}

// wrote says that a descriptor was written to, or closed.
func (m *Mux) wrote() {
	if m.waiting != nil {
		m.waiting.Wrote()
	}
}

// poll waits until a descriptor is ready, or until the timeout, in milliseconds, has passed; a
// negative one means none.
func (m *Mux) poll(fds []unix.PollFd, timeout int) error {
	if m.waiting != nil {
		return m.waiting.Poll(fds, time.Duration(timeout)*time.Millisecond)
	}
	_, err := unix.Poll(fds, timeout)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
