// Package foreign reads and writes files in directories of another user, who may change
// everything in them at any time: put links there that lead elsewhere, pipes that nobody writes
// to, or files of somebody else. For a store's directory see ReadPlain. If a directory belongs to the user of this process, its files
// are used as they are, except links that lead outside and files that are not regular.
package foreign

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
)

// ErrNotItsOwn says that a file was not made there by the directory's owner: it belongs to
// somebody else, has a second name elsewhere, or is not a regular file.
var ErrNotItsOwn = errors.New("it is not a file of the directory's owner alone")

// Dir is an open directory. Names in it may lead through directories below it, and never
// out of it.
type Dir struct {
	*os.Root
	path         string
	owner, group int
}

// Open opens a directory. Its path must be one that its owner cannot change.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Dir{root, path, owner(info), int(info.Sys().(*syscall.Stat_t).Gid)}, nil
}

// File opens a file with flags, such as os.O_RDONLY. It does not create files. The error is an
// ErrNotItsOwn for a file that does not belong to the directory's owner.
func (d *Dir) File(name string, flags int) (*os.File, error) {
	// A pipe is opened without waiting for somebody at its other end.
	f, err := d.OpenFile(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = d.check(name, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d *Dir) check(name string, info fs.FileInfo) error {
	path := filepath.Join(d.path, name)
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: its type is %v", path, ErrNotItsOwn, info.Mode().Type())
	}
	if d.owner == os.Geteuid() {
		return nil
	}
	if who := owner(info); who != d.owner {
		return fmt.Errorf("%s: %w: it belongs to uid %d, and the directory to uid %d", path, ErrNotItsOwn, who, d.owner)
	}
	if names := info.Sys().(*syscall.Stat_t).Nlink; names > 1 {
		return fmt.Errorf("%s: %w: it has %d names", path, ErrNotItsOwn, names)
	}
	return nil
}

// Read returns the content of a file of the directory at path, which may have at most most
// bytes.
func Read(path, name string, most int64) (_ []byte, err error) {
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := d.File(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Join(path, name), most)
	}
	return b, err
}

// Replace durably replaces a file of the directory at path by one with this content. The file
// belongs to the directory's owner.
func Replace(path, name string, content []byte) (err error) {
	d, err := Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if d.owner == os.Geteuid() {
		return durable.Replace(filepath.Join(path, name), content)
	}
	made := durable.Unfinished + name
	if err := d.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	// The owner can write it from then on, as everything in his directory.
	err = errors.Join(err, f.Sync(), f.Chown(d.owner, d.group), f.Close())
	if err == nil {
		err = d.Rename(made, name)
	}
	if err != nil {
		return errors.Join(err, d.Remove(made))
	}
	return durable.Sync(path)
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
