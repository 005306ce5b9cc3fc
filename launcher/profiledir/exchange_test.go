package profiledir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// mustIn returns what ends the test after an error.
func mustIn(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A profile gets another directory in one step, and the one before is in the archive; a
// fetch that fails changes nothing, and an exchange can be undone.
func TestExchange(t *testing.T) {
	root, must := open(t), mustIn(t)
	lock := lock(t, root, "p")
	has := func(dir, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, "what")); string(b) != want {
			t.Errorf("%s has %q, %v, want %q", dir, b, err, want)
		}
	}
	fetch := func(what string) Fill {
		return func(_ context.Context, dir string) (map[string][]byte, error) {
			return nil, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "what"), []byte(what), 0o600))
		}
	}
	place := filepath.Join(root.Dir(), "p")
	first, err := lock.Exchange(t.Context(), time.Unix(1, 0), nil, fetch("first"))
	must(err)
	if has(place, "first"); first.Kept != "" {
		t.Errorf("kept %s of nothing", first.Kept)
	}
	second, err := lock.Exchange(t.Context(), time.Unix(2, 0), nil, fetch("second"))
	must(err)
	has(place, "second")
	has(second.Kept, "first")
	if of, archived := root.IsArchive(second.Kept); of != "p" || !archived {
		t.Errorf("%s is not in the archive", second.Kept)
	}
	must(second.Undo())
	has(place, "first")
	if _, err := os.Stat(second.Kept); !os.IsNotExist(err) {
		t.Errorf("what was undone is left: %v", err)
	}
	failed := errors.New("the store is away")
	if _, err := lock.Exchange(t.Context(), time.Unix(3, 0), nil, func(_ context.Context, dir string) (map[string][]byte, error) {
		// One that was cut short by a crash leaves this.
		return nil, errors.Join(os.Mkdir(filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".fetch_1"), 0o700), failed)
	}); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	has(place, "first")
	third, err := lock.Exchange(t.Context(), time.Unix(4, 0), nil, fetch("third"))
	must(err)
	if left, err := os.ReadDir(filepath.Dir(third.Kept)); err != nil || len(left) != 2 {
		t.Errorf("in the archive: %v, %v, want the one that was kept, and what belongs to it", left, err)
	}
	must(first.Undo()) // of a profile that had no directory
	if _, err := os.Stat(place); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// An archived profile is imported from its newest archive. What a restore had filled, or was taking back,
// when its launcher was killed is no archive, and the next one removes it.
func TestWhatARestoreLeftIsNoArchive(t *testing.T) {
	root, must := open(t), mustIn(t)
	lock := lock(t, root, "p")
	_, err := root.Create("p")
	must(err)
	archived, err := lock.Archive(time.Unix(1, 0), nil)
	must(err)
	filled := ""
	func() {
		defer func() { _ = recover() }()
		_, err := lock.Exchange(t.Context(), time.Unix(2, 0), nil, func(_ context.Context, dir string) (map[string][]byte, error) {
			filled = dir
			// The profile store fetches it beside its place.
			must(errors.Join(os.Mkdir(filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".fetch_1"), 0o700), os.Mkdir(dir, 0o700)))
			panic("killed")
		})
		t.Errorf("it was not killed: %v", err)
	}()
	if got, err := root.Archived("p"); err != nil || got != archived {
		t.Errorf("it was archived to %q, %v, want %q", got, err, archived)
	}
	if of, is := root.IsArchive(filled); is {
		t.Errorf("what was filled counts as an archive of %q", of)
	}
	made, err := lock.Exchange(t.Context(), time.Unix(3, 0), nil, Empty)
	must(err)
	must(made.Undo())
	if got, err := root.Archived("p"); err != nil || got != archived {
		t.Errorf("after an undo it was archived to %q, %v, want %q", got, err, archived)
	}
	if left, err := os.ReadDir(filepath.Dir(archived)); err != nil || len(left) != 2 {
		t.Errorf("in the archive: %v, %v, want the one that was archived, and what belongs to it", left, err)
	}
}
