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

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
)

// folder keeps bundles in a directory, each in a directory of its own that is named after its
// id. A bundle without manifest.json is not sealed. The spool and DirStore have this layout. A
// store may be a directory to which others write: what is there is read as foreign.ReadPlain
// reads it, and what is no file of a bundle counts as damaged.
type folder struct {
	dir string
	// profiles has the profile of each bundle whose manifest was read for a list, by evidence id, so
	// that a list of one profile need not read those of others again. A list of all profiles
	// forgets them first.
	profiles *sync.Map
}

func newFolder(dir string) folder { return folder{dir, &sync.Map{}} }

// No part and no manifest has more bytes: captures, journals and outputs are bounded far below.
const (
	maxPart     = 128 << 20
	maxManifest = 16 << 20
)

// removedPrefix is the prefix of the directory of a bundle that is being removed.
const removedPrefix = ".gone-"

// Manifest implements Reader.
func (f folder) Manifest(_ context.Context, evidenceID string) ([]byte, error) {
	return f.read(evidenceID, ManifestName)
}

// Part implements Reader.
func (f folder) Part(_ context.Context, evidenceID, name string) ([]byte, error) {
	if !f.isSealed(evidenceID) || name == ManifestName {
		return nil, fmt.Errorf("evidence %s: part %q: %w", shortID(evidenceID), shortID(name), ErrNotFound)
	}
	return f.read(evidenceID, name)
}

// List implements Reader. It leaves out manifests that cannot be read; Verify finds them
// through the bundle that names them.
func (f folder) List(ctx context.Context, profileID string) ([]Manifest, error) {
	ids, err := f.ids()
	if err != nil {
		return nil, err
	}
	if profileID == "" {
		f.profiles.Clear()
	}
	list := []Manifest{}
	for _, evidenceID := range ids {
		if of, known := f.profiles.Load(evidenceID); known && profileID != "" && of != profileID {
			continue
		}
		raw, err := f.Manifest(ctx, evidenceID)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
			continue // it moved to the store meanwhile, or cannot be read
		}
		if err != nil {
			return nil, err
		}
		m, err := Decode(evidenceID, raw)
		if err != nil {
			continue
		}
		f.profiles.Store(evidenceID, m.ProfileID)
		if profileID == "" || m.ProfileID == profileID {
			list = append(list, m)
		}
	}
	Newest(list)
	return list, nil
}

// ids returns the ids of the sealed bundles, sorted.
func (f folder) ids() ([]string, error) {
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

func (f folder) read(evidenceID, name string) ([]byte, error) {
	if !SafeName(evidenceID) || !SafeName(name) {
		return nil, fmt.Errorf("evidence %q: %q: %w", shortID(evidenceID), shortID(name), ErrNotFound)
	}
	most := int64(maxPart)
	if name == ManifestName {
		most = maxManifest
	}
	b, err := foreign.ReadPlain(f.dir, evidenceID+"/"+name, most)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = ErrNotFound
	case errors.Is(err, foreign.ErrNotPlain):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return b, nil
}

// has tells whether a bundle has exactly this content under a name.
func (f folder) has(evidenceID, name string, content []byte) bool {
	b, err := f.read(evidenceID, name)
	return err == nil && bytes.Equal(b, content)
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
