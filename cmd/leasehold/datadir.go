package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/id"
)

// claimDataDir creates the data directory and locks it. Two launchers with one directory
// would take each other's sessions for those of a launcher that died.
func (s *service) claimDataDir() error {
	c := s.config
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.DataDir, "launcher.lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("--data-dir %s is in use by another leasehold: stop that one, or give this one a directory of its own", c.DataDir), f.Close())
	}
	s.stops.add("data directory", f.Close)
	return nil
}

// ownID is the id of the launcher: the configured one, or one that is made once and kept
// in the data directory.
func ownID(c RunConfig) (string, error) {
	if c.LauncherID != "" {
		return c.LauncherID, nil
	}
	path := filepath.Join(c.DataDir, "launcher-id")
	b, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(b)); err == nil && launcherID.MatchString(name) {
		return name, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	name := id.New("launcher")
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	return name, nil
}
