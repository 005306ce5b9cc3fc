package durable

import (
	"os"
	"path/filepath"
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

// TestAFailureLeavesNothing replaces what cannot be: a folder with something in
// it.
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
