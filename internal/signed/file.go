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

// unconfirmed is the path of a key that Make has made and Confirm has not confirmed.
func (f File) unconfirmed() string { return filepath.Join(f.dir, "key.first") }

// Read reads the key. The error is fs.ErrNotExist if there is none.
func (f File) Read() (*Key, error) { return f.read(f.Path()) }

// Make reads the key, or makes one if there is none. first says that it was made now, or by an
// earlier start that did not get as far as Confirm: then, and never later, what an earlier
// version has left without signatures may be signed.
func (f File) Make() (k *Key, first bool, err error) {
	if k, err = f.Read(); !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	if k, err = f.read(f.unconfirmed()); !errors.Is(err, fs.ErrNotExist) {
		return k, true, err
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, fmt.Errorf("folder of the key: %w", err)
	}
	var secret [size]byte
	_, _ = rand.Read(secret[:]) // never fails
	if err = durable.Replace(f.unconfirmed(), secret[:]); err == nil {
		err = durable.Sync(filepath.Dir(f.dir))
	}
	if err != nil {
		return nil, false, fmt.Errorf("signing key: %w", err)
	}
	k, err = f.read(f.unconfirmed())
	return k, true, err
}

// Confirm ends the first start: from now on, a file without a signature counts as forged.
func (f File) Confirm() error {
	err := os.Rename(f.unconfirmed(), f.Path())
	if err == nil {
		err = durable.Sync(f.dir)
	}
	if err != nil {
		return fmt.Errorf("signing key: %w", err)
	}
	return nil
}

// SignFile signs a file as it is, unless it already has a signature. It does nothing if there
// is no such file. It is meant for what a version before the signatures has left.
func (k *Key) SignFile(kind Kind, name, path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if _, said := Claimed(b); said {
			return nil
		}
		err = durable.Replace(path, k.Sign(kind, name, b))
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", kind, name, err)
	}
	return nil
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
