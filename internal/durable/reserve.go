package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reserve is disk space that is kept for what has to be written when a disk is full: a file
// that is made smaller, piece by piece, when such a write finds no room. Its methods are safe
// for concurrent use, and do nothing on nil.
type Reserve struct {
	path string
	size int64

	mu   sync.Mutex
	left int64 // bytes of the file
}

// reservePiece is how much is given back at a time, so that whatever else fills the disk cannot
// take all of it at once.
const reservePiece = 1 << 20

// LeftReserve returns the reserve that another process kept in a file, as it is.
func LeftReserve(path string) (*Reserve, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("space kept free in %s: %w", path, err)
	}
	return &Reserve{path: path, size: info.Size(), left: info.Size()}, nil
}

// KeepReserve returns the reserve in a file, of at most this size. A file that an earlier
// process kept is used as it is; Fill completes it.
func KeepReserve(path string, size int64) (*Reserve, error) {
	s := &Reserve{path: path, size: size}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("space kept free in %s: %w", path, err)
	case info.Size() > size:
		if err := os.Truncate(path, size); err != nil {
			return nil, fmt.Errorf("space kept free in %s: %w", path, err)
		}
		s.left = size
	default:
		s.left = info.Size()
	}
	return s, nil
}

// Left returns how many bytes there are to give back.
func (s *Reserve) Left() int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// Fill takes the space again, if that leaves at least this much of the disk free. It tells
// whether the reserve is now complete.
func (s *Reserve) Fill(leave uint64) (whole bool, err error) {
	if s == nil {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == s.size {
		return true, nil
	}
	free, err := FreeSpace(filepath.Dir(s.path))
	if err != nil || free.Bytes < leave+uint64(s.size-s.left) {
		return false, err
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("space kept free in %s: %w", s.path, err)
	}
	err = errors.Join(allocate(f, s.size), f.Close())
	if err != nil { // it may have got some of it
		return false, fmt.Errorf("space kept free in %s: %w", s.path, errors.Join(err, os.Truncate(s.path, s.left)))
	}
	s.left = s.size
	return true, nil
}

// Give gives back one piece, if there is one and dir is on the same disk. It tells whether
// it did.
func (s *Reserve) Give(dir string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 || !sameDisk(s.path, dir) {
		return false
	}
	left := max(0, s.left-reservePiece)
	if os.Truncate(s.path, left) != nil {
		return false
	}
	s.left = left
	return true
}

func sameDisk(a, b string) bool {
	var at, bt unix.Stat_t
	return unix.Stat(a, &at) == nil && unix.Stat(b, &bt) == nil && at.Dev == bt.Dev
}

// Free is what the file system of a path has left.
type Free struct {
	Bytes  uint64 // that an unprivileged process may write
	ToRoot uint64 // bytes that root may write
	Files  uint64 // more that it can have; math.MaxUint64 if it has no limit
}

// FreeSpace returns what the file system of a path has left.
func FreeSpace(path string) (Free, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Free{}, fmt.Errorf("free space of %s: %w", path, err)
	}
	left := Free{Bytes: st.Bavail * uint64(st.Bsize), ToRoot: st.Bfree * uint64(st.Bsize), Files: st.Ffree}
	if st.Files == 0 {
		left.Files = math.MaxUint64
	}
	return left, nil
}

// Full tells whether a write failed for lack of space.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// reserve is what this process keeps; a process has one data directory.
var reserve atomic.Pointer[Reserve]

// UseReserve makes the writes of this package, and those of WithReserve, use the reserve when
// they find no room; nil: none.
func UseReserve(s *Reserve) { reserve.Store(s) }

// WithReserve calls write, which writes below dir, and calls it again after each piece of the
// reserve that is given back for it, as long as the disk is full.
func WithReserve(dir string, write func() error) error { return withReserve(dir, 0, write) }

// WithHalfReserve is WithReserve for what may be left out if it finds no room: it leaves half of the reserve to
// everything else.
func WithHalfReserve(dir string, write func() error) error {
	r := reserve.Load()
	if r == nil {
		return write()
	}
	return withReserve(dir, r.size/2, write)
}

// withReserve gives back no piece after which less than so many bytes would be left.
func withReserve(dir string, leave int64, write func() error) error {
	for {
		err := write()
		r := reserve.Load()
		if err == nil || !Full(err) || leave > 0 && r.Left() < leave+reservePiece || !r.Give(dir) {
			return err
		}
	}
}
