package profiledir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/lease"
)

// ErrExists says that there is a profile of that id already.
var ErrExists = errors.New("there is such a profile already")

// ErrArchived says that the profile was archived. It is also fs.ErrNotExist.
var ErrArchived = fmt.Errorf("the profile is archived: %w", fs.ErrNotExist)

// left are the entries of a user-data-dir that belong to the browser that runs,
// or ran, on it, and not to the profile; and the mark of a clone, which a copy of it
// is not.
func left(name string) bool {
	return strings.HasPrefix(name, "Singleton") || name == cloneMark || name == "DevToolsActivePort" || name == "lockfile"
}

// Measure returns how many bytes Import would copy. The error names the first
// thing that cannot be: a link, a device, a directory that is no user-data-dir.
func Measure(from string) (uint64, error) {
	var bytes uint64
	err := walk(from, func(_ string, d fs.DirEntry) error {
		if d.Type().IsRegular() {
			fi, err := d.Info()
			if err != nil {
				return err
			}
			bytes += uint64(fi.Size())
		}
		return nil
	})
	return bytes, err
}

// walk visits all that is to be copied. A link could lead anywhere, and Chrome
// makes none but its own locks.
func walk(from string, visit func(path string, d fs.DirEntry) error) error {
	if _, err := os.Stat(filepath.Join(from, "Local State")); err != nil {
		return fmt.Errorf("%s: want a Chrome user-data-dir, with a Local State file: %w", from, err)
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case filepath.Dir(rel) == "." && left(rel):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.IsDir() && !d.Type().IsRegular():
			return fmt.Errorf("%s is a %s: want files and directories only, nothing that leads out of the profile", path, kind(d.Type()))
		}
		return visit(rel, d)
	})
}

func kind(m fs.FileMode) string {
	if m&fs.ModeSymlink != 0 {
		return "link"
	}
	return "device, pipe or socket"
}

// Import copies a Chrome user-data-dir to a new profile, durably, and returns its
// path; it changes nothing in from. The caller has the profile's lock, and has
// seen that no browser uses from. Either the whole profile appears or nothing
// does. The error is ErrExists where there is one already.
func (l *Lock) Import(ctx context.Context, from string) (_ string, err error) {
	to := filepath.Join(l.root.dir, l.id)
	if _, err := os.Lstat(to); err == nil {
		return "", fmt.Errorf("profile %s: %w", l.id, ErrExists)
	}
	staging, err := os.MkdirTemp(l.root.guard, ".import-")
	if err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	made := filepath.Join(staging, "profile")
	if err := copyTree(ctx, from, made); err != nil {
		return "", fmt.Errorf("profile %s: copying %s: %w", l.id, from, err)
	}
	// One that is not empty is not replaced.
	if err := os.Rename(made, to); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	if err := durable.Sync(l.root.dir); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return l.root.Path(l.id)
}

// Withdraw undoes an Import whose profile nobody has used yet.
func (l *Lock) Withdraw() error {
	staging, err := os.MkdirTemp(l.root.guard, ".import-")
	if err != nil {
		return err
	}
	return errors.Join(os.Rename(filepath.Join(l.root.dir, l.id), filepath.Join(staging, "profile")), os.RemoveAll(staging))
}

// cloneMark is a file in the directory of a clone: another directory that comes under
// the same id does not have it.
const cloneMark = ".leasehold-clone"

// ErrNoClone says that a profile was not made by cloning another.
var ErrNoClone = errors.New("the profile is no clone")

// MarkClone notes, durably, that the profile is a copy of another, and may be removed.
// It was just imported.
func (l *Lock) MarkClone(of string) error {
	dir, err := l.root.Path(l.id)
	if err == nil {
		err = durable.Replace(filepath.Join(dir, cloneMark), []byte(of+"\n"))
	}
	if err != nil {
		return fmt.Errorf("profile %s: mark of a clone: %w", l.id, err)
	}
	return nil
}

// removing is where the directory of a clone is on its way out.
func (l *Lock) removing() string { return filepath.Join(l.root.guard, ".removed-"+l.id) }

// RemoveClone deletes the profile's directory, if it is a clone's, and returns what it
// was a copy of. The caller has seen that nobody uses it. One that was cut short is
// finished by the next, with the name unknown. The error is ErrNoClone, with nothing
// changed, for any other profile.
func (l *Lock) RemoveClone() (of string, err error) {
	dir := filepath.Join(l.root.dir, l.id)
	mark, err := os.ReadFile(filepath.Join(dir, cloneMark))
	_, gone := os.Lstat(dir)
	_, begun := os.Lstat(l.removing())
	switch {
	case errors.Is(gone, fs.ErrNotExist) && begun == nil: // cut short
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("profile %s: %w", l.id, ErrNoClone)
	case err != nil:
		return "", fmt.Errorf("profile %s: mark of a clone: %w", l.id, err)
	default:
		if err := os.RemoveAll(l.removing()); err != nil {
			return "", fmt.Errorf("profile %s: %w", l.id, err)
		}
		if err := errors.Join(os.Rename(dir, l.removing()), durable.Sync(l.root.dir), durable.Sync(l.root.guard)); err != nil {
			return "", fmt.Errorf("profile %s: %w", l.id, err)
		}
	}
	if err := os.RemoveAll(l.removing()); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return strings.TrimSpace(string(mark)), nil
}

func copyTree(ctx context.Context, from, to string) error {
	type stamp struct {
		path string
		at   time.Time
	}
	var dirs []stamp
	err := walk(from, func(rel string, d fs.DirEntry) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			dirs = append(dirs, stamp{target, fi.ModTime()})
			return os.Mkdir(target, 0o700)
		}
		if err := copyFile(filepath.Join(from, rel), target, fi.Mode().Perm()); err != nil {
			return err
		}
		return os.Chtimes(target, time.Time{}, fi.ModTime())
	})
	for _, d := range dirs {
		if err == nil {
			err = os.Chtimes(d.path, time.Time{}, d.at)
		}
	}
	if err != nil {
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// copyFile copies one file; none but its owner may read the copy.
func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|mode&0o100)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// archive is where archived profiles lie: on the same file system, out of reach
// of every id.
func (r *Root) archive() string { return filepath.Join(r.guard, "archive") }

// archiveMark stands between the id, which has none, and the time.
const archiveMark = "@"

// Archive moves the profile's directory aside and returns where it is now. Nothing
// is deleted: Import brings it back. The caller has seen that nobody uses it.
func (l *Lock) Archive(now time.Time) (string, error) {
	from, err := l.root.Path(l.id)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(l.root.archive(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	to := filepath.Join(l.root.archive(), l.id+archiveMark+now.UTC().Format("20060102T150405.000000000Z"))
	if err := os.Rename(from, to); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return to, errors.Join(durable.Sync(l.root.archive()), durable.Sync(l.root.dir))
}

// Archived returns where the profile was archived last, or nothing where there is
// a directory, or never was one.
func (r *Root) Archived(id string) (string, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return "", err
	}
	if _, err := os.Lstat(filepath.Join(r.dir, id)); err == nil {
		return "", nil
	}
	entries, err := os.ReadDir(r.archive())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	last := ""
	for _, e := range entries { // sorted, so by time
		if of, _, ok := strings.Cut(e.Name(), archiveMark); ok && of == id {
			last = filepath.Join(r.archive(), e.Name())
		}
	}
	return last, nil
}
