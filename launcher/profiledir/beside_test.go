package profiledir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
)

// What belongs to an archived directory is beside it, for its owner alone and signed, and is no archived
// directory itself. It comes and goes with that.
func TestWhatBelongsToAnArchivedDirectory(t *testing.T) {
	root, must := open(t), mustIn(t)
	l := lock(t, root, "p")
	has := func(archived, want string) {
		t.Helper()
		extras, kept, err := root.Beside(archived)
		if err != nil || !kept || string(extras["cookies"]) != want {
			t.Errorf("beside %s: %s, %v, %v, want %q", archived, extras, kept, err, want)
		}
	}
	files := func() int {
		t.Helper()
		all, err := os.ReadDir(root.archive())
		must(err)
		return len(all)
	}
	cookies := func(content string) map[string][]byte { return map[string][]byte{"cookies": []byte(content)} }
	put := func(second int64, content string) string {
		t.Helper()
		must(os.Mkdir(filepath.Join(root.dir, "p"), 0o700))
		at, err := l.Archive(time.Unix(second, 0), cookies(content))
		must(err)
		return at
	}
	first := put(1, "first")
	second := put(2, "second")
	has(first, "first")
	has(second, "second")
	beside := second + besideMark
	if fi, err := os.Lstat(beside); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if at, err := root.Archived("p"); err != nil || at != second {
		t.Errorf("it was archived to %q, %v", at, err)
	}
	if of, archived := root.IsArchive(beside); archived {
		t.Errorf("%s counts as a directory of %q", beside, of)
	}

	must(os.Mkdir(filepath.Join(root.dir, "p"), 0o700))
	exchanged, err := l.Exchange(t.Context(), time.Unix(3, 0), cookies("third"), Empty)
	must(err)
	has(exchanged.Kept, "third")
	must(exchanged.Undo())
	if n := files(); n != 4 {
		t.Errorf("%d files in the archive after an undo, want two directories and what belongs to them", n)
	}
	// The directory cannot come to the archive: a directory that is not empty is there.
	must(os.MkdirAll(filepath.Join(root.archive(), "p@19700101T000004.000000000Z", "x"), 0o700))
	if _, err := l.Archive(time.Unix(4, 0), cookies("fourth")); err == nil {
		t.Error("it was archived over another")
	}
	if _, err := l.Exchange(t.Context(), time.Unix(4, 0), cookies("fourth"), Empty); err == nil {
		t.Error("it was exchanged over another")
	}
	if n := files(); n != 5 {
		t.Errorf("%d files in the archive after two that came to nothing, want 5", n)
	}
	// A launcher that is killed before the directory moved leaves what belongs to it, and so does a person who
	// deletes an archived directory.
	must(errors.Join(os.WriteFile(filepath.Join(root.archive(), "p@9"+besideMark), nil, 0o600), os.WriteFile(filepath.Join(root.archive(), "pp@9"+besideMark), nil, 0o600), os.RemoveAll(first)))
	fifth, err := l.Archive(time.Unix(5, 0), cookies("fifth"))
	must(err)
	has(second, "second")
	has(fifth, "fifth")
	for _, gone := range []string{first, filepath.Join(root.archive(), "p@9")} {
		if _, kept, err := root.Beside(gone); err != nil || kept {
			t.Errorf("what belonged to %s is left: %v", gone, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root.archive(), "pp@9"+besideMark)); err != nil {
		t.Errorf("another profile's is gone: %v", err)
	}

	for why, content := range map[string][]byte{
		"nothing":                  nil,
		"no signature":             []byte("{}\n"),
		"another key":              signed.New([32]byte{9}).Sign(signed.Archived, filepath.Base(second), []byte("{}")),
		"another directory's":      read(t, fifth+besideMark),
		"what is no list of files": testkey.Key.Sign(signed.Archived, filepath.Base(second), []byte("{")),
	} {
		must(os.WriteFile(beside, content, 0o600))
		var damaged *DamagedError
		if extras, kept, err := root.Beside(second); !errors.As(err, &damaged) || kept || extras != nil || damaged.Profile != "p" || damaged.Path != beside {
			t.Errorf("%s is believed: %v, %v, %v", why, extras, kept, err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	mustIn(t)(err)
	return b
}
