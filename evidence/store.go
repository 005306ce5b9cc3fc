package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/id"
)

// Reader finds sealed bundles. If it cannot tell whether there is one, it returns an error that
// is not ErrNotFound.
type Reader interface {
	// Manifest returns manifest.json as it was sealed, or ErrNotFound, or ErrDamaged if the
	// store itself can tell.
	Manifest(ctx context.Context, evidenceID string) ([]byte, error)
	// Part returns the content of a part, or ErrNotFound, or ErrDamaged if the store itself can
	// tell.
	Part(ctx context.Context, evidenceID, name string) ([]byte, error)
	// List returns the profile's readable manifests in the order of Newest; with an empty
	// profile id, those of all profiles.
	List(ctx context.Context, profileID string) ([]Manifest, error)
}

// Store keeps sealed bundles for good.
type Store interface {
	Reader
	// Put stores a bundle, the manifest last, so that nobody sees a half-stored
	// one. If it is called again for the same bundle it adds what is missing. A
	// different bundle under the same id is refused with ErrConflict.
	Put(ctx context.Context, s *Sealed) error
	// Delete removes a bundle, the manifest last, so that what a crash leaves is still listed
	// and can be removed later. It is no error if there is no such bundle. Only Archive.Retain
	// calls it, and Archive.DropPictures for pictures.
	Delete(ctx context.Context, m Manifest) error
}

// DirStore keeps bundles in a directory: the store of file:// URLs.
type DirStore struct {
	folder
	calls durable.Calls
}

var _ Store = (*DirStore)(nil)

// OpenDirStore opens the store in a directory, which it makes if it is missing.
func OpenDirStore(dir string) (*DirStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("evidence store: %w", err)
	}
	d := &DirStore{newFolder(dir), durable.NewCalls()}
	if err := d.sweep(); err != nil {
		return nil, fmt.Errorf("evidence store: %w", err)
	}
	return d, nil
}

// ExistingDirStore opens the store in a directory for a reader: it neither makes the
// directory nor changes anything in it.
func ExistingDirStore(dir string) (*DirStore, error) {
	d := &DirStore{newFolder(dir), durable.NewCalls()}
	if _, err := d.ids(); err != nil {
		return nil, err
	}
	return d, nil
}

// Manifest implements Reader.
func (d *DirStore) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	return durable.Call(ctx, d.calls, func() ([]byte, error) { return d.folder.Manifest(ctx, evidenceID) })
}

// Part implements Reader.
func (d *DirStore) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	return durable.Call(ctx, d.calls, func() ([]byte, error) { return d.folder.Part(ctx, evidenceID, name) })
}

// List implements Reader.
func (d *DirStore) List(ctx context.Context, profileID string) ([]Manifest, error) {
	return durable.Call(ctx, d.calls, func() ([]Manifest, error) { return d.folder.List(ctx, profileID) })
}

// Put implements Store.
func (d *DirStore) Put(ctx context.Context, s *Sealed) error {
	_, err := durable.Call(ctx, d.calls, func() (struct{}, error) { return struct{}{}, d.put(ctx, s) })
	return err
}

func (d *DirStore) put(ctx context.Context, s *Sealed) error {
	evidenceID := s.Manifest.EvidenceID
	if d.isSealed(evidenceID) && !d.has(evidenceID, ManifestName, s.Raw) {
		return fmt.Errorf("evidence %s: %w", evidenceID, ErrConflict)
	}
	dir := filepath.Join(d.dir, evidenceID)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = foreign.CheckFolder(d.dir, evidenceID)
	}
	if err != nil {
		return fmt.Errorf("evidence %s: %w", evidenceID, err)
	}
	err = s.EachPart(ctx, func(ctx context.Context, name string, content []byte) error {
		if err := ctx.Err(); err != nil || d.has(evidenceID, name, content) {
			return err
		}
		return durable.Replace(filepath.Join(dir, name), content)
	})
	if err != nil {
		return err
	}
	err = createOnce(filepath.Join(dir, ManifestName), s.Raw)
	if errors.Is(err, fs.ErrExist) {
		if err = nil; !d.has(evidenceID, ManifestName, s.Raw) {
			err = ErrConflict
		}
	}
	if err := errors.Join(err, durable.Sync(d.dir)); err != nil {
		return fmt.Errorf("evidence %s: %w", evidenceID, err)
	}
	return nil
}

// createOnce is durable.Replace for a file that must not exist yet: it returns fs.ErrExist if
// it does.
func createOnce(path string, content []byte) error {
	temporary := filepath.Join(filepath.Dir(path), durable.Unfinished+id.New("once"))
	if err := durable.Replace(temporary, content); err != nil {
		return err
	}
	err := os.Link(temporary, path)
	return errors.Join(err, os.Remove(temporary), durable.Sync(filepath.Dir(path)))
}

// Delete implements Store.
func (d *DirStore) Delete(ctx context.Context, m Manifest) error {
	if err := checkName("evidence id", m.EvidenceID); err != nil {
		return err
	}
	_, err := durable.Call(ctx, d.calls, func() (struct{}, error) { return struct{}{}, d.remove(m.EvidenceID) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("evidence %s: removing it: %w", m.EvidenceID, err)
	}
	return nil
}
