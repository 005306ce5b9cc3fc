package evidence

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"leasehold/internal/storedir"
)

// TestAStoreWhoseDiskHangsIsOpened: a launcher starts, and uses the store when its file system answers.
func TestAStoreWhoseDiskHangsIsOpened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		f := folder{dir}
		s, err := openShared(shared{f, storedir.New(dir), &making{by: func() error { <-answers; return f.prepare() }}})
		if err != nil {
			t.Fatal(err)
		}
		close(answers)
		if list, err := s.List(t.Context(), ""); err != nil || len(list) > 0 {
			t.Errorf("%v, %v", list, err)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	})
}

// TestAStoreThatCannotBeMadeIsNotOpened, so that who runs a launcher learns it at the start.
func TestAStoreThatCannotBeMadeIsNotOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirStore(filepath.Join(file, "store")); err == nil {
		t.Error("it was opened")
	}
	if _, err := ExistingDirStore(filepath.Join(file, "store")); err == nil {
		t.Error("it was opened for a reader")
	}
	if _, err := ExistingDirStore(t.TempDir()); err != nil {
		t.Error(err)
	}
}
