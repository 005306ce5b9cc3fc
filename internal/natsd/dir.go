package natsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

	"leasehold/internal/durable"
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

// upgradeDir converts the directory of an earlier version: it removes the password file, and
// moves the event stream from the subscribers' account to the launchers'. It removes the
// stream's consumers, since they could deliver anywhere in the new account.
func upgradeDir(dir string) error {
	if err := os.Remove(filepath.Join(dir, "admin.url")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nats directory %s: remove the password of an earlier version: %w", dir, err)
	}
	streams := func(account string) string { return filepath.Join(dir, "jetstream", account, "streams") }
	old := filepath.Join(streams(subscribersAccount), eventStream)
	moved := filepath.Join(streams(launchersAccount), eventStream)
	own, err := hasSubjects(old)
	if err != nil || !own {
		return err
	}
	if _, err := os.Lstat(moved); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nats directory %s: there are two event streams, %s and %s: move the one away that is not wanted", dir, old, moved)
	}
	for _, step := range []func() error{
		func() error { return os.RemoveAll(filepath.Join(old, "obs")) },
		func() error { return os.MkdirAll(filepath.Dir(moved), 0o700) },
		func() error { return os.Rename(old, moved) },
		func() error { return durable.Sync(filepath.Dir(moved)) },
		func() error { return durable.Sync(filepath.Dir(old)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("nats directory %s: move the event stream of an earlier version: %w", dir, err)
		}
	}
	return nil
}

// hasSubjects tells whether the directory has a stream that is not a mirror.
func hasSubjects(dir string) (bool, error) {
	meta := filepath.Join(dir, server.JetStreamMetaFile)
	b, err := os.ReadFile(meta)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nats event stream: %w", err)
	}
	var stream server.StreamConfig
	if err := json.Unmarshal(b, &stream); err != nil {
		return false, fmt.Errorf("nats event stream: %s: %w", meta, err)
	}
	return stream.Mirror == nil, nil
}
