package snapshots

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/objects"
	"leasehold/internal/storedir"
)

// Dir keeps objects as files below a directory: the store for file:// URLs. Launchers of
// several hosts may share it if the file system has locks (flock) that work for all of them.
type Dir struct {
	root string
	at   *storedir.Dir
}

var _ objects.Objects = (*Dir)(nil)

// OpenDir returns the objects below a directory. It does not access the directory: a file
// system whose calls hang may go on later. The first write makes the directory (0700) if it is
// missing, and from then on it has to be that one.
func OpenDir(root string) *Dir { return &Dir{root, storedir.New(root)} }

// lockName is the file whose lock serialises the writers of a folder. A key has no dot.
const lockName = "write.lock"

func (d *Dir) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

// Get implements objects.Objects. The version is a hash of the content.
func (d *Dir) Get(ctx context.Context, key string) (content []byte, version string, err error) {
	content, err = storedir.Call(ctx, d.at, d.at.Still, func() ([]byte, error) { return d.read(key) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", objects.ErrNone
	}
	return content, versionOf(content), err
}

// read reads an object. Others may write to the directory: what is there and cannot be an object
// is ErrDamaged.
func (d *Dir) read(key string) ([]byte, error) {
	content, err := foreign.ReadPlain(d.root, key, maxObject)
	if errors.Is(err, foreign.ErrNotPlain) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return content, err
}

// maxObject is the most bytes that an object has: what is stored in it, with what encryption and
// compression add.
const maxObject = maxPlain + 1<<20

func versionOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Put implements objects.Objects.
func (d *Dir) Put(ctx context.Context, key string, content []byte, version string) error {
	_, err := storedir.Call(ctx, d.at, d.at.Make, func() (struct{}, error) { return struct{}{}, d.put(ctx, key, content, version) })
	return err
}

func (d *Dir) put(ctx context.Context, key string, content []byte, version string) (err error) {
	path := d.path(key)
	if err := d.makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if version == "" {
		if err = durable.CreateWhole(path, content); errors.Is(err, fs.ErrExist) {
			return objects.ErrOtherVersion
		}
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(path), lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // closing it releases the lock
	if err := exclusive(ctx, lock); err != nil {
		return err
	}
	old, err := d.read(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return objects.ErrOtherVersion
	case err != nil:
		return err
	case versionOf(old) != version:
		return objects.ErrOtherVersion
	case bytes.Equal(old, content):
		return durable.Sync(path)
	}
	return durable.Replace(path, content)
}

// lockRetry is the pause before another try to get a lock. Its holder only reads and replaces
// one file.
const lockRetry = 5 * time.Millisecond

// exclusive locks a file. It does not wait in the kernel, where nothing could end the wait.
func exclusive(ctx context.Context, file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			return fmt.Errorf("%s: somebody else writes there: %w", file.Name(), context.Cause(ctx))
		}
	}
}

// makeFolder makes a folder below the root durably, unless it is the root itself, which is made before.
func (d *Dir) makeFolder(folder string) error {
	if folder == d.root {
		return nil
	}
	err := os.Mkdir(folder, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return d.checkFolder(folder)
	case errors.Is(err, fs.ErrNotExist):
		if err := d.makeFolder(filepath.Dir(folder)); err != nil {
			return err
		}
		if err = os.Mkdir(folder, 0o700); errors.Is(err, fs.ErrExist) {
			return d.checkFolder(folder)
		}
	}
	if err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(folder))
}

// checkFolder returns an error unless a folder below the root is one, reached without a link.
func (d *Dir) checkFolder(folder string) error {
	name, err := filepath.Rel(d.root, folder)
	if err != nil {
		return err
	}
	return foreign.CheckFolder(d.root, filepath.ToSlash(name))
}

// Delete implements objects.Objects.
func (d *Dir) Delete(ctx context.Context, key string) error {
	path := d.path(key)
	_, err := storedir.Call(ctx, d.at, d.at.Still, func() (struct{}, error) {
		if err := d.checkFolder(filepath.Dir(path)); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, os.Remove(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// List implements objects.Objects. It also removes the leftovers of writes that a crash cut short a day
// ago or earlier.
func (d *Dir) List(ctx context.Context, prefix string) ([]string, error) {
	return storedir.Call(ctx, d.at, d.at.Still, func() ([]string, error) { return d.list(ctx, prefix) })
}

func (d *Dir) list(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	err := filepath.WalkDir(d.path(prefix), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile, or nothing has that prefix
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir():
			return nil
		case strings.Contains(entry.Name(), "."): // not an object: a lock, or a write that is under way
			return removeOld(path, entry)
		}
		rel, err := filepath.Rel(d.root, path)
		keys = append(keys, filepath.ToSlash(rel))
		return err
	})
	return keys, err
}

// Folders implements objects.Objects.
func (d *Dir) Folders(ctx context.Context, prefix string) ([]string, error) {
	path := d.path(prefix)
	entries, err := storedir.Call(ctx, d.at, d.at.Still, func() ([]fs.DirEntry, error) {
		if err := d.checkFolder(path); err != nil {
			return nil, err
		}
		return os.ReadDir(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// removeOld removes the leftover of a write that must have ended long ago.
func removeOld(path string, entry fs.DirEntry) error {
	if !strings.HasPrefix(entry.Name(), durable.Unfinished) {
		return nil
	}
	info, err := entry.Info()
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	if time.Since(info.ModTime()) > unfinishedFor {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unfinishedFor is longer than any write takes.
const unfinishedFor = 24 * time.Hour
