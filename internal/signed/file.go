package signed

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"leasehold/internal/durable"
)

// File is where a launcher's key is kept: in a folder of its own in the data directory.
type File struct{ dir string }

// NewFile returns the key file of a launcher's data directory.
func NewFile(dataDir string) File { return File{filepath.Join(dataDir, "signing-key")} }

// Path is the path of the file.
func (f File) Path() string { return filepath.Join(f.dir, "key") }

// Read reads the key. The error is fs.ErrNotExist if there is none.
func (f File) Read() (*Key, error) { return f.read(f.Path()) }

// Make reads the key, or makes one if there is none. What was signed with another key before counts as forged.
func (f File) Make() (*Key, error) {
	if k, err := f.Read(); !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("folder of the key: %w", err)
	}
	var secret [size]byte
	_, _ = rand.Read(secret[:]) // never fails
	err := durable.Replace(f.Path(), secret[:])
	if err == nil {
		err = durable.Sync(filepath.Dir(f.dir))
	}
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	return f.Read()
}

// Has returns nil if the file has this key. With another one, or none, nothing that is signed now
// could be read after a restart.
func (f File) Has(k *Key) error {
	in, err := f.Read()
	if err == nil && *in != *k {
		err = fmt.Errorf("signing key: %s is not the key with which this launcher signs: bring that back, or restart the launcher, and each profile that is open goes to a person", f.Path())
	}
	return err
}

// read reads a key that nobody else may have read or written.
func (f File) read(path string) (*Key, error) {
	for _, p := range []string{f.dir, path} {
		info, err := os.Lstat(p)
		if err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
		owner := os.Geteuid()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owner = int(st.Uid)
		}
		switch {
		case p == path && !info.Mode().IsRegular(), p == f.dir && !info.IsDir():
			return nil, fmt.Errorf("signing key: %s is a link, or no file in a folder of its own", p)
		case owner != os.Geteuid() || info.Mode().Perm()&0o077 != 0:
			return nil, fmt.Errorf("signing key: %s belongs to uid %d and has mode %#o, so that others may know it: "+
				"remove %s, and each profile goes to a person; want uid %d and no rights for anybody else", p, owner, info.Mode().Perm(), f.dir, os.Geteuid())
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(b) != size {
		return nil, fmt.Errorf("signing key: %s has %d bytes, want %d: bring it back from a copy, or remove it, and each profile goes to a person", path, len(b), size)
	}
	return New([size]byte(b)), nil
}
