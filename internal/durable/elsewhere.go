//go:build !linux

package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// The sidecar runs on Linux. Elsewhere these serve the commands that talk to one.

func fdatasync(f *os.File) error { return f.Sync() }

func syncfs(f *os.File) error { return f.Sync() }

func allocate(f *os.File, size int64) error { return f.Truncate(size) }

func openUnnamed(string) (int, error) { return -1, unix.EOPNOTSUPP }
