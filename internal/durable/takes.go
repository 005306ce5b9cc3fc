package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Takes returns nil if a directory takes another file: it is there and may be written to, and its
// file system has a free inode and block, and has not given up its disk. The file that shows that has
// no name, so that nothing is left of it, and nothing is synced: it may be asked often. A file system
// that makes no such files is only asked whether the directory is there.
func Takes(dir string) error {
	fd, err := openUnnamed(dir)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		_, err = os.Stat(dir)
		return err
	}
	if err != nil {
		return &os.PathError{Op: "a new file in", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	_, err = f.Write([]byte{0})
	return errors.Join(err, f.Close())
}
