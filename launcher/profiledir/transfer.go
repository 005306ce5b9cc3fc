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

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// ErrExists says that there is a profile of that id already.
var ErrExists = errors.New("there is such a profile already")

// ErrArchived says that the profile was archived. It is also fs.ErrNotExist.
var ErrArchived error = archivedError{}

type archivedError struct{}

func (archivedError) Error() string { return "the profile is archived" }

func (archivedError) Is(target error) bool { return target == fs.ErrNotExist }

// isNotCopied tells whether an entry of a user-data-dir is not part of the profile.
// Such an entry belongs to the browser that runs or ran there, or is a mark: a
// copy of a clone is not a clone itself.
func isNotCopied(name string) bool {
	return strings.HasPrefix(name, "Singleton") || name == cloneMark || strings.HasPrefix(name, directoryMark) || name == "DevToolsActivePort" || name == "lockfile"
}

// Measure returns how many bytes Copy would copy. The error names the first thing
// that cannot be copied: a link, a device, a directory that is no user-data-dir.
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

// walk visits everything that is to be copied. It refuses links, which could lead
// anywhere: Chrome makes none but its own locks.
func walk(from string, visit func(path string, d fs.DirEntry) error) error {
	if _, err := os.Stat(filepath.Join(from, "Local State")); err != nil {
		return fmt.Errorf("%s: want a Chrome user-data-dir, with a Local State file: %w", from, err)
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case filepath.Dir(rel) == "." && isNotCopied(rel):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.IsDir() && !d.Type().IsRegular():
			return fmt.Errorf("%s is a %s: want files and directories only, nothing that leads out of the profile", path, kindOfFile(d.Type()))
		}
		return visit(rel, d)
	})
}

func kindOfFile(m fs.FileMode) string {
	if m&fs.ModeSymlink != 0 {
		return "link"
	}
	return "device, pipe or socket"
}

// Fill durably makes a directory at a path where nothing is yet, and returns the files that belong beside
// it, by name: the session cookies of what it was made of.
type Fill func(ctx context.Context, dir string) (extras map[string][]byte, err error)

// Empty is the Fill of a directory with nothing in it.
func Empty(_ context.Context, dir string) (map[string][]byte, error) {
	return nil, os.Mkdir(dir, 0o700)
}

// Make makes the directory of a new profile, and returns the profile's path. When the directory is
// complete, prepare gets its path, which is not the profile's yet, and what belongs beside it: it does
// whatever nobody may have the profile without. Then the profile appears. If anything fails, fill and prepare included, no profile
// appears. The error is ErrExists if the profile exists already.
func (l *Lock) Make(ctx context.Context, fill Fill, prepare func(dir string, extras map[string][]byte) error) (_ string, err error) {
	to := filepath.Join(l.root.dir, l.id)
	if _, err := os.Lstat(to); err == nil {
		return "", fmt.Errorf("profile %s: %w", l.id, ErrExists)
	}
	// An interrupted call left its files here.
	staging := filepath.Join(l.root.guard, importMark+l.id)
	if err := os.RemoveAll(staging); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	made := filepath.Join(staging, "profile")
	extras, err := fill(ctx, made)
	if err != nil {
		return "", err
	}
	// prepare may have the host keep a record of the profile, and the directory may not appear after that. It is
	// only missing then if one was missing before.
	missing, err := l.root.missing(l.id)
	if err == nil && !missing {
		err = l.writeNote(signed.Aside, struct{}{})
	}
	if err != nil {
		return "", err
	}
	if err := prepare(made, extras); err != nil {
		return "", err
	}
	if err := l.root.forgetFormer(l.id); err != nil {
		return "", err
	}
	// The kernel does not replace a directory that is not empty.
	if err := os.Rename(made, to); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	if err := durable.Sync(l.root.dir); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	if err := l.removeNote(signed.Aside); err != nil {
		return "", err
	}
	return l.root.Path(l.id)
}

// cloneMark is a file inside the directory of a clone, so that another directory which later
// gets the same id does not have it.
const cloneMark = ".leasehold-clone"

// ErrNoClone says that a profile was not made by cloning another one.
var ErrNoClone = errors.New("the profile is no clone")

// MarkClone durably notes in a directory that it is a copy of a profile, and so may be
// removed.
func MarkClone(dir, of string) error {
	if err := durable.Replace(filepath.Join(dir, cloneMark), []byte(of+"\n")); err != nil {
		return fmt.Errorf("mark of a clone: %w", err)
	}
	return nil
}

// putAside has move take the profile's directory away for good, and durably notes that before: whoever asks
// for a new directory gets one, as long as no other has come into its place.
func (l *Lock) putAside(move func() error) error {
	err := l.writeNote(signed.Aside, struct{}{})
	if err != nil {
		return err
	}
	if err = move(); err != nil {
		return errors.Join(err, l.removeNote(signed.Aside))
	}
	return nil
}

