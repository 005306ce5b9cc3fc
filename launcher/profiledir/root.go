// Package profiledir guards the profile directories of this host. It has the
// profile's lock, which the kernel releases when the last process that holds it
// ends; the floor of the fencing tokens; what is known of the running browser; and
// the facts that an inspection needs. It also imports, archives and removes profile
// directories.
//
// The guard files lie in <root>/.leasehold/, outside of every profile, so that a
// profile can be copied or restored without them. Inside of a profile this package
// writes marks, and the name of the Chrome profile that is opened, and nothing else.
//
// The lock has two parts. <id>.lock is held by the launcher and, by inheritance,
// by its Chrome; it is free when both have ended. <id>.launcher is held by the
// launcher alone, so that only one of two launchers can adopt a Chrome whose
// launcher died.
package profiledir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"leasehold/internal/ownpath"
	"leasehold/internal/runas"
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// ErrNoProfile says that there is no directory for the profile. It is also
// fs.ErrNotExist.
var ErrNoProfile = fmt.Errorf("no such profile directory: %w", fs.ErrNotExist)

// ErrMissing says that the profile's directory is not there, although nobody archived or removed it.
var ErrMissing = errors.New("its directory is missing")

// Root is the directory whose subdirectories are the profiles of this host. All
// methods may be called concurrently.
type Root struct {
	dir   string // absolute, symlinks resolved
	guard string // the directory of the guard files
	// identity is the ownpath.Identity that the directory had when it was opened.
	identity string
	key      *signed.Key
	// user is the user as whom browsers run; owners are all uids that were ever browser users:
	// see SetBrowserUser.
	user   runas.User
	owners []int

	mu        sync.Mutex
	locks     map[string]*Lock // the locks of this Root, by profile
	unwritten map[string]unwritten
	others    []*Root // that Open of this one opened
	abandoned bool
}

// Open returns the profiles directory, which it creates (0700) if it is missing. The files that
// are read back from there are signed with the key. If the directory cannot be written, the
// error says what to do.
func Open(dir string, key *signed.Key) (*Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w; create it or choose another", abs, err)
	}
	// Under two paths one directory would have two guard directories.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w", dir, err)
	}
	if err := unix.Access(abs, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w; it has to be readable and writable by uid %d", abs, err, os.Getuid())
	}
	r := &Root{dir: abs, guard: GuardDir(abs), key: key, user: runas.User{UID: os.Geteuid(), GID: os.Getegid()}, locks: map[string]*Lock{}, unwritten: map[string]unwritten{}}
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
	if r.identity, err = ownpath.Identity(r.dir); err != nil {
		return nil, fmt.Errorf("profiles directory %s: %w", r.dir, err)
	}
	return r, nil
}

// There returns nil if the profiles directory is the one that was opened. If another one is at its
// path, because its disk was unmounted for example, then what is missing there says nothing about a
// profile, and nothing may be made there. The error is an *api.Problem.
func (r *Root) There() error {
	if err := ownpath.Still(r.dir, r.identity); err != nil {
		return api.HostShort(api.ReasonFiles, err)
	}
	return nil
}

// Open opens another directory of the same launcher, with the same key.
func (r *Root) Open(dir string) (*Root, error) {
	other, err := Open(dir, r.key)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned {
		return nil, fmt.Errorf("profiles directory %s: the launcher has ended", dir)
	}
	r.others = append(r.others, other)
	return other, nil
}

// Dir returns the profiles directory: absolute, without symlinks.
func (r *Root) Dir() string { return r.dir }

// GuardDir returns the directory of the guard files of a profiles directory.
func GuardDir(dir string) string { return filepath.Join(dir, ".leasehold") }

// Path returns the absolute path of the profile's directory. It refuses an id
// that is not valid, and every id while the profiles directory is not There. It also refuses a symlink, which could lead to the directory of
// another profile, and anything else that is not a directory. The error is
// ErrNoProfile if nothing is there.
func (r *Root) Path(id string) (string, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return "", err
	}
	if err := r.There(); err != nil {
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
	// The root was resolved when it was opened, but may have been replaced since.
	real, err := filepath.EvalSymlinks(path)
	if err == nil && real != path {
		err = fmt.Errorf("it resolves to %q", real)
	}
	if err != nil {
		return "", fmt.Errorf("profile %s: %s: want it inside %s: %w", id, path, r.dir, err)
	}
	return path, nil
}

// Place returns the path that the profile's directory has, or would have if it were made. It
// makes nothing. Its errors are those of Path, except ErrNoProfile, ErrArchived for a
// profile that was archived, and ErrMissing.
func (r *Root) Place(id string) (string, error) {
	path, err := r.Path(id)
	if !errors.Is(err, ErrNoProfile) {
		return path, err
	}
	at, err := r.Archived(id)
	if err != nil {
		return "", err
	}
	// What is in the archive may be an earlier directory of the profile, of before a restore.
	if missing, err := r.missing(id); err != nil || missing {
		return "", cmp.Or(err, ErrMissing)
	}
	if at != "" { // to the account's site, an empty directory would look like another browser
		return "", fmt.Errorf("%w: import it from %s", ErrArchived, at)
	}
	return filepath.Join(r.dir, id), nil
}

// missing tells whether this host kept the record of a profile, whose directory is not there, and has not put
// that aside: it may be on a disk that is away, or be moved for a while, and the account is in it.
func (r *Root) missing(id string) (bool, error) {
	floor, kept, err := r.Kept(id)
	if err != nil || floor == 0 && kept.State == "" {
		return false, err
	}
	for _, kind := range []signed.Kind{signed.Aside, signed.Departure} {
		said, err := r.readNote(id, kind, new(struct{}))
		if said || err != nil && !errors.Is(err, signed.ErrNotAuthentic) {
			return false, err
		}
	}
	return true, nil
}

// Create makes the profile's directory (0700) if it is missing, and returns its path.
// Errors are those of Place.
func (r *Root) Create(id string) (string, error) {
	path, err := r.Place(id)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := r.forgetFormer(id); err != nil {
			return "", err
		}
	}
	err = os.Mkdir(path, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("profile %s: %w", id, err)
	}
	return r.Path(id)
}

// RemoveEmpty takes back a Create. A directory that has anything in it stays.
func (r *Root) RemoveEmpty(id string) error {
	path, err := r.Path(id)
	if err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("profile %s: %w", id, err)
	}
	return nil
}

// List returns the sorted ids of the profiles: the directories, not links to some,
// whose names are valid ids.
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

func (r *Root) file(id, kind string) string { return filepath.Join(r.guard, id+"."+kind) }
