package snapshots_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDir(t testing.TB) *snapshots.Dir {
	t.Helper()
	return snapshots.OpenDir(t.TempDir())
}

func TestDir(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) snapshots.Objects { return openDir(t) })
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
