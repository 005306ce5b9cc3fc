package snapshots_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold/internal/objects"
	"leasehold/internal/test/objectstest"
	"leasehold/launcher/snapshots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDir(t testing.TB) *snapshots.Dir {
	t.Helper()
	return snapshots.OpenDir(t.TempDir())
}

func TestDir(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objects.Objects { return openDir(t) })
}

// TestAStoreThatIsAwayAtFirst, as a file system that is not mounted yet, is none that is used
// wrongly: it is there as soon as it can be reached.
func TestAStoreThatIsAwayAtFirst(t *testing.T) {
	t.Parallel()
	share := filepath.Join(t.TempDir(), "share")
	if err := os.WriteFile(share, nil, 0o600); err != nil { // nothing can be below it
		t.Fatal(err)
	}
	store := snapshots.New(snapshots.OpenDir(filepath.Join(share, "profiles", "eu")), snapshots.NewKey())
	for _, wrong := range []error{snapshots.ErrWrongKey, snapshots.ErrFormat, snapshots.ErrDamaged} {
		if err := store.Check(t.Context()); err == nil || errors.Is(err, wrong) {
			t.Errorf("while it is away: %v", err)
		}
	}
	if err := os.Remove(share); err != nil {
		t.Fatal(err)
	}
	if err := store.Check(t.Context()); err != nil {
		t.Errorf("when it is there: %v", err)
	}
}

// TestWhatOthersPutIntoTheStoreIsNotFollowed: links, pipes and files that would fill the memory
// are damage, and nothing is written or removed behind a link.
func TestWhatOthersPutIntoTheStoreIsNotFollowed(t *testing.T) {
	t.Parallel()
	root, elsewhere := t.TempDir(), t.TempDir()
	huge := filepath.Join(root, "p", "huge")
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "p"), 0o700),
		os.WriteFile(filepath.Join(elsewhere, "head"), []byte("SECRET"), 0o600),
		os.Symlink(filepath.Join(elsewhere, "head"), filepath.Join(root, "p", "link")),
		os.Symlink(elsewhere, filepath.Join(root, "q")),
		unix.Mkfifo(filepath.Join(root, "p", "pipe"), 0o600),
		os.WriteFile(huge, nil, 0o600),
		os.Truncate(huge, 1<<40),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := snapshots.OpenDir(root)
	for _, key := range []string{"p/link", "p/pipe", "p/huge", "q/head"} {
		if got, _, err := d.Get(t.Context(), key); !errors.Is(err, snapshots.ErrDamaged) {
			t.Errorf("%s: %.20q, %v", key, got, err)
		}
		if err := d.Put(t.Context(), key, []byte("new"), "a version"); err == nil {
			t.Errorf("%s was replaced", key)
		}
	}
	if err := d.Put(t.Context(), "q/new", []byte("new"), ""); err == nil {
		t.Error("an object was made behind a link")
	}
	if err := d.Delete(t.Context(), "q/head"); err == nil {
		t.Error("a file behind a link was removed")
	}
	if names, err := d.Folders(t.Context(), "q/"); err == nil {
		t.Errorf("%v: a link was listed as a folder", names)
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) != 1 {
		t.Errorf("%v, %v behind the link", left, err)
	}
}

// TestASpoolIsSweptWhateverItsPath: what an earlier process left there is a profile in clear.
func TestASpoolIsSweptWhateverItsPath(t *testing.T) {
	t.Parallel()
	spool := filepath.Join(t.TempDir(), "data [1]")
	left := filepath.Join(spool, "reading-1")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := snapshots.SweepSpool(spool); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
