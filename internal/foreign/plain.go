package foreign

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotPlain says that a store's directory has something that no store makes: a link, a pipe,
// a device, or a file of a size that none has.
var ErrNotPlain = errors.New("it is not a file that was stored")

// ReadPlain returns the content of a file below a directory in which others than this process
// keep files, too, such as a store that several hosts share. The name has slashes. No link is
// followed below the directory, nothing but a regular file is read, and nothing that has more
// than most bytes.
func ReadPlain(root, name string, most int64) ([]byte, error) {
	b, err := readPlain(root, name, most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(root, name), err)
	}
	return b, nil
}

func readPlain(root, name string, most int64) (_ []byte, err error) {
	folder, last := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		folder, last = name[:i], name[i+1:]
	}
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	dir, err := openFolder(root, folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	// A pipe is opened without waiting for somebody at its other end.
	fd, err := unix.Openat(dir, last, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, plainError(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: its type is %v", ErrNotPlain, info.Mode().Type())
	case info.Size() > most:
		return nil, fmt.Errorf("%w: it has %d bytes, want at most %d", ErrNotPlain, info.Size(), most)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%w: it grows, and has more than %d bytes", ErrNotPlain, most)
	}
	return b, err
}

// CheckFolder returns nil if a folder below a directory is one, reached without a link. The name
// has slashes; "" and "." are the directory itself.
func CheckFolder(root, name string) error {
	fd, err := openFolder(root, name)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(root, name), err)
	}
	return unix.Close(fd)
}

// openFolder opens a folder below a directory. The directory itself may be reached by links.
func openFolder(root, name string) (int, error) {
	fd, err := unix.Open(root, onlyPath|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil || name == "" || name == "." {
		return fd, err
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := unix.Openat(fd, part, onlyPath|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		if err != nil {
			return -1, plainError(err)
		}
		fd = next
	}
	return fd, nil
}

// plainError says what the kernel's errors mean for what is no file or folder.
func plainError(err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: it is a link", ErrNotPlain)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: a folder of its path is a link, or none", ErrNotPlain)
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: it is a socket", ErrNotPlain)
	}
	return err
}
