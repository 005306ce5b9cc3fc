package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"leasehold/internal/durable"
	"leasehold/internal/id"
)

const (
	adminFile = "admin.url"
	lockFile  = "server.lock"
)

// AdminURLFile returns the path of the file with the URL, including the password, by which
// other launchers of this host connect to the server of dir. Only its owner can read it.
func AdminURLFile(dir string) string { return filepath.Join(dir, adminFile) }

// lockDir makes the directory if it is missing, and locks it for this process, because
// nats-server would let two servers write to the same files. A *DirInUseError where another
// process has the lock. Closing the file releases it.
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

// adminPassword returns the password of the last start, so that launchers which were
// connected can connect again after a restart. If there is none that can be trusted, it
// returns a new one.
func adminPassword(dir string) (string, error) {
	path := AdminURLFile(dir)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return id.Secret(), nil
	case err != nil:
		return "", fmt.Errorf("nats credentials: %w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0:
		// Others could have read or planted the password.
		return id.Secret(), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("nats credentials: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(string(b)))
	if err != nil || u.User == nil {
		return id.Secret(), nil //nolint:nilerr // an unusable file is replaced
	}
	if password, _ := u.User.Password(); len(password) == len(id.Secret()) {
		return password, nil
	}
	return id.Secret(), nil
}

// writeAdminURL replaces the file with the admin URL. If clientURL is empty, nobody can
// connect, and the file is removed.
func writeAdminURL(dir, clientURL, password string) error {
	path := AdminURLFile(dir)
	if clientURL == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("nats credentials: %w", err)
		}
		return nil
	}
	u, err := url.Parse(clientURL)
	if err != nil {
		return fmt.Errorf("nats credentials: %w", err)
	}
	u.User = url.UserPassword(adminUser, password)
	if err := durable.Replace(path, []byte(u.String()+"\n")); err != nil {
		return fmt.Errorf("nats credentials: %w", err)
	}
	return nil
}
