package storedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestTheMarkOfADirectory: it is made once by whoever writes first, and tells the directory from any other,
// and from none.
func TestTheMarkOfADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "store")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	reader := New(path)
	must(reader.Still())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: a reader made the directory", err)
	}
	all := []*Dir{reader}
	var work sync.WaitGroup
	for range 8 {
		d := New(path)
		all = append(all, d)
		work.Go(func() {
			if err := d.Make(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if fi, err := os.Stat(filepath.Join(path, Name)); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: a sidecar of another user cannot read the mark", fi.Mode(), err)
	}
	differs := func(where, says string) {
		t.Helper()
		for _, d := range all {
			for _, err := range []error{d.Still(), d.Make()} {
				if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v, want %q", where, err, says)
				}
			}
		}
	}
	for _, d := range all {
		must(d.Still(), d.Make())
	}
	must(os.Rename(path, path+"-away"))
	differs("no directory", "is missing")
	must(os.Mkdir(path, 0o700))
	differs("another directory", "is missing")
	must(New(path).Make())
	differs("another store", `says "store_`)
	must(os.RemoveAll(path), os.CopyFS(path, os.DirFS(path+"-away"))) // other inodes, as after some mounts
	for _, d := range all {
		must(d.Still(), d.Make())
	}
}

// TestAMarkThatIsMadeMeanwhileIsNotMissed by who looks while the first one writes.
func TestAMarkThatIsMadeMeanwhileIsNotMissed(t *testing.T) {
	for range 50 {
		d := New(t.TempDir())
		made := make(chan struct{})
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				for looks := true; looks; {
					select {
					case <-made:
						looks = false
					default:
					}
					if err := d.Still(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		if err := d.Make(); err != nil {
			t.Error(err)
		}
		close(made)
		work.Wait()
		if t.Failed() {
			return
		}
	}
}
