// Package durable writes files that a crash leaves either as they were or whole.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Unfinished is the prefix of a file that a crash kept from becoming whole. It
// may be removed.
const Unfinished = ".new-"

// Replace puts content into path's place, mode 0600, and returns when it is on
// disk under that name.
func Replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, Unfinished+"*") // 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return Sync(dir)
}

// Sync puts a file, or the entries of a folder, on disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
