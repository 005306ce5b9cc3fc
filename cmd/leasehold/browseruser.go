//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"leasehold/internal/runas"
	"leasehold/launcher/chrome"
	"leasehold/launcher/sessionfile"
)

// browserUser reads --browser-user; nil if it is not given.
func (c RunConfig) browserUser() (*runas.User, error) {
	if c.BrowserUser == "" {
		return nil, nil
	}
	u, err := runas.Find(c.BrowserUser)
	if err != nil {
		return nil, fmt.Errorf("--browser-user: %w", err)
	}
	return &u, nil
}

// mayRunAs refuses --browser-user if this process may not run programs as other users.
func (c RunConfig) mayRunAs() error {
	if c.User == nil {
		return nil
	}
	if err := runas.Check(); err != nil {
		return fmt.Errorf("--browser-user %s: %w", c.BrowserUser, err)
	}
	return nil
}

// userPaths are the directories that the browser user has to be able to pass through.
func (c RunConfig) userPaths() []string { return []string{os.TempDir(), c.ProfilesDir, c.DataDir} }

// admitBrowserUser lets the browser user pass through the sidecar's directories, and finds out
// whether browsers can run as that user. It is called when the directories exist. Nobody but
// that user gains access by it, and what is in the directories has its own owner and mode.
func (s *service) admitBrowserUser(ctx context.Context) error {
	c := s.config
	if err := s.root.SetBrowserUser(c.User); err != nil {
		return &exitError{exitDataDir, err}
	}
	if c.User == nil {
		return nil
	}
	if err := sessionfile.NewDir(c.DataDir, s.key).Share(); err != nil {
		return &exitError{exitDataDir, err}
	}
	for _, own := range []string{c.DataDir, s.root.Dir()} {
		if err := letPass(own); err != nil {
			return &exitError{exitDataDir, err}
		}
	}
	if err := c.tryBrowserUser(ctx, s.chrome, c.userPaths()); err != nil {
		return &exitError{exitUsage, err}
	}
	s.log.Info().Str("user", c.User.String()).Str("sandbox", chrome.SandboxOf(c.User)).Msg("browsers run as a user of their own")
	return nil
}

// letPass lets other users pass through a directory of this user, without listing it. A
// directory of root's is left as it is.
func letPass(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	mode, owner := info.Mode().Perm(), int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != os.Geteuid() || mode&0o011 == 0o011 {
		return nil
	}
	return os.Chmod(dir, mode|0o011)
}

// tryBrowserUser finds out whether browsers can run as the browser user.
func (c RunConfig) tryBrowserUser(ctx context.Context, binary string, pass []string) error {
	ctx, cancel := context.WithTimeout(ctx, confineTimeout)
	defer cancel()
	if err := chrome.CheckUser(ctx, binary, *c.User, pass...); err != nil {
		return fmt.Errorf("--browser-user %s: %w", c.BrowserUser, err)
	}
	return nil
}

// checkBrowserUser is doctor's check of the browser user. It changes nothing: it leaves out the
// sidecar's own directories, through which that user can pass once the sidecar has started.
func (c RunConfig) checkBrowserUser(ctx context.Context) (string, error) {
	if c.User == nil {
		return fmt.Sprintf("browsers run as the sidecar's own user (uid %d), %s", os.Getuid(), chrome.SandboxOf(nil)), nil
	}
	binary, err := chrome.Find(c.Chrome)
	if err != nil {
		return "not tried, for want of a Chrome", nil
	}
	pass := []string{os.TempDir(), existing(filepath.Dir(c.DataDir))}
	if rel, err := filepath.Rel(c.DataDir, c.ProfilesDir); err != nil || !filepath.IsLocal(rel) {
		pass = append(pass, existing(filepath.Dir(c.ProfilesDir)))
	}
	if err := c.tryBrowserUser(ctx, binary, pass); err != nil {
		return "", err
	}
	return fmt.Sprintf("browsers run as %v, %s", c.User, chrome.SandboxOf(c.User)), nil
}

// existing is the directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
