package evidence_test

import (
	"os"
	"path/filepath"
	"testing"

	"leasehold/evidence"
	"leasehold/evidence/storetest"
)

// openDir opens an empty store in a directory, with how to damage it.
func openDir(t *testing.T) (evidence.Store, storetest.Damage) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, storetest.Damage{
		Change: func(t *testing.T, _, evidenceID, name string) {
			path := filepath.Join(dir, evidenceID, name)
			b, err := os.ReadFile(path)
			must(t, err)
			b[len(b)-2] ^= 1
			must(t, os.WriteFile(path, b, 0o600))
		},
		Remove: func(t *testing.T, _, evidenceID, name string) {
			must(t, os.Remove(filepath.Join(dir, evidenceID, name)))
		},
		Swap: func(t *testing.T, _, a, b string) {
			must(t, os.Rename(filepath.Join(dir, a), filepath.Join(dir, "x")))
			must(t, os.Rename(filepath.Join(dir, b), filepath.Join(dir, a)))
			must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, b)))
		},
	}
}

func TestDirStore(t *testing.T) { storetest.Run(t, openDir) }
