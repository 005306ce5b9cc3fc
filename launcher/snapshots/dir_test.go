package snapshots_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestNothingIsStoredWhereTheStoreIsNot: while the store's disk is unmounted there is another directory at its
// path. Nothing is written there, what is missing there is not said to be missing, and the store goes on when
// the disk is back.
func TestNothingIsStoredWhereTheStoreIsNot(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "store")
	writer, reader := snapshots.OpenDir(root), snapshots.OpenDir(root)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(writer.Put(t.Context(), "p/one", []byte("1"), ""))
	_, version, err := reader.Get(t.Context(), "p/one")
	must(err, os.Rename(root, root+"-away"), os.Mkdir(root, 0o700))
	for name, d := range map[string]*snapshots.Dir{"who wrote": writer, "who read": reader} {
		_, _, gets := d.Get(t.Context(), "p/one")
		_, lists := d.List(t.Context(), "")
		_, folders := d.Folders(t.Context(), "p/")
		for call, err := range map[string]error{
			"get": gets, "list": lists, "folders": folders, "delete": d.Delete(t.Context(), "p/one"),
			"put": d.Put(t.Context(), "p/two", []byte("2"), ""), "replace": d.Put(t.Context(), "p/one", []byte("2"), version),
		} {
			if err == nil || errors.Is(err, objects.ErrNone) || errors.Is(err, objects.ErrOtherVersion) || !strings.Contains(err.Error(), "unmounted") {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("%v, %v in the other directory", left, err)
	}
	must(os.Remove(root), os.Rename(root+"-away", root), writer.Put(t.Context(), "p/two", []byte("2"), ""))
	if keys, err := reader.List(t.Context(), ""); err != nil || len(keys) != 2 {
		t.Errorf("%v, %v when the disk is back", keys, err)
	}
}
