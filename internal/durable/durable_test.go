package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"one", "a longer second", ""} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(b) != content || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", b, err, statErr)
		}
	}
}

// TestAFailureLeavesNothing replaces what cannot be replaced: a folder that is not
// empty.
func TestAFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "f", "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if Replace(filepath.Join(dir, "f"), []byte("x")) == nil {
		t.Error("a folder was replaced")
	}
	if left, err := filepath.Glob(filepath.Join(dir, Unfinished+"*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReplaceByNeedsAPreparedFile(t *testing.T) {
	dir := t.TempDir()
	path, prepared := filepath.Join(dir, "f"), filepath.Join(dir, "prepared")
	if err := ReplaceBy(prepared, path, []byte("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing is prepared: %v", err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.WriteFile(elsewhere, []byte("y"), 0o600), os.Symlink(elsewhere, prepared)); err != nil {
		t.Fatal(err)
	}
	if ReplaceBy(prepared, path, []byte("x")) == nil {
		t.Error("a link was followed")
	}
	if b, err := os.ReadFile(elsewhere); string(b) != "y" || err != nil {
		t.Errorf("behind the link: %q, %v", b, err)
	}
}

// ways are those of putting "new" into the place of "old". Each syncs the new
// content before it has the name, and then the folder that has the name.
var ways = map[string]struct {
	replace func(path string) error
	syncs   []string
}{
	"Replace": {
		func(path string) error { return Replace(path, []byte("new")) },
		[]string{`all of a file with "new", the name has "old"`, `all of the folder, the name has "new"`},
	},
	"ReplaceBy": {
		func(path string) error { return ReplaceBy(preparedBeside(path), path, []byte("new")) },
		[]string{`data of a file with "new", the name has "old"`, `all of the folder, the name has "new"`},
	},
}

func preparedBeside(path string) string { return path + "-prepared" }

// begin has "old" under a path, and a prepared file beside it.
func begin(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "f")
	if err := errors.Join(Replace(path, []byte("old")), Prepare(preparedBeside(path), len("new"))); err != nil {
		t.Fatal(err)
	}
	return path
}

// onSync calls see instead of each sync until the test ends, with what is synced of
// the file.
func onSync(t *testing.T, see func(what string, f *os.File) error) {
	wasFile, wasData := syncFile, syncData
	t.Cleanup(func() { syncFile, syncData = wasFile, wasData })
	syncFile = func(f *os.File) error { return see("all", f) }
	syncData = func(f *os.File) error { return see("data", f) }
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEveryStepIsSynced, in the order in which a crash in between does no harm.
func TestEveryStepIsSynced(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			path := begin(t)
			var got []string
			onSync(t, func(what string, f *os.File) error {
				of := "the folder"
				if f.Name() != filepath.Dir(path) {
					of = fmt.Sprintf("a file with %q", read(t, f.Name()))
				}
				got = append(got, fmt.Sprintf("%s of %s, the name has %q", what, of, read(t, path)))
				return nil
			})
			if err := way.replace(path); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, way.syncs) {
				t.Errorf("synced: %q, want %q", got, way.syncs)
			}
		})
	}
}

// TestASyncThatFails: the error is returned, and the name keeps its old content if the
// new one could not be synced.
func TestASyncThatFails(t *testing.T) {
	for name, way := range ways {
		for fails, want := range []string{"old", "new"} {
			t.Run(fmt.Sprintf("%s, sync %d", name, fails+1), func(t *testing.T) {
				path, broken, n := begin(t), errors.New("the disk is broken"), 0
				onSync(t, func(string, *os.File) error {
					n++
					if n == fails+1 {
						return broken
					}
					return nil
				})
				if err := way.replace(path); !errors.Is(err, broken) {
					t.Errorf("error: %v", err)
				}
				if got := read(t, path); got != want {
					t.Errorf("the name has %q, want %q", got, want)
				}
			})
		}
	}
}

// TestOnlyNamesArePatterns: the path of the directory is taken as it is, whatever is in it.
func TestOnlyNamesArePatterns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data [old] *?")
	if got, err := Glob(dir, "*.json"); err != nil || len(got) > 0 {
		t.Errorf("before there is a directory: %q, %v", got, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.json", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Glob(dir, "*.json"); err != nil || len(got) != 1 || got[0] != filepath.Join(dir, "a.json") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAFileThatIsThereIsNotCreated: it stays as it is, and a new one is on the disk with its name.
// Nothing else stays.
func TestAFileThatIsThereIsNotCreated(t *testing.T) {
	for name, create := range map[string]func(path string, content []byte) error{"Create": Create, "CreateWhole": CreateWhole} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := create(path, []byte("first")); err != nil {
				t.Fatal(err)
			}
			if err := create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%v, want fs.ErrExist", err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != 0o600 || read(t, path) != "first" {
				t.Errorf("%q, %v: %v", read(t, path), info.Mode(), err)
			}
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}
