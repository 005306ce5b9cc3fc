package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/storedir"
)

// folder keeps bundles in a directory, each in a directory of its own that is named after its
// id. A bundle without manifest.json is not sealed. The spool and the store of file:// URLs have
// this layout. A store may be a directory to which others write: what is there is read as
// foreign.ReadPlain reads it, and what is no file of a bundle counts as damaged.
type folder struct{ dir string }

// No part and no manifest has more bytes: captures, journals and outputs are bounded far below.
const (
	maxPart     = 128 << 20
	maxManifest = 16 << 20
)

// removedPrefix is the prefix of the directory of a bundle that is being removed.
const removedPrefix = ".gone-"

// Get implements Source.
func (f folder) Get(_ context.Context, evidenceID, name string) ([]byte, error) {
	if name != ManifestName && !f.isSealed(evidenceID) {
		return nil, ErrNotFound
	}
	return f.read(evidenceID, name)
}

// IDs implements Source. It returns the ids of all profiles, sorted.
func (f folder) IDs(context.Context, string) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("evidence folder: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && f.isSealed(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

func (f folder) isSealed(evidenceID string) bool {
	if !SafeName(evidenceID) {
		return false
	}
	_, err := os.Lstat(filepath.Join(f.dir, evidenceID, ManifestName))
	return err == nil
}

// read returns a file of a bundle, sealed or not.
func (f folder) read(evidenceID, name string) ([]byte, error) {
	most := int64(maxPart)
	if name == ManifestName {
		most = maxManifest
	}
	b, err := foreign.ReadPlain(f.dir, evidenceID+"/"+name, most)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case errors.Is(err, foreign.ErrNotPlain):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return b, err
}

// remove removes a bundle. Readers see either all of it or nothing.
func (f folder) remove(evidenceID string) error {
	removed := filepath.Join(f.dir, removedPrefix+evidenceID)
	if err := os.Rename(filepath.Join(f.dir, evidenceID), removed); err != nil {
		return fmt.Errorf("evidence folder: %w", err)
	}
	if err := os.RemoveAll(removed); err != nil {
		return fmt.Errorf("evidence folder: %w", err)
	}
	return nil
}

// sweep removes what a crash has left of removals and writes.
func (f folder) sweep() error {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), removedPrefix) || strings.HasPrefix(e.Name(), durable.Unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.dir, e.Name())))
		}
	}
	return err
}

// openTimeout bounds how long OpenDirStore waits for the directory.
const openTimeout = 5 * time.Second

// OpenDirStore opens the store in a directory, which it makes if it is missing: the store of
// file:// URLs. If the file system does not answer, that is no error: what uses the store waits for it
// then, as long as its own time allows.
func OpenDirStore(dir string) (Store, error) {
	f := folder{dir}
	return openShared(shared{f, storedir.New(dir), &making{by: f.prepare}})
}

func openShared(f shared) (Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := f.do(ctx, func() error { return nil }); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("evidence store: %w", err)
	}
	return NewStore(f), nil
}

// prepare makes the directory if it is missing, and sweeps it.
func (f folder) prepare() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	return f.sweep()
}

// ExistingDirStore opens the store in a directory for a reader: it neither makes the
// directory nor changes anything in it.
func ExistingDirStore(dir string) (Store, error) {
	f := shared{folder{dir}, storedir.New(dir), nil}
	if _, err := f.IDs(context.Background(), ""); err != nil {
		return nil, err
	}
	return NewStore(f), nil
}

// shared is a folder that may be on a file system of another host, whose calls may hang, and which
// may be unmounted.
type shared struct {
	folder
	at   *storedir.Dir
	made *making // nil: it is not to be made
}

// making prepares a folder before it is used, once.
type making struct {
	mu sync.Mutex
	by func() error // nil: it is prepared
}

func (m *making) done() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		return nil
	}
	err := m.by()
	if err == nil {
		m.by = nil
	}
	return err
}

// ready prepares the folder, which has to be the one that was prepared.
func (f shared) ready() error {
	if err := f.made.done(); err != nil {
		return err
	}
	return f.at.Still()
}

// Get implements Source.
func (f shared) Get(ctx context.Context, evidenceID, name string) ([]byte, error) {
	return storedir.Call(ctx, f.at, f.ready, func() ([]byte, error) { return f.folder.Get(ctx, evidenceID, name) })
}

// IDs implements Source.
func (f shared) IDs(ctx context.Context, profileID string) ([]string, error) {
	return storedir.Call(ctx, f.at, f.ready, func() ([]string, error) { return f.folder.IDs(ctx, profileID) })
}

// do calls what writes to the folder.
func (f shared) do(ctx context.Context, write func() error) error {
	_, err := storedir.Call(ctx, f.at, f.ready, func() (struct{}, error) { return struct{}{}, write() })
	return err
}

// Begin implements Files. It makes the bundle's folder.
func (f shared) Begin(ctx context.Context, m Manifest) (Upload, error) {
	return sharedBundle{f, m.EvidenceID}, f.do(ctx, func() error {
		if err := f.at.Make(); err != nil {
			return err
		}
		err := os.Mkdir(filepath.Join(f.dir, m.EvidenceID), 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = foreign.CheckFolder(f.dir, m.EvidenceID)
		}
		return errors.Join(err, durable.Sync(f.dir))
	})
}

// Remove implements Files.
func (f shared) Remove(ctx context.Context, m Manifest) error {
	err := f.do(ctx, func() error { return f.remove(m.EvidenceID) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sharedBundle is the folder of a bundle that is being stored.
type sharedBundle struct {
	in         shared
	evidenceID string
}

func (b sharedBundle) path(name string) string { return filepath.Join(b.in.dir, b.evidenceID, name) }

// Part implements Upload.
func (b sharedBundle) Part(ctx context.Context, name string, content []byte) error {
	return b.in.do(ctx, func() error {
		if have, err := b.in.read(b.evidenceID, name); err == nil && bytes.Equal(have, content) {
			return nil
		}
		return durable.Replace(b.path(name), content)
	})
}

// Seal implements Upload. On a full disk it uses the reserve.
func (b sharedBundle) Seal(ctx context.Context, manifest []byte) error {
	path := b.path(ManifestName)
	return b.in.do(ctx, func() error {
		return durable.WithReserve(filepath.Dir(path), func() error { return durable.CreateWhole(path, manifest) })
	})
}
