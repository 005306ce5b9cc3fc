package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestWalkSeesTheProjectsOwnFiles: neither those of an editor, nor what is removed while it walks.
func TestWalkSeesTheProjectsOwnFiles(t *testing.T) {
	before := root
	root = t.TempDir()
	defer func() { root = before }()
	var err error
	for _, name := range []string{"a/seen.go", "a/.#seen.go", ".cache/x.go", "a/testdata/x.go", "b/removed/x.go", "c/seen.go", "c/seen.txt"} {
		path := filepath.Join(root, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("package x"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	if err := Walk(".go", func(path string, content []byte) error {
		name, err := filepath.Rel(root, path)
		seen[filepath.ToSlash(name)] = string(content)
		return errors.Join(err, os.RemoveAll(filepath.Join(root, "b")))
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen["a/seen.go"] != "package x" || seen["c/seen.go"] != "package x" {
		t.Errorf("%q", seen)
	}
}
