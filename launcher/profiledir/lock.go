package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// ErrLocked says that some process, a launcher or a Chrome, has the profile.
var ErrLocked = errors.New("locked by another process")

// ErrUnlocked says that no Chrome has the profile's lock, so that there is
// nothing to adopt.
var ErrUnlocked = errors.New("no process has the lock: nothing to adopt, take it with Lock")

// The two parts of the lock, as kinds of guard files.
const (
	sharedPart   = "lock"
	launcherPart = "launcher"
)

// Lock is this launcher's hold on a profile. All methods may be called
// concurrently.
type Lock struct {
	root *Root
	id   string

	mu     sync.Mutex
	mine   *os.File // nil once unlocked
	shared *os.File // nil until an adopted lock is retaken
	// prepared is the size of the file that PrepareKeep made; zero if there is none.
	prepared int
}

// Lock takes the profile's lock. It does not wait; the error is ErrLocked if
// some process, this one included, has it. The profile need not exist yet.
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

// Adopt takes the launcher's part of the lock of a profile whose Chrome lives on
// and has the other. The error is ErrLocked if another launcher has its part,
// ErrUnlocked if no Chrome has the other.
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

func (r *Root) lockLauncher(id string) (*Lock, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return nil, err
	}
	mine, err := flock(r.file(id, launcherPart))
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", id, err)
	}
	l := &Lock{root: r, id: id, mine: mine}
	r.mu.Lock()
	r.held[id] = l
	r.mu.Unlock()
	return l, nil
}

// Locked tells whether some process, this one included, has either part of the
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

// Held tells whether some launcher, this one included, has its part of the
// profile's lock.
func (r *Root) Held(id string) (bool, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return false, err
	}
	return probe(r.file(id, launcherPart))
}

// holds tells whether this Root has the launcher's part of the profile's lock,
// and whether it has the whole.
func (r *Root) holds(id string) (ours, whole bool) {
	r.mu.Lock()
	l := r.held[id]
	r.mu.Unlock()
	return l != nil, l != nil && l.File() != nil
}

// Profile returns the id of the locked profile.
func (l *Lock) Profile() string { return l.id }

// File returns the descriptor to pass to Chrome, which then holds the lock too.
// It is nil after Adopt, until Retake succeeds, and after Unlock. The Lock keeps
// and closes it.
func (l *Lock) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shared
}

// Retake completes an adopted lock once its Chrome has ended: success proves
// that the Chrome is gone. The error is ErrLocked while it is not. A lock that is
// complete stays as it is.
func (l *Lock) Retake() error {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// Unlock closes this launcher's descriptors. A Chrome that inherited the lock
// keeps it until it ends: it shares our open file, so that unlocking instead of
// closing would take it from Chrome. A second Unlock does nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mine == nil {
		return nil
	}
	l.root.mu.Lock()
	delete(l.root.held, l.id)
	l.root.mu.Unlock()
	var err error
	if l.shared != nil {
		err = l.shared.Close()
	}
	// Last, so that who gets the launcher's part finds the shared one free.
	err = errors.Join(err, l.mine.Close())
	l.mine, l.shared = nil, nil
	return err
}

// usable is called with l.mu held.
func (l *Lock) usable() error {
	if l.mine == nil {
		return fmt.Errorf("profile %s: the lock was given up", l.id)
	}
	return nil
}

// flock opens the file and locks it. A probe, or a process between fork and
// exec, may hold it for a moment, so a refusal is believed only when it lasts.
func flock(path string) (*os.File, error) {
	const tries, pause = 5, 10 * time.Millisecond
	var err error
	for try := range tries {
		if try > 0 {
			time.Sleep(pause)
		}
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
			return nil, err
		}
		if err = lockFile(f, path, unix.LOCK_EX); err == nil {
			return f, nil
		}
		f.Close()
	}
	return nil, err
}

// probe tells whether another open file has the lock.
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
	// A lock on a file that is no longer under the name guards nothing.
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
