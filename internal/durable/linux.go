//go:build linux

package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// What follows is Linux's own.

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

func syncfs(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

func allocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }

// openUnnamed opens a new file in a directory that has no name there.
func openUnnamed(dir string) (int, error) {
	return unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
}
