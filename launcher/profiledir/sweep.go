package profiledir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leasehold/internal/durable"
	"leasehold/lease"
)

// The names of directories in the guard directory that are on their way into a profile's place, or were taken
// from there. What follows is the profile's id.
const (
	importMark  = ".import-"
	removedMark = ".removed-"
	arrivalMark = ".arrival-"
)

// discardedMark begins the names, in the guard directory, of what a Sweep is about to delete.
const discardedMark = ".discarded-"

// Sweep removes what making, restoring, moving or removing profiles left behind when it was cut short: whole copies
// of accounts. It leaves alone what somebody is at work on, and everything where another host may be: of that one,
// this host's locks say nothing. It may be called at any time, and stops before the next profile when ctx ends. It has no
// profile's lock while it deletes: an account may have gigabytes.
func (r *Root) Sweep(ctx context.Context) error { return r.sweep(ctx, os.RemoveAll) }

func (r *Root) sweep(ctx context.Context, remove func(path string) error) error {
	if NetworkFilesystem(r.guard).Answer != No {
		return nil
	}
	ids, err := r.sweepable()
	for id := range ids {
		if ctx.Err() != nil {
			break
		}
		l, failed := r.lockLauncher(id)
		if errors.Is(failed, ErrLocked) {
			continue
		}
		if failed == nil {
			failed = errors.Join(l.sweep(), l.Unlock())
		}
		err = errors.Join(err, failed)
	}
	discarded, unread := durable.Glob(r.guard, discardedMark+"*")
	err = errors.Join(err, unread)
	for _, path := range discarded {
		if ctx.Err() == nil {
			err = errors.Join(err, remove(path))
		}
	}
	return err
}

// discard takes what is at a path away, for sweep to delete it. What cannot be moved is deleted at once.
func (r *Root) discard(path string) error {
	err := os.Rename(path, filepath.Join(r.guard, discardedMark+rand.Text()))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.RemoveAll(path)
}

// sweepable are the profiles of which something may be left.
func (r *Root) sweepable() (map[string]bool, error) {
	ids := map[string]bool{}
	guard, err := os.ReadDir(r.guard)
	for _, e := range guard {
		name, fetched := strings.CutPrefix(e.Name(), "."+arrivalMark)
		if fetched {
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		for _, mark := range []string{importMark, removedMark, arrivalMark} {
			name = strings.TrimPrefix(name, mark)
		}
		if name != e.Name() && lease.CheckProfileID(name) == nil {
			ids[name] = true
		}
	}
	archived, unread := os.ReadDir(r.archive())
	for _, e := range archived {
		id, _, is := strings.Cut(strings.TrimLeft(e.Name(), unfinishedMark), archiveMark)
		if is && strings.HasPrefix(e.Name(), unfinishedMark) && lease.CheckProfileID(id) == nil {
			ids[id] = true
		}
	}
	if errors.Is(unread, fs.ErrNotExist) {
		unread = nil
	}
	return ids, errors.Join(err, unread)
}

func (l *Lock) sweep() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.root.discard(filepath.Join(l.root.guard, importMark+l.id)), l.emptyRemoved())
	switch _, arriving, unread := l.root.Arriving(l.id); {
	case unread != nil:
		err = errors.Join(err, unread)
	case !arriving:
		err = errors.Join(err, l.dropArrival(l.root.discard))
	}
	if _, none := os.Lstat(l.root.archive()); none == nil {
		err = errors.Join(err, l.sweepUnfinished(l.root.archive(), l.root.discard))
	}
	if err != nil {
		return fmt.Errorf("profile %s: %w", l.id, err)
	}
	return nil
}

// emptyRemoved discards what RemoveClone had taken out of the profile's place. As long as there is nothing in that
// place, an empty directory tells the next RemoveClone that it was a clone's.
func (l *Lock) emptyRemoved() error {
	if _, none := os.Lstat(filepath.Join(l.root.dir, l.id)); none == nil {
		return l.root.discard(l.removedPath())
	}
	entries, err := os.ReadDir(l.removedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, l.root.discard(filepath.Join(l.removedPath(), e.Name())))
	}
	return err
}
