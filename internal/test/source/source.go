// Package source finds the files of this tree for tests. It does not ask the compiler, so that
// what was compiled for one copy of the tree serves another.
package source

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
