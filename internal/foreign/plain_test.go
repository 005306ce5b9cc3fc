package foreign

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAStoresDirectoryIsReadAsOthersLeftIt: whatever is put there, only plain files of a size
// that can be are read, and nothing waits.
func TestAStoresDirectoryIsReadAsOthersLeftIt(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "store")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "a", "b"), 0o700),
		os.WriteFile(filepath.Join(base, "secret"), []byte("SECRET"), 0o600),
		os.WriteFile(filepath.Join(root, "a", "plain"), []byte("plain"), 0o600),
		os.WriteFile(filepath.Join(root, "a", "b", "deep"), []byte("deep"), 0o600),
		os.WriteFile(filepath.Join(root, "a", "huge"), nil, 0o600),
		os.Truncate(filepath.Join(root, "a", "huge"), 1<<40),
		os.Symlink(filepath.Join(base, "secret"), filepath.Join(root, "a", "link")),
		os.Symlink("plain", filepath.Join(root, "a", "within")),
		os.Symlink("a", filepath.Join(root, "folder")),
		os.Symlink(base, filepath.Join(root, "out")),
		unix.Mkfifo(filepath.Join(root, "a", "pipe"), 0o600),
		os.Symlink(root, filepath.Join(base, "by-link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(root, "a", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]string{"a/plain": "plain", "a/b/deep": "deep"} {
		for _, root := range []string{root, filepath.Join(base, "by-link")} { // the operator's own path
			if got, err := ReadPlain(root, name, 5); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
	for name, want := range map[string]error{
		"a/link": ErrNotPlain, "a/within": ErrNotPlain, "folder/plain": ErrNotPlain, "out/secret": ErrNotPlain, "a/pipe": ErrNotPlain,
		"a/socket": ErrNotPlain, "a/huge": ErrNotPlain, "a/b": ErrNotPlain, "a/plain/x": ErrNotPlain,
		"a/none": fs.ErrNotExist, "none/plain": fs.ErrNotExist, "../secret": fs.ErrInvalid, "a/../a/plain": fs.ErrInvalid, "": fs.ErrInvalid,
	} {
		if got, err := ReadPlain(root, name, 5); !errors.Is(err, want) || bytes.Contains(got, []byte("SECRET")) {
			t.Errorf("%s: %q, %v, want %v", name, got, err, want)
		}
	}
	if got, err := ReadPlain(root, "a/plain", 4); !errors.Is(err, ErrNotPlain) {
		t.Errorf("with a bound of 4 bytes: %q, %v", got, err)
	}
	for name, want := range map[string]error{"": nil, "a/b": nil, "folder": ErrNotPlain, "out": ErrNotPlain, "a/pipe": ErrNotPlain, "none": fs.ErrNotExist} {
		if err := CheckFolder(root, name); !errors.Is(err, want) {
			t.Errorf("folder %q: %v, want %v", name, err, want)
		}
	}
}
