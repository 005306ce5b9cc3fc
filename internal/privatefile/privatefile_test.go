package privatefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAFileThatOthersCouldReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode  os.FileMode
		owner int
		says  string
	}{
		{0o600, os.Geteuid(), ""},
		{0o400, os.Geteuid(), ""},
		{0o640, os.Geteuid(), "chmod 600"},
		{0o604, os.Geteuid(), "chmod 600"},
		{0o620, os.Geteuid(), "chmod 600"},
		{0o600, 54321, "belongs to uid 54321"},
	} {
		if err := os.Chown(path, c.owner, -1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		b, _, err := Read(path)
		switch {
		case c.says == "" && (err != nil || string(b) != "s3cret"):
			t.Errorf("mode %o: %q, %v", c.mode, b, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || b != nil):
			t.Errorf("mode %o of uid %d: %q, %v, want %q", c.mode, c.owner, b, err, c.says)
		}
	}
	if _, _, err := Read(filepath.Dir(path)); err == nil {
		t.Error("a directory was read")
	}
	if _, _, err := Read(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAVersionChangesWithTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path, []byte("one"), 0o600))
	_, first, err := Read(path)
	must(err)
	if again, err := Stat(path); err != nil || again != first {
		t.Fatalf("%+v, %v, want %+v", again, err, first)
	}
	changed := func(what string) {
		t.Helper()
		now, err := Stat(path)
		must(err)
		if now == first {
			t.Errorf("%s: the version is the same", what)
		}
		first = now
	}
	must(os.WriteFile(path, []byte("other"), 0o600))
	changed("another size")
	must(os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	changed("another time")
	must(os.Chmod(path, 0o640))
	changed("another mode")
	must(os.WriteFile(path+".new", []byte("other"), 0o640))
	must(os.Chtimes(path+".new", time.Time{}, time.Unix(1, 0)))
	must(os.Rename(path+".new", path))
	changed("another file of the same size and time")
}
