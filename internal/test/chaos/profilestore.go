package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// profileStore is the store of snapshots, which all hosts share: a directory on a file system of
// its own, as a network share would be.
type profileStore struct {
	disk *disk
	// path is its directory, and key the file with its key.
	path, key string
}

func newProfileStore(c Config, net *network, dir string) (*profileStore, error) {
	d, err := newDisk(net.isolated, filepath.Join(dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	s := &profileStore{disk: d, path: filepath.Join(d.path, "store"), key: filepath.Join(dir, "profile.key")}
	if out, err := exec.Command(c.Leasehold, "profiles", "keygen", s.key).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("key of the profile store: %w: %s", err, out)
	}
	return s, nil
}

// arguments are those of a launcher that uses it.
func (s *profileStore) arguments() []string {
	return []string{"--profile-store", "file://" + s.path, "--profile-key", s.key, "--profile-snapshots", "3"}
}

// away has every access to the store fail until back is called.
func (s *profileStore) away() (back func() error, err error) {
	aside := s.path + ".aside"
	if err := os.Rename(s.path, aside); err != nil {
		return nil, err
	}
	back = func() error { return errors.Join(os.RemoveAll(s.path), os.Rename(aside, s.path)) }
	// With a file in its place nobody makes a new one.
	if err := os.WriteFile(s.path, nil, 0o600); err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// hang takes the locks of all folders, so that whoever replaces a list waits, until back is
// called.
func (s *profileStore) hang() (back func() error, err error) {
	var taken []*os.File
	back = func() error {
		var errs []error
		for _, f := range taken {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	locks, err := filepath.Glob(filepath.Join(s.path, "profiles", "*", "write.lock"))
	for _, path := range locks {
		f, openErr := os.OpenFile(path, os.O_RDWR, 0)
		if openErr != nil {
			err = openErr
			break
		}
		taken = append(taken, f)
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// objects are the paths of the files in the store whose path has a part in it.
func (s *profileStore) objects(part string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(s.path, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // collected meanwhile
			return nil
		}
		if err == nil && entry.Type().IsRegular() && strings.Contains(path, part) && !strings.Contains(entry.Name(), ".") {
			found = append(found, path)
		}
		return err
	})
	return found, err
}

// The ways in which the store is damaged.
const (
	damageFlip = iota
	damageCut
	damageRemove
	damageSwap
	damageWays
)

// damage changes some of the pieces that are stored, or puts an older list of a profile back,
// and says what it did.
func (s *profileStore) damage(ctx context.Context, rnd *rand.Rand, pause time.Duration) (string, error) {
	if rnd.IntN(3) == 0 {
		return s.putListBack(ctx, rnd, pause)
	}
	pieces, err := s.objects("/chunks/")
	if err != nil || len(pieces) < 2 {
		return "nothing is stored yet", err
	}
	var said []string
	for range 3 {
		path, other := pieces[rnd.IntN(len(pieces))], pieces[rnd.IntN(len(pieces))]
		how, err := damageOne(path, other, rnd)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rel, _ := filepath.Rel(s.path, path) // both are absolute
		said = append(said, how+" "+rel)
	}
	return strings.Join(said, ", "), nil
}

func damageOne(path, other string, rnd *rand.Rand) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return "nothing at", err
	}
	switch rnd.IntN(damageWays) {
	case damageFlip:
		content[rnd.IntN(len(content))] ^= 1 << rnd.IntN(8)
		return "a bit of", os.WriteFile(path, content, 0o600)
	case damageCut:
		return "the end of", os.Truncate(path, int64(rnd.IntN(len(content))))
	case damageRemove:
		return "all of", os.Remove(path)
	default:
		if content, err = os.ReadFile(other); err != nil {
			return "nothing at", err
		}
		return "another piece at", os.WriteFile(path, content, 0o600)
	}
}

// putListBack has the store show the list of a profile as it was a while ago.
func (s *profileStore) putListBack(ctx context.Context, rnd *rand.Rand, pause time.Duration) (string, error) {
	lists, err := filepath.Glob(filepath.Join(s.path, "profiles", "*", "head"))
	if err != nil || len(lists) == 0 {
		return "nothing is stored yet", err
	}
	path := lists[rnd.IntN(len(lists))]
	old, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sleep(ctx, pause)
	rel, _ := filepath.Rel(s.path, path) // both are absolute
	return "an older " + rel, os.WriteFile(path, old, 0o600)
}

// storeFails has the store of snapshots fail in some way for a while.
func (h *harness) storeFails(ctx context.Context, rnd *rand.Rand, kind string, begin func() (func() error, error)) error {
	h.log(kind, "")
	back, err := begin()
	if err != nil {
		return err
	}
	sleep(ctx, h.long(rnd))
	return back()
}

func (h *harness) snapshotsAway(ctx context.Context, rnd *rand.Rand) error {
	return h.storeFails(ctx, rnd, SnapshotsAway, h.snapshots.away)
}

func (h *harness) snapshotsHang(ctx context.Context, rnd *rand.Rand) error {
	return h.storeFails(ctx, rnd, SnapshotsHang, h.snapshots.hang)
}

func (h *harness) snapshotsFull(ctx context.Context, rnd *rand.Rand) error {
	return h.storeFails(ctx, rnd, SnapshotsFull, func() (func() error, error) { return h.snapshots.disk.free, h.snapshots.disk.fill() })
}

// snapshotsDamaged damages the store. It stays so until a launcher finds out, by a move or by a
// person who has the snapshots verified.
func (h *harness) snapshotsDamaged(ctx context.Context, rnd *rand.Rand) error {
	what, err := h.snapshots.damage(ctx, rnd, h.long(rnd))
	h.log(SnapshotsDamaged, what)
	sleep(ctx, h.brief(rnd))
	h.people.verify(ctx)
	return err
}
