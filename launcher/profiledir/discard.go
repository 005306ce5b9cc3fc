package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold/internal/signed"
)

// Discard removes the directory of a locked profile that was a throwaway copy, with all its
// guard files, and gives up the lock. No process may use the directory. It is meant for a Root
// whose profiles are all copies and never reuse an id: nobody waits for the lock.
func (l *Lock) Discard() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	err := os.RemoveAll(filepath.Join(l.root.dir, l.id))
	if err == nil {
		err = os.RemoveAll(l.removedPath())
	}
	if err != nil { // the guard files say what is left
		return errors.Join(fmt.Errorf("copy %s: %w", l.id, err), l.unlock())
	}
	guard := l.root.guard
	for _, kind := range []string{"browser", "floor", string(signed.Mark), string(signed.Left), takingMark, sharedPart, launcherPart} {
		if gone := os.Remove(filepath.Join(guard, l.id+"."+kind)); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("copy %s: %w", l.id, gone))
		}
	}
	return errors.Join(err, l.unlock())
}

// Guarded lists the ids that have a guard file or a directory.
func (r *Root) Guarded() ([]string, error) {
	ids, err := r.List()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	entries, err := os.ReadDir(r.guard)
	if err != nil {
		return nil, fmt.Errorf("guard directory: %w", err)
	}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		id := e.Name()[:len(e.Name())-len(ext)]
		if (ext == "."+sharedPart || ext == "."+launcherPart) && !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