// removedPath is where RemoveClone moves the directory of a clone before it deletes it.
func (l *Lock) removedPath() string { return filepath.Join(l.root.guard, removedMark+l.id) }

// CloneOf returns the id of the profile of which this one's directory is a copy, and no id if an
// interrupted RemoveClone has moved it away. If the profile is not a clone, the error is ErrNoClone.
func (l *Lock) CloneOf() (of string, err error) {
	dir := filepath.Join(l.root.dir, l.id)
	mark, err := foreign.Read(dir, cloneMark, 1<<10)
	_, dirErr := os.Lstat(dir)
	_, removedErr := os.Lstat(l.removedPath())
	switch {
	case errors.Is(dirErr, fs.ErrNotExist) && removedErr == nil: // an earlier call was interrupted
		return "", nil
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("profile %s: %w", l.id, ErrNoClone)
	case err != nil:
		return "", fmt.Errorf("profile %s: mark of a clone: %w", l.id, err)
	}
	return strings.TrimSpace(string(mark)), nil
}

// RemoveClone deletes the profile's directory if it is a clone's, and returns what CloneOf does. The
// caller has made sure that nobody uses it. An interrupted RemoveClone is finished by the next one. If
// the profile is not a clone, nothing is changed.
func (l *Lock) RemoveClone() (of string, err error) {
	if of, err = l.CloneOf(); err != nil {
		return "", err
	}
	dir := filepath.Join(l.root.dir, l.id)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		err := os.RemoveAll(l.removedPath())
		if err == nil {
			err = l.putAside(func() error { return os.Rename(dir, l.removedPath()) })
		}
		if err = errors.Join(err, durable.Sync(l.root.dir), durable.Sync(l.root.guard)); err != nil {
			return "", fmt.Errorf("profile %s: %w", l.id, err)
		}
	}
	if err := os.RemoveAll(l.removedPath()); err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return of, nil
}

// copyTree copies the directory from, durably and with its times, to a directory that
// does not exist yet.
func copyTree(ctx context.Context, from, to string) error {
	type modified struct {
		path string
		at   time.Time
	}
	var dirs []modified // their times are set last, because each new entry changes them
	source, err := foreign.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	err = walk(from, func(rel string, d fs.DirEntry) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			dirs = append(dirs, modified{target, fi.ModTime()})
			return os.Mkdir(target, 0o700)
		}
		if err := copyFile(source, rel, target, fi.Mode().Perm()); err != nil {
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
	return durable.SyncAll(to)
}

func copyFile(from *foreign.Dir, name, to string, mode fs.FileMode) error {
	in, err := from.File(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	return CopyFile(in, to, mode)
}

// CopyFile copies an open file to a path at which nothing is yet. Only the owner may read the
// copy, and execute it if the mode says so.
func CopyFile(in *os.File, to string, mode fs.FileMode) (err error) {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|mode&0o100)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in) // by copy_file_range, if the kernel can
	return err
}

// archive is the directory of the archived profiles: on the same file system, and at
// a path that no profile id leads to.
func (r *Root) archive() string { return archiveIn(r.guard) }

func archiveIn(guard string) string { return filepath.Join(guard, "archive") }

// archiveMark separates the id and the time in the name of an archived profile. An id
// does not contain it.
const archiveMark = "@"

// Archive moves the profile's directory to the archive and returns its new path. What belongs to it is kept
// beside it. Nothing is deleted: Make can bring it back from a copy. The caller has made sure that nobody uses it.
func (l *Lock) Archive(now time.Time, extras map[string][]byte) (string, error) {
	from, err := l.root.Path(l.id)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(l.root.archive(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	to := filepath.Join(l.root.archive(), l.id+archiveMark+now.UTC().Format("20060102T150405.000000000Z"))
	err = l.sweepUnfinished(l.root.archive(), os.RemoveAll)
	if err == nil {
		err = l.putAside(func() error { return l.moveToArchive(to, extras, func() error { return os.Rename(from, to) }) })
	}
	if err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return to, errors.Join(durable.Sync(l.root.archive()), durable.Sync(l.root.dir))
}

// IsArchive tells whether a path without links is an archived profile's, and which profile it
// is.
func (r *Root) IsArchive(path string) (profileID string, archived bool) {
	archive, err := filepath.EvalSymlinks(r.archive())
	if err != nil || filepath.Dir(path) != archive {
		return "", false
	}
	profileID, _, archived = strings.Cut(filepath.Base(path), archiveMark)
	if !archived || strings.HasPrefix(profileID, unfinishedMark) || strings.HasSuffix(path, besideMark) {
		return "", false
	}
	return profileID, true
}

// Archived returns the path to which the profile was archived last. It is empty if
// the profile has a directory, or was never archived.
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
		if of, _, ok := strings.Cut(e.Name(), archiveMark); ok && of == id && !strings.HasSuffix(e.Name(), besideMark) {
			last = filepath.Join(r.archive(), e.Name())
		}
	}
	return last, nil
}
