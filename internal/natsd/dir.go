package natsd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const lockFile = "server.lock"

// lockDir makes the directory if it is missing, and locks it for this process, because
// nats-server would let two servers write to the same files. The error is a *DirInUseError if
// another process has the lock. Closing the file releases it.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("nats directory %s: %w: make it writable, or choose another --data-dir", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("nats directory %s: %w: make it writable, or choose another --data-dir", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, &DirInUseError{Dir: dir}
	}
	return nil, fmt.Errorf("nats directory %s: lock %s: %w", dir, lockFile, err)
}
