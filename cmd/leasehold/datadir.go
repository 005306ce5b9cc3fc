//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/id"
	"leasehold/internal/ownpath"
	"leasehold/internal/signed"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/roster"
)

// checkDirectories refuses directories whose files the sidecar trusts if other users of the
// host can write or replace them.
func (c RunConfig) checkDirectories() error {
	for _, dir := range []string{
		c.DataDir, filepath.Join(c.DataDir, natsDir), filepath.Join(c.DataDir, spoolDir), filepath.Dir(signed.NewFile(c.DataDir).Path()), profiledir.GuardDir(c.ProfilesDir),
	} {
		if err := ownpath.Check(dir); err != nil {
			return err
		}
	}
	return nil
}

// lockFile is the name, in the data directory, of the file that a sidecar locks.
const lockFile = "launcher.lock"

// dataDirInUse tells whether a sidecar has the data directory. If that cannot be found out, the answer
// is yes.
func (c RunConfig) dataDirInUse() bool {
	f, err := os.Open(filepath.Join(c.DataDir, lockFile))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// claimDataDir creates the data directory and locks it. If two launchers used one directory,
// each would take the other's sessions for those of a launcher that died.
func (s *service) claimDataDir() error {
	c := s.config
	if err := c.checkDirectories(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := c.checkDirectories(); err != nil { // somebody else may have made it
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.DataDir, lockFile), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("--data-dir %s is in use by another leasehold: stop that one, or give this one a directory of its own", c.DataDir), f.Close())
	}
	s.stops.add("data directory", f.Close)
	if s.dataDir, err = ownpath.Identity(c.DataDir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// openKept opens the profiles directory, and the key for what the launcher keeps there and in
// the data directory.
func (s *service) openKept() error {
	c := s.config
	key, err := signed.NewFile(c.DataDir).Make()
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if s.root, err = profiledir.Open(c.ProfilesDir, key); err != nil {
		return fmt.Errorf("--profiles-dir: %w", err)
	}
	s.key = key
	if err := c.checkDirectories(); err != nil { // now that all of them are there
		return err
	}
	if s.roster, err = roster.Open(roster.Options{DataDir: c.DataDir, Key: key, Log: s.log}); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// ownID is the id of the launcher: the configured one, or one that is made once and kept in the
// data directory.
func ownID(c RunConfig) (string, error) {
	if c.LauncherID != "" {
		return c.LauncherID, nil
	}
	path := filepath.Join(c.DataDir, "launcher-id")
	b, err := os.ReadFile(path)
	name := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, os.ErrNotExist):
		name = id.New("launcher")
		err = durable.Replace(path, []byte(name+"\n"))
	case err == nil && !launcherID.MatchString(name):
		err = fmt.Errorf("%s has %.40q, which is no launcher's id: write the id into it that this launcher had, which its profiles have as their home, or remove it if there are none", path, b)
	}
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	return name, nil
}
