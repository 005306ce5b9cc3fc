// Package privatefile reads files with secrets, and refuses those that others could have
// read or written.
package privatefile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// maxSize bounds a file, in bytes.
const maxSize = 16 << 20

// Version distinguishes one state of a file from another. Two equal Versions of one path have
// the same content, unless somebody has taken pains to make it otherwise.
type Version struct {
	device, inode uint64
	size          int64
	modified      time.Time
	mode          fs.FileMode
	owner         uint32
}

// Stat returns the version of a file. It follows links.
func Stat(path string) (Version, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return Version{}, err
	}
	return versionOf(fi), nil
}

func versionOf(fi fs.FileInfo) Version {
	v := Version{size: fi.Size(), modified: fi.ModTime(), mode: fi.Mode()}
	if s, ok := fi.Sys().(*syscall.Stat_t); ok {
		v.device, v.inode, v.owner = uint64(s.Dev), s.Ino, s.Uid
	}
	return v
}

// Read returns the content of a regular file that only its owner may read or write, and
// that belongs to this process's user or to root. The error names the path, what is
// wrong, and what to do. If it comes with a version, the file itself is wrong, and another call fails
// until somebody changes it; without one, the file could not be read, and may be at the next call.
func Read(path string) ([]byte, Version, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Version{}, err
	}
	defer f.Close()
	fi, err := f.Stat() // of the open file: the path may be another one by now
	if err != nil {
		return nil, Version{}, err
	}
	v := versionOf(fi)
	switch {
	case !fi.Mode().IsRegular():
		return nil, v, fmt.Errorf("%s is no regular file", path)
	case v.owner != uint32(os.Geteuid()) && v.owner != 0:
		return nil, v, fmt.Errorf("%s belongs to uid %d, want uid %d or root: chown it", path, v.owner, os.Geteuid())
	case fi.Mode().Perm()&0o077 != 0:
		return nil, v, fmt.Errorf("%s has mode %#o, which lets others read or write it: chmod 600 %s", path, fi.Mode().Perm(), path)
	case fi.Size() > maxSize:
		return nil, v, fmt.Errorf("%s has %d bytes, want at most %d", path, fi.Size(), maxSize)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize))
	if err != nil {
		return nil, Version{}, err
	}
	return b, v, nil
}
