package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"leasehold/internal/procfs"
)

// User is a browser that has a directory open, whoever started it.
type User struct {
	PID int
	// Name is the program's, such as chrome.
	Name string
	// Since is when it started, on this host's clock, to the second.
	Since time.Time
}

func (u User) String() string {
	s := fmt.Sprintf("%s, pid %d", u.Name, u.PID)
	if !u.Since.IsZero() {
		s += ", since " + u.Since.Format(time.RFC3339)
	}
	return s
}

// FindUser returns the browser that uses a Chrome user-data-dir, or nil. It finds browsers that
// name the directory on their command line, by whatever path. It also finds a browser that does
// not name it, such as a person's own Chrome, because SingletonLock names it and it has files
// of the directory open. The error says what could not be looked at.
func FindUser(path string) (*User, error) {
	named, err := Processes(path)
	if err != nil {
		return nil, err
	}
	for _, p := range named {
		if p.Main || len(named) == 1 {
			return user(p.PID), nil
		}
	}
	if len(named) > 0 {
		return user(named[0].PID), nil
	}
	return FindOtherUser(path)
}

// FindOtherUser is FindUser for a directory that Processes has looked at: it finds the browsers
// that do not name the directory on their command line, or name it by another path.
func FindOtherUser(path string) (*User, error) {
	switch pid, err := namedOtherwise(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilerr // nothing is there
	case err != nil:
		return nil, err
	case pid != 0:
		return user(pid), nil
	}
	target, err := os.Readlink(filepath.Join(path, singletonLock))
	if err != nil {
		return nil, nil //nolint:nilerr // there is no link that a browser wrote and that can be read
	}
	host, pid, err := ParseSingleton(target)
	if err != nil {
		return nil, nil //nolint:nilerr // Chrome did not write it
	}
	here, err := os.Hostname()
	if err != nil || here != host {
		return nil, &ForeignLockError{Path: path, Owner: target, Host: host}
	}
	if p, err := procfs.Read(pid); err != nil || !p.Alive() || !hasOpen(pid, path) {
		return nil, nil //nolint:nilerr // it is gone, or the pid is another program's now
	}
	return user(pid), nil
}

// hasOpen tells whether the process has files below the path open. If that cannot be seen, the
// answer is yes.
func hasOpen(pid int, path string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return !os.IsNotExist(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, path+"/") {
			return true
		}
	}
	return false
}

// user describes a process, leaving out what cannot be read about it.
func user(pid int) *User {
	u := &User{PID: pid, Name: "a process"}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		u.Name = strings.TrimSpace(string(comm))
	}
	if p, err := procfs.Read(pid); err == nil {
		u.Since = p.Started()
	}
	return u
}

// CheckMine refuses a directory that belongs to another user, or that others may write to: they
// would have its cookies, too. The error says what to do.
func CheckMine(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return checkMine(path, fi, os.Getuid())
}

// checkMine checks a directory that may belong to one of the users. The first of them is the
// launcher's own.
func checkMine(path string, fi fs.FileInfo, users ...int) error {
	mode := fi.Mode().Perm()
	uid := users[0]
	owner, group := uid, os.Getgid()
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		owner, group = int(st.Uid), int(st.Gid)
	}
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%s: want a directory, not a link or a file", path)
	case !slices.Contains(users, owner):
		return fmt.Errorf("%s belongs to uid %d, and the launcher runs as uid %d: chown it, or run the launcher as its owner", path, owner, uid)
	case mode&0o700 != 0o700:
		return fmt.Errorf("%s has mode %#o, which its owner cannot work with: chmod u+rwx %s", path, mode, path)
	// The launcher's own group may write: often the launcher's user is its only member, and the
	// umask is 002.
	case mode&0o002 != 0, mode&0o020 != 0 && group != os.Getgid():
		return fmt.Errorf("%s has mode %#o, so that others can write to it: chmod go-w %s", path, mode, path)
	}
	return nil
}
