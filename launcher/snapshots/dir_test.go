package snapshots_test

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDir(t testing.TB) *snapshots.Dir {
	t.Helper()
	d, err := snapshots.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) snapshots.Objects { return openDir(t) })
}
