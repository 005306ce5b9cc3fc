// Package readers has the copies of profiles on which ephemeral sessions run. Each copy is made
// from the profile's newest snapshot, belongs to one session only, and is removed with it. If a
// launcher was killed, its guard or the next launcher removes the copies.
package readers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/internal/durable"
	"leasehold/internal/runas"
	"leasehold/internal/signed"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/snapshots"
)

// dirName is the name of the copies' folder in the data directory.
const dirName = "readers"

// copiesAtOnce is how many copies are written at a time. More would not be faster, and the free
// space is checked before each copy is written.
const copiesAtOnce = 4

// Options are what a Room works with.
type Options struct {
	DataDir string
	// Profiles is the launcher's profiles directory, and Key is the key with which it signs.
	Profiles *profiledir.Root
	Key      *signed.Key
	// Snapshots is the profile store; nil: there is none, and only leftovers of an earlier
	// launcher are removed.
	Snapshots *snapshots.Store
	// Chrome returns the version of this host's Chrome, as it is now.
	Chrome func(context.Context) (string, error)
	// KeepFree is how many bytes have to stay free on the disk.
	KeepFree uint64
	// User is the browser user; nil: browsers run as the launcher's own user.
	User *runas.User
	// Files has the files about the sessions' browsers, under the sessions' ids.
	Files     sessionfile.Dir
	Processes browser.Processes

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Room makes and removes the copies of one launcher. Its methods may be called concurrently.
type Room struct {
	o     Options
	root  *profiledir.Root
	jar   sessionfile.Jar
	cache *cache
	slots chan struct{} // holds one element for each copy that is being written

	mu     sync.Mutex
	left   []string      // copies that an earlier launcher left, or that could not be removed
	leaves chan struct{} // has room for one: there is one more
}

func dirOf(dataDir string) string { return filepath.Join(dataDir, dirName) }

// jarOf keeps the session cookies of copies until they are in their browsers.
func jarOf(root *profiledir.Root, key *signed.Key) sessionfile.Jar {
	return sessionfile.NewJar(profiledir.GuardDir(root.Dir()), key)
}

// Open opens the room of a launcher. Run removes what an earlier one has left.
func Open(o Options) (*Room, error) {
	r := &Room{o: o, slots: make(chan struct{}, copiesAtOnce), leaves: make(chan struct{}, 1)}
	r.cache = newCache(o, filepath.Join(dirOf(o.DataDir), cacheName))
	if _, err := os.Stat(dirOf(o.DataDir)); errors.Is(err, fs.ErrNotExist) && o.Snapshots == nil {
		return r, nil
	}
	var err error
	if r.root, err = o.Profiles.Open(dirOf(o.DataDir)); err != nil {
		return nil, err
	}
	if err := r.root.SetBrowserUser(o.User); err != nil {
		return nil, err
	}
	if o.User != nil { // it passes through this folder, as it does through the folder of the profiles
		if err := os.Chmod(r.root.Dir(), 0o711); err != nil {
			return nil, err
		}
	}
	r.jar = jarOf(r.root, o.Key)
	if r.left, err = r.root.Guarded(); err != nil {
		return nil, err
	}
	return r, r.cache.empty()
}

// Run removes copies that were left, and unused unpacked snapshots, until ctx ends.
func (r *Room) Run(ctx context.Context) {
	if r.root == nil {
		return
	}
	var caching sync.WaitGroup
	defer caching.Wait()
	caching.Go(func() { r.cache.run(ctx) })
	for ctx.Err() == nil { // the next launcher tries again
		var again <-chan time.Time
		if r.discard(ctx) > 0 {
			again = time.After(leftPause)
		}
		select {
		case <-again:
		case <-r.leaves:
		case <-ctx.Done():
		}
	}
}

// discard removes the copies that were left, and returns how many could not be removed.
func (r *Room) discard(ctx context.Context) int {
	r.mu.Lock()
	ids := r.left
	r.left = nil
	r.mu.Unlock()
	left, err := discardLeft(ctx, r.root, ids, r.o.Files, r.o.Key, r.o.Processes, r.o.Log)
	if err != nil {
		r.o.Log.Error().Err(err).Msg("copies of profiles that were left are not removed: it is tried again")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, left...)
	return len(r.left)
}

// leftPause is the time between two attempts to remove what was left.
const leftPause = 5 * time.Second

// Left are the copies that a launcher has left at its end. The guard uses it.
type Left struct {
	o    Options
	root *profiledir.Root // nil: there are none
	ids  []string
}

// FindLeft finds the copies that exist now. Of the options it needs only DataDir, Profiles,
// Key, Processes and Log.
func FindLeft(o Options) (*Left, error) {
	l := &Left{o: o}
	if _, err := os.Stat(dirOf(o.DataDir)); errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	var err error
	if l.root, err = o.Profiles.Open(dirOf(o.DataDir)); err == nil {
		l.ids, err = l.root.Guarded()
	}
	return l, err
}

// Discard kills the browsers on the copies and removes the copies, except those that a launcher
// has. That launcher may be the one that is ending, whose locks the kernel releases after its
// pipes, or the next one, which removes them itself. Discard returns how many are left.
func (l *Left) Discard(ctx context.Context) (int, error) {
	if l.root == nil {
		return 0, nil
	}
	there, err := l.root.Guarded()
	if err != nil {
		return len(l.ids), err
	}
	var free, held []string
	for _, id := range l.ids {
		has, err := l.root.Held(id)
		switch {
		case !slices.Contains(there, id): // the next launcher has removed it
		case err == nil && !has:
			free = append(free, id)
		default:
			held = append(held, id)
		}
	}
	left, err := discardLeft(ctx, l.root, free, sessionfile.NewDir(l.o.DataDir, l.o.Key), l.o.Key, l.o.Processes, l.o.Log)
	l.ids = append(held, left...)
	return len(l.ids), err
}

// discardLeft removes copies, after killing the browsers on them. It returns those that are
// left.
func discardLeft(ctx context.Context, root *profiledir.Root, ids []string, files sessionfile.Dir, key *signed.Key, processes browser.Processes, log zerolog.Logger) (left []string, errs error) {
	jar := jarOf(root, key)
	for _, id := range ids {
		err := discardOne(ctx, root, id, processes)
		if err == nil {
			err = errors.Join(files.Remove(id), jar.Drop(id))
		}
		if err != nil {
			left, errs = append(left, id), errors.Join(errs, err)
			continue
		}
		log.Info().Str("session", id).Msg("removed the copy of an ephemeral session that was left")
	}
	return left, errs
}

// leftTimeout bounds how long the browser of one copy may take to be gone.
const leftTimeout = 30 * time.Second

// forkPause is the time between two looks for a browser that was only forked.
const forkPause = 10 * time.Millisecond

func discardOne(ctx context.Context, root *profiledir.Root, id string, processes browser.Processes) error {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	for {
		lock, adopted, err := root.Take(id)
		if err != nil {
			return err
		}
		if err := browser.DiscardLeft(ctx, processes, root, id); err != nil {
			return errors.Join(err, lock.Unlock())
		}
		if !adopted {
			return lock.Discard()
		}
		// A browser had its lock. One whose launcher was killed right after the fork names no directory
		// yet, and was not found: whether somebody has the lock still is seen by taking it.
		if err := lock.Unlock(); err != nil {
			return err
		}
		select {
		case <-time.After(forkPause):
		case <-ctx.Done():
			return fmt.Errorf("copy %s: a process that names no directory has its lock: %w", id, context.Cause(ctx))
		}
	}
}

// Copy is a throwaway copy of a profile. Its user calls Discard once.
type Copy struct {
	room *Room
	id   string
	// Path is the path of its directory; Lock is the kernel's lock of it, which its browser
	// inherits.
	Path string
	Lock *profiledir.Lock
	// Jar has the session cookies that were kept with the snapshot, under the session's id.
	Jar sessionfile.Jar
}

// Root is where the copy is, under its session's id.
func (c *Copy) Root() *profiledir.Root { return c.room.root }

// Unpack fetches a snapshot, unless it is there already, and keeps it until release is called.
// Its errors are those of snapshots.Store.Fetch.
func (r *Room) Unpack(ctx context.Context, profileID, snapshotID string) (u *Unpacked, release func(), err error) {
	return r.cache.unpack(ctx, profileID, snapshotID)
}

// Forget removes the unpacked snapshots that nobody uses.
func (r *Room) Forget() { r.cache.tidy(true) }

// Make makes the copy of an unpacked snapshot for a session. If it fails, it leaves nothing
// behind.
func (r *Room) Make(ctx context.Context, u *Unpacked, sessionID string) (_ *Copy, err error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if free, err := durable.FreeSpace(r.root.Dir()); err == nil && free.Bytes < u.Bytes+r.o.KeepFree {
		return nil, &snapshots.NoSpaceError{SnapshotID: u.Snapshot.ID, Dir: r.root.Dir(), Need: u.Bytes, Free: free.Bytes, Keep: r.o.KeepFree}
	}
	lock, err := r.root.Lock(sessionID)
	if err != nil {
		return nil, err
	}
	c := &Copy{room: r, id: sessionID, Path: filepath.Join(r.root.Dir(), sessionID), Lock: lock, Jar: r.jar}
	if err = copyTree(ctx, u.Dir, c.Path); err == nil {
		err = lock.Chown()
	}
	if err == nil {
		err = r.jar.Import(sessionID, u.Extra)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy of snapshot %s: %w", u.Snapshot.ID, err), c.Discard())
	}
	return c, nil
}

// Leave gives the copy up, which could not be removed: Run tries again.
func (c *Copy) Leave() error {
	err := c.Lock.Unlock()
	c.room.mu.Lock()
	c.room.left = append(c.room.left, c.id)
	c.room.mu.Unlock()
	select {
	case c.room.leaves <- struct{}{}:
	default:
	}
	return err
}

// Discard removes the copy. No process may use it any more.
func (c *Copy) Discard() error {
	return errors.Join(c.Lock.Discard(), c.Jar.Drop(c.id))
}

// copyTree copies a directory that contains only directories and regular files. Every file is
// really copied: Chrome changes files in place, so a change in a shared file would be visible
// in the other copies. The kernel shares the blocks if the file system can. Nothing is synced:
// if the host goes down, what is left of a copy is removed anyway.
func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.Mkdir(target, 0o700)
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if !fi.Mode().IsRegular() {
			return fmt.Errorf("%s: want a regular file", path)
		}
		return copyFile(path, target, fi.Mode().Perm())
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return profiledir.CopyFile(in, to, mode)
}
