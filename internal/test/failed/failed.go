// Package failed keeps what a failed test leaves behind, below build/failed in the module's root.
package failed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/test/source"
)

// maxFile is the size in bytes of the largest file that is kept whole; of a larger one its end is.
const maxFile = 8 << 20

// Dir makes a directory for what the test leaves, build/failed/NAME, and returns its path. The
// name of a subtest is a directory below its test's.
func Dir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(source.Path("build/failed"), filepath.FromSlash(t.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("what the test leaves cannot be kept: %v", err)
	}
	return dir
}

// Copy copies the regular files below from into to, and leaves out those for whose path, relative
// to from, unwanted returns true; a directory that it names is left out with everything in it.
// What vanishes meanwhile is passed over.
func Copy(to, from string, unwanted func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case rel != "." && unwanted(rel):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		return copyFile(filepath.Join(to, rel), path)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	if fi, err := in.Stat(); err != nil {
		return err
	} else if fi.Size() > maxFile {
		if _, err := in.Seek(-maxFile, io.SeekEnd); err != nil {
			return err
		}
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// End is the text's last lines, as many as given at most, with a first line that says how many are
// left out.
func End(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= lines {
		return strings.Join(all, "\n")
	}
	return fmt.Sprintf("(%d lines before)\n%s", len(all)-lines, strings.Join(all[len(all)-lines:], "\n"))
}
