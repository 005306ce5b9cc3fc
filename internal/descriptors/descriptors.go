// Package descriptors tells when a process runs out of file descriptors, so that the last ones
// are left for what has to be done in any case: saving evidence.
//
// The kernel gives out the lowest free number. So if a new descriptor has the number n, there
// are n others, and no table has to be read to know that.
package descriptors

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrShort says that only the descriptors of the reserve are left.
var ErrShort = errors.New("too few file descriptors are left")

// Reserve is how many descriptors are left for a purpose; it is less if the process may only
// have few.
type Reserve int

// The reserves. What can be refused soonest leaves the most.
const (
	// ForSessions is left by the start of a browser.
	ForSessions Reserve = 160
	// ForEvidence is left by connections, too.
	ForEvidence Reserve = 96
)

// Limit is how many descriptors this process may have now.
func Limit() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of file descriptors: %w", err)
	}
	return r.Cur, nil
}

// Check returns ErrShort if a descriptor that was just made belongs to the reserve.
func (r Reserve) Check(fd uintptr) error {
	most, err := Limit()
	if err != nil {
		return err
	}
	if left := min(uint64(r), most/4); uint64(fd)+left >= most {
		return fmt.Errorf("%w: %d are open, this process may have %d (ulimit -n), and the last %d are for evidence", ErrShort, fd, most, left)
	}
	return nil
}

// Probe is Check for the next descriptor that would be made.
func (r Reserve) Probe() error {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrShort, err)
	}
	return errors.Join(r.Check(uintptr(fd)), unix.Close(fd))
}
