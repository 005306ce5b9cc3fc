// Package profiledir guards the profile directories of this host: a lock that
// the kernel drops when the last process with it ends, the floor under the
// fencing tokens, what is known of the running browser, and the facts that an
// inspection needs.
//
// The guard files lie in <root>/.leasehold/, outside every profile, so that a
// profile can be copied or restored without them. Nothing in this package
// removes or changes anything inside a profile.
//
// The lock has two parts. <id>.lock is held by the launcher and, by inheritance,
// by its Chrome; it is free when both have ended. <id>.launcher is held by the
// launcher alone, so that of two launchers only one can adopt a Chrome whose
// launcher died.
package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// ErrNoProfile says that there is no directory for the profile. It is also
// fs.ErrNotExist.
var ErrNoProfile = fmt.Errorf("no such profile directory: %w", fs.ErrNotExist)

// Root is the directory whose subdirectories are the profiles of this host. All
// methods may be called concurrently.
type Root struct {
	dir   string // absolute, symlinks resolved
	guard string

	mu   sync.Mutex
	held map[string]*Lock
}

// Open returns the profiles directory, which it creates (0700) if it is missing.
// The error says what to do where the directory cannot be written.
func Open(dir string) (*Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w; create it or choose another", abs, err)
	}
	// One directory under two names would be two guards for one profile.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w", dir, err)
	}
	if err := unix.Access(abs, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w; it has to be readable and writable by uid %d", abs, err, os.Getuid())
	}
	r := &Root{dir: abs, guard: filepath.Join(abs, ".leasehold"), held: map[string]*Lock{}}
	if err := os.Mkdir(r.guard, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("guard directory: %w", err)
	}
	fi, err := os.Lstat(r.guard)
	if err == nil && !fi.IsDir() {
		err = errors.New("it is a link or a file")
	}
	if err != nil {
		return nil, fmt.Errorf("guard directory %s: want a directory of its own: %w", r.guard, err)
	}
	probe, err := os.CreateTemp(r.guard, ".writable-")
	if err != nil {
		return nil, fmt.Errorf("guard directory %s: %w; it has to be writable by uid %d", r.guard, err, os.Getuid())
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("guard directory %s: %w", r.guard, err)
	}
	return r, nil
}

// Dir returns the profiles directory: absolute, without symlinks.
func (r *Root) Dir() string { return r.dir }

// Path returns the absolute path of the profile's directory. It refuses an id
// that is not valid, and a profile that is a symlink or no directory, since such
// a one could be the same directory as another profile. The error is
// ErrNoProfile if there is nothing.
func (r *Root) Path(id string) (string, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, id)
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("profile %s: %w", id, ErrNoProfile)
	case err != nil:
		return "", fmt.Errorf("profile %s: %w", id, err)
	case fi.Mode()&fs.ModeSymlink != 0:
		return "", fmt.Errorf("profile %s: %s is a symlink: want the directory itself, move it here", id, path)
	case !fi.IsDir():
		return "", fmt.Errorf("profile %s: %s is not a directory", id, path)
	}
	// The root was resolved when it was opened; it may have been moved since.
	real, err := filepath.EvalSymlinks(path)
	if err == nil && real != path {
		err = fmt.Errorf("it resolves to %q", real)
	}
	if err != nil {
		return "", fmt.Errorf("profile %s: %s: want it inside %s: %w", id, path, r.dir, err)
	}
	return path, nil
}

// Create makes the profile's directory (0700), if it is missing, and returns its
// path. The error is ErrArchived for one that was put away.
func (r *Root) Create(id string) (string, error) {
	at, err := r.Archived(id)
	if err != nil {
		return "", err
	}
	if at != "" { // an empty one would be another browser to the account
		return "", fmt.Errorf("%w: import it from %s", ErrArchived, at)
	}
	err = os.Mkdir(filepath.Join(r.dir, id), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("profile %s: %w", id, err)
	}
	return r.Path(id)
}

// List returns the ids of the profiles, sorted: real directories whose names are
// valid ids.
func (r *Root) List() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("profiles directory: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && lease.CheckProfileID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// file names a guard file of the profile.
func (r *Root) file(id, kind string) string { return filepath.Join(r.guard, id+"."+kind) }
