// Package durable writes files so that a crash leaves each either as it was or
// complete.
package durable

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Unfinished is the prefix of a temporary file that a crash may leave behind. Such
// a file may be removed.
const Unfinished = ".new-"

// These functions put a file on the disk: all of it, or only its content. Tests replace both to
// look at the disk whenever something is synced.
var (
	syncFile = (*os.File).Sync
	syncData = fdatasync
)

// Create writes a new file with this content, mode 0600, and returns when it is on disk under its
// name. If it fails, nothing of it stays. The error is fs.ErrExist for a file that is there already,
// which stays as it is.
func Create(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, syncFile(f), f.Close()); err == nil {
		err = Sync(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Replace replaces the file at path by one with this content, mode 0600, and returns when it is
// on disk under that name. On a full disk it uses the reserve.
func Replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	return WithReserve(dir, func() error { return replace(dir, path, content) })
}

func replace(dir, path string, content []byte) error {
	return write(dir, content, func(tmp string) error { return os.Rename(tmp, path) })
}

// CreateWhole is Create for a file that others read meanwhile: under its name there is all of it
// or nothing. The file system has to support hard links.
func CreateWhole(path string, content []byte) error {
	return write(filepath.Dir(path), content, func(tmp string) error {
		if err := os.Link(tmp, path); err != nil {
			return err
		}
		return os.Remove(tmp)
	})
}

// write writes a temporary file with this content, and lets name give it its name.
func write(dir string, content []byte, name func(tmp string) error) error {
	tmp, err := os.CreateTemp(dir, Unfinished+"*") // 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, syncFile(tmp), tmp.Close())
	if err == nil {
		err = name(tmp.Name())
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return Sync(dir)
}

// Prepare makes a file of this size for ReplaceBy. Its content has no meaning.
func Prepare(path string, size int) error {
	return Replace(path, bytes.Repeat([]byte(" "), size))
}

// ReplaceBy does what Replace does, with a file in the same folder that Prepare has
// made with the size of the content. It takes half of the time: the file has its
// blocks already, so only the content and the new name have to reach the disk.
func ReplaceBy(prepared, path string, content []byte) error {
	f, err := os.OpenFile(prepared, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = syncData(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(prepared, path)
	}
	if err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// SyncAll puts everything on disk that was written to the file system of a path.
func SyncAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err = syncfs(f); err != nil {
		err = &os.PathError{Op: "syncfs", Path: path, Err: err}
	}
	return errors.Join(err, f.Close())
}

// Sync puts a file, or the entries of a folder, on disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(f), f.Close())
}

// Glob returns the paths of the files in a directory whose names match the pattern; none if there
// is no directory. Unlike for filepath.Glob, the directory's own path is no pattern.
func Glob(dir, pattern string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}
