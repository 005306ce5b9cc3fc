package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// ErrLocked says that some process, a launcher or a Chrome, holds the profile's lock.
var ErrLocked = errors.New("locked by another process")

// ErrUnlocked says that no Chrome holds the profile's lock, so there is nothing to
// adopt.
var ErrUnlocked = errors.New("no process has the lock: nothing to adopt, take it with Lock")

// The two parts of the lock, as kinds of guard files.
const (
	sharedPart   = "lock"
	launcherPart = "launcher"
)

// Lock is a profile's lock, held by this launcher. All methods may be called
// concurrently.
type Lock struct {
	root *Root
	id   string

	mu       sync.Mutex
	launcher *os.File // the launcher's part; nil after Unlock
	shared   *os.File // the part shared with Chrome; nil after Unlock, and after Adopt until Retake
	// prepared is the size of the file that PrepareFloor made; zero if there is none.
	prepared int
}

// Lock takes the profile's lock. The error is ErrLocked if some process, this one included,
// holds it for more than a moment. The profile need not exist yet.
func (r *Root) Lock(id string) (*Lock, error) {
	l, err := r.lockLauncher(id)
	if err != nil {
		return nil, err
	}
	if err := l.Retake(); err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// Adopt takes the launcher's part of the lock of a profile whose Chrome still runs
// and holds the shared part. The error is ErrLocked if another launcher holds the
// launcher's part, ErrUnlocked if no Chrome holds the shared one.
func (r *Root) Adopt(id string) (*Lock, error) {
	l, err := r.lockLauncher(id)
	if err != nil {
		return nil, err
	}
	held, err := probe(r.file(id, sharedPart))
	if err == nil && !held {
		err = ErrUnlocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("profile %s: %w", id, err), l.Unlock())
	}
	return l, nil
}

// Take is Adopt if a Chrome holds the profile's lock, and Lock otherwise; adopted says which.
func (r *Root) Take(id string) (l *Lock, adopted bool, err error) {
	l, err = r.Adopt(id)
	if errors.Is(err, ErrUnlocked) {
		l, err = r.Lock(id)
		return l, false, err
	}
	return l, err == nil, err
}

func (r *Root) lockLauncher(id string) (*Lock, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return nil, err
	}
	if err := r.There(); err != nil {
		return nil, err
	}
	path := r.file(id, launcherPart)
	file, err := flock(path)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", id, err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil {
		return nil, errors.Join(fmt.Errorf("profile %s: %w", id, err), file.Close())
	}
	l := &Lock{root: r, id: id, launcher: file}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned {
		return nil, errors.Join(fmt.Errorf("profile %s: the launcher has ended", id), file.Close())
	}
	r.locks[id] = l
	return l, nil
}

// Locked tells whether some process, this one included, holds either part of the
// profile's lock.
func (r *Root) Locked(id string) (bool, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return false, err
	}
	for _, part := range []string{launcherPart, sharedPart} {
		if held, err := probe(r.file(id, part)); held || err != nil {
			return held, err
		}
	}
	return false, nil
}

// Held tells whether some launcher, this one included, holds the launcher's part of
// the profile's lock.
func (r *Root) Held(id string) (bool, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return false, err
	}
	return probe(r.file(id, launcherPart))
}

// Taken is when somebody took the launcher's part of the profile's lock last, to be compared with
// itself: it is another time after each taking.
func (r *Root) Taken(id string) (time.Time, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return time.Time{}, err
	}
	info, err := os.Lstat(r.file(id, launcherPart))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// parts tells which parts of the profile's lock this Root holds.
func (r *Root) parts(id string) (launcher, shared bool) {
	r.mu.Lock()
	l := r.locks[id]
	r.mu.Unlock()
	return l != nil, l != nil && l.File() != nil
}

// Profile returns the id of the locked profile.
func (l *Lock) Profile() string { return l.id }

// File returns the file to pass to Chrome, which then holds the lock too. It is nil
// after Adopt until Retake succeeds, and after Unlock. The Lock closes it.
func (l *Lock) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shared
}

// Retake takes the shared part of an adopted lock. Success proves that its Chrome has
// ended; until then the error is ErrLocked. On a lock that has both parts it does
// nothing.
func (l *Lock) Retake() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retake()
}

// retake is Retake. The caller holds l.mu.
func (l *Lock) retake() error {
	if err := l.usable(); err != nil || l.shared != nil {
		return err
	}
	shared, err := flock(l.root.file(l.id, sharedPart))
	if err != nil {
		return fmt.Errorf("profile %s: %w", l.id, err)
	}
	l.shared = shared
	return nil
}

// Unlock gives up the lock by closing this launcher's files. A Chrome that inherited
// the lock keeps it until it ends: it shares the open file, so to unlock the file
// would take the lock from Chrome. A second Unlock does nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unlock()
}

// unlock is Unlock. The caller holds l.mu.
func (l *Lock) unlock() error {
	if l.launcher == nil {
		return nil
	}
	l.root.mu.Lock()
	delete(l.root.locks, l.id)
	l.root.mu.Unlock()
	var err error
	if l.shared != nil {
		err = l.shared.Close()
	}
	// The launcher's part comes last: the next launcher to take it then finds the shared part
	// free.
	err = errors.Join(err, l.launcher.Close())
	l.launcher, l.shared = nil, nil
	return err
}

// Abandon gives up every lock of this Root, and of those that its Open opened, as the end of
// the launcher's process would. After that they take no more locks. It is meant for tests in
// which launchers are not separate processes. It does not wait: done is false if a method of a
// lock is at work, and the caller has to call again.
func (r *Root) Abandon() (done bool, err error) {
	r.mu.Lock()
	r.abandoned = true
	locks, others := slices.Collect(maps.Values(r.locks)), slices.Clone(r.others)
	r.mu.Unlock()
	done = true
	for _, other := range others {
		all, problem := other.Abandon()
		done, err = done && all, errors.Join(err, problem)
	}
	for _, l := range locks {
		if !l.mu.TryLock() {
			done = false
			continue
		}
		err = errors.Join(err, l.unlock())
		l.mu.Unlock()
	}
	return done, err
}

// usable returns an error after Unlock. The caller holds l.mu.
func (l *Lock) usable() error {
	if l.launcher == nil {
		return fmt.Errorf("profile %s: the lock was given up", l.id)
	}
	return l.root.There()
}

// passing is how long to wait for a lock that somebody may hold only for a moment: a probe, or
// a process between fork and exec. On a busy host that can take many ms.
const passing = 250 * time.Millisecond

// flock opens the file and locks it. While somebody else has the lock, it tries again, for the
// time passing.
func flock(path string) (*os.File, error) {
	const pause = 10 * time.Millisecond
	for end := time.Now().Add(passing); ; time.Sleep(pause) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err = lockFile(f, path, unix.LOCK_EX); err == nil {
			return f, nil
		}
		f.Close()
		if !time.Now().Before(end) {
			return nil, err
		}
	}
}

// probe tells whether somebody holds the lock of the file. It creates nothing.
func probe(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = lockFile(f, path, unix.LOCK_SH)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, err
}

// lockFile locks the open file, whose name is path, without waiting. The error is
// ErrLocked if another open file has the lock.
func lockFile(f *os.File, path string, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w; the file system has to support flock", path, err)
	}
	// A lock protects nothing if the file no longer has that name.
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(ours, named) {
		return fmt.Errorf("lock %s: the file was replaced while it was being locked; nothing but the launcher may touch it", path)
	}
	return nil
}
