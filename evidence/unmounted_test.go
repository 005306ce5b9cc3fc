package evidence_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

// TestNoBundleGoesWhereTheStoreIsNot: while the store's disk is unmounted there is another directory at its
// path. Bundles wait in the spool then, the error says why, and they are stored when the disk is back.
func TestNoBundleGoesWhereTheStoreIsNot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	store, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	spool, err := evidence.OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := evidence.NewArchive(spool, store, zerolog.Nop())
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	save := func(id string) {
		t.Helper()
		b, err := a.New(evidence.Manifest{EvidenceID: id, ProfileID: "p"})
		must(err, b.Add("a.txt", evidence.KindOutput, "text/plain", []byte(id)))
		_, _, err = a.Save(t.Context(), b)
		must(err)
	}
	save("ev_1")
	must(os.Rename(dir, dir+"-away"), os.Mkdir(dir, 0o700))
	save("ev_2")
	if sealed, err := spool.Sealed(); err != nil || len(sealed) != 1 {
		t.Errorf("the spool has %v, %v; want the bundle that was sealed meanwhile", sealed, err)
	}
	if err := a.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "unmounted") {
		t.Errorf("stored meanwhile: %v; want an error that names the directory", err)
	}
	if _, err := store.Manifest(t.Context(), "ev_1"); err == nil || errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a bundle of the store: %v; want an error that does not say that there is none", err)
	}
	if list, err := store.List(t.Context(), "p"); err == nil {
		t.Errorf("the list has %d bundles and no error", len(list))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v in the other directory", left, err)
	}
	must(os.Remove(dir), os.Rename(dir+"-away", dir), a.Flush(t.Context()))
	for _, id := range []string{"ev_1", "ev_2"} {
		if _, err := store.Manifest(t.Context(), id); err != nil {
			t.Errorf("%s when the disk is back: %v", id, err)
		}
	}
}

// TestAStoreGetsItsMarkWithItsFirstBundle, if it could have none when it was opened.
func TestAStoreGetsItsMarkWithItsFirstBundle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := evidence.ExistingDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	spool := storetest.Spool(t)
	one, _ := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	if err := errors.Join(s.Put(t.Context(), one), os.Rename(dir, dir+"-away"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	two, _ := storetest.Seal(t, spool, "p", "ev_2", 2, evidence.Link{})
	if err := s.Put(t.Context(), two); err == nil {
		t.Error("a bundle was stored in another directory")
	}
}
