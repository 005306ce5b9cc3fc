package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sync/errgroup"
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
	// Delete removes a bundle, the manifest last. What a crash leaves is still listed and can be
	// removed later, unless it is nothing but the manifest: Archive.Retain removes that by the
	// newest anchor; that of a picture may stay. It is no error if there is no such bundle. Only
	// Archive.Retain calls it, and Archive.DropPictures for pictures.
	Delete(ctx context.Context, m Manifest) error
}

// Source reads the files of bundles: manifest.json and the parts.
type Source interface {
	// Get returns a file of a bundle. Both names are safe (SafeName). The error is ErrNotFound
	// if there is no such file, or if the bundle has no manifest, and ErrDamaged if what is
	// there cannot be a file of a bundle.
	Get(ctx context.Context, evidenceID, name string) ([]byte, error)
	// IDs returns the ids of a profile's bundles; with an empty profile id, those of all
	// profiles. Some may belong to another profile, or be half stored or half removed.
	IDs(ctx context.Context, profileID string) ([]string, error)
}

// Files are what a store differs by: NewStore makes a Store of them.
type Files interface {
	Source
	// Begin begins to store the files of a bundle.
	Begin(ctx context.Context, m Manifest) (Upload, error)
	// Remove removes the files of a bundle, the manifest last. It is no error if there are none.
	Remove(ctx context.Context, m Manifest) error
}

// Upload stores the files of one bundle.
type Upload interface {
	// Part stores a part, in the place of what may be there under its name. Several parts may be
	// stored at the same time.
	Part(ctx context.Context, name string, content []byte) error
	// Seal stores manifest.json. From then on readers see the bundle. The error is fs.ErrExist if
	// there is a manifest already; that one stays.
	Seal(ctx context.Context, manifest []byte) error
}

// NewStore returns the store of bundles whose files are kept there.
func NewStore(files Files) Store { return &store{reader{from: files}, files} }

// reader reads the bundles of a source.
type reader struct {
	from Source
	// profiles has the profile of each bundle whose manifest was read for a list, by evidence id, so
	// that a list of one profile need not read those of others again. A list of all profiles
	// forgets them first.
	profiles sync.Map
}

// Manifest implements Reader.
func (r *reader) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	return r.get(ctx, evidenceID, ManifestName)
}

// Part implements Reader.
func (r *reader) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if name == ManifestName {
		return nil, fmt.Errorf("evidence %s: part %s: %w", shortID(evidenceID), name, ErrNotFound)
	}
	return r.get(ctx, evidenceID, name)
}

func (r *reader) get(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if !SafeName(evidenceID) || !SafeName(name) { // names come from outside
		return nil, fmt.Errorf("evidence %q: %q: %w", shortID(evidenceID), shortID(name), ErrNotFound)
	}
	content, err := r.from.Get(ctx, evidenceID, name)
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return content, nil
}

// listedAtOnce is how many manifests are read at the same time for a list.
const listedAtOnce = 8

// List implements Reader. It leaves out manifests that cannot be read; Verify finds them
// through the bundle that names them.
func (r *reader) List(ctx context.Context, profileID string) ([]Manifest, error) {
	list := []Manifest{}
	if profileID != "" && !SafeName(profileID) {
		return list, nil
	}
	ids, err := r.from.IDs(ctx, profileID)
	if err != nil {
		return nil, fmt.Errorf("evidence of %s: %w", cmp.Or(profileID, "all profiles"), err)
	}
	if profileID == "" {
		r.profiles.Clear()
	}
	found := make([]*Manifest, len(ids))
	work, reading := errgroup.WithContext(ctx)
	work.SetLimit(listedAtOnce)
	for i, evidenceID := range ids {
		if of, known := r.profiles.Load(evidenceID); !known || profileID == "" || of == profileID {
			work.Go(func() (err error) {
				found[i], err = r.listed(reading, evidenceID)
				return err
			})
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	for _, m := range found {
		if m != nil && (profileID == "" || m.ProfileID == profileID) {
			list = append(list, *m)
		}
	}
	Newest(list)
	return list, nil
}

// listed reads a manifest for a list. It returns nil for a bundle that is half stored or half
// removed, that has just moved from the spool to its store, or whose manifest cannot be read.
func (r *reader) listed(ctx context.Context, evidenceID string) (*Manifest, error) {
	raw, err := r.Manifest(ctx, evidenceID)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := Decode(evidenceID, raw)
	if err != nil {
		return nil, nil //nolint:nilerr // Verify reports it
	}
	r.profiles.Store(evidenceID, m.ProfileID)
	return &m, nil
}

// store keeps bundles as files.
type store struct {
	reader
	files Files
}

// Put implements Store.
func (s *store) Put(ctx context.Context, b *Sealed) error {
	evidenceID := b.Manifest.EvidenceID
	fail := func(what string, err error) error {
		return fmt.Errorf("evidence %s: storing %s: %w", evidenceID, what, err)
	}
	switch raw, err := s.files.Get(ctx, evidenceID, ManifestName); {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged):
	case err != nil:
		return fail("it", err)
	case !bytes.Equal(raw, b.Raw):
		return fail("it", ErrConflict)
	}
	upload, err := s.files.Begin(ctx, b.Manifest)
	if err != nil {
		return fail("it", err)
	}
	if err := b.EachPart(ctx, upload.Part); err != nil {
		return err
	}
	err = upload.Seal(ctx, b.Raw)
	if errors.Is(err, fs.ErrExist) { // of this bundle or, if somebody else was first, of another
		var raw []byte
		raw, err = s.files.Get(ctx, evidenceID, ManifestName)
		if errors.Is(err, ErrDamaged) || err == nil && !bytes.Equal(raw, b.Raw) {
			err = ErrConflict
		}
	}
	if err != nil {
		return fail("the manifest", err)
	}
	return nil
}

// Delete implements Store.
func (s *store) Delete(ctx context.Context, m Manifest) error {
	err := errors.Join(checkName("evidence id", m.EvidenceID), checkName("profile id", m.ProfileID))
	if err == nil {
		err = s.files.Remove(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("evidence %s: removing it: %w", shortID(m.EvidenceID), err)
	}
	return nil
}
