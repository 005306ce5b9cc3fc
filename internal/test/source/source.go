// Package source finds the files of this tree for tests. It does not ask the compiler, so that
// what was compiled for one copy of the tree serves another.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var root, errNoRoot = find()

// Path is the absolute path of a file or directory of the tree, which is named from the module's
// root: internal/test/clients. It panics if the process was not started within the tree, where
// the go command starts tests.
func Path(name string) string {
	if errNoRoot != nil {
		panic(errNoRoot)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}

// Walk calls see with the path and the content of each file of the tree whose name ends with suffix. It
// leaves out what is not of the project: directories named build, node_modules or testdata, names that
// begin with a dot, and what is removed meanwhile.
func Walk(suffix string, see func(path string, content []byte) error) error {
	top := Path(".")
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		hidden := path != top && (strings.HasPrefix(filepath.Base(path), ".") || slices.Contains([]string{"build", "node_modules", "testdata"}, filepath.Base(path)))
		switch {
		case hidden && d.IsDir() && err == nil:
			return fs.SkipDir
		case hidden || errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || d.IsDir() || !strings.HasSuffix(path, suffix):
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return see(path, content)
	})
}

// find is the nearest directory, from the working directory upwards, that has the go.mod of this
// module.
func find() (string, error) {
	began, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := began; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module leasehold\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the files of the tests are not found: no directory above %s has the go.mod of module leasehold", began)
		}
	}
}
