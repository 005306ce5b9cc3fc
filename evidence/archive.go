package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"
)

// Archive is a spool with the store behind it. It reads like one store, whether or not a bundle
// has reached the store yet. Its methods are safe for concurrent use.
type Archive struct {
	spool *Spool
	store Store
	log   zerolog.Logger

	mu        sync.Mutex
	uploading map[string]*uploading // by evidence id
	// weights are those of the bundles that waited when they were last counted, by evidence id.
	// The map is replaced, never changed.
	weights map[string]weight
}

// uploading is an upload that goes on. err is its result once done is closed.
type uploading struct {
	done chan struct{}
	err  error
}

var _ Reader = (*Archive)(nil)

// NewArchive ties a spool to a store.
func NewArchive(spool *Spool, store Store, log zerolog.Logger) *Archive {
	return &Archive{spool: spool, store: store, log: log, uploading: map[string]*uploading{}}
}

// Through returns an archive with the same spool whose store is what wrap makes of this one's.
// Only one of the two is used from then on.
func (a *Archive) Through(wrap func(Store) Store) *Archive {
	return NewArchive(a.spool, wrap(a.store), a.log)
}

// New starts a bundle in the spool; see Spool.New.
func (a *Archive) New(m Manifest) (*Bundle, error) { return a.spool.New(m) }

// Salt returns the profile's secret for NewDigests and CookieDigest; see Spool.Salt.
func (a *Archive) Salt(profileID string) []byte { return a.spool.Salt(profileID) }

// Save seals a bundle and stores it, and returns the manifest and its hex SHA-256. If
// the store does not take it before ctx ends, the bundle waits for Flush in the spool,
// sealed and synced, and Save still succeeds: an error means that there is no sealed
// bundle.
func (a *Archive) Save(ctx context.Context, b *Bundle) (Manifest, string, error) {
	m, sum, err := b.Seal()
	if err != nil {
		return Manifest{}, "", err
	}
	if err := a.upload(ctx, m.EvidenceID); err != nil {
		a.log.Warn().Err(err).Str("profile", m.ProfileID).Uint64("token", m.LeaseToken).
			Str("session", m.SessionID).Str("evidence", m.EvidenceID).Msg("evidence waits in the spool")
	}
	return m, sum, nil
}

// Flush uploads the sealed bundles that wait in the spool, oldest first. If one cannot be
// stored, the others are tried all the same; all errors are joined.
func (a *Archive) Flush(ctx context.Context) error {
	ids, err := a.spool.Sealed()
	if err != nil {
		return err
	}
	var failed []error
	for _, evidenceID := range ids {
		if err := a.upload(ctx, evidenceID); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// upload moves a bundle to the store: it is put there, read back, and only then removed
// from the spool. If another call is uploading it, upload waits for the result of that call, so
// that the bundle is in the store whenever upload returns nil.
func (a *Archive) upload(ctx context.Context, evidenceID string) error {
	a.mu.Lock()
	u, already := a.uploading[evidenceID]
	if !already {
		u = &uploading{done: make(chan struct{})}
		a.uploading[evidenceID] = u
	}
	a.mu.Unlock()
	if already {
		select {
		case <-u.done:
			return u.err
		case <-ctx.Done():
			return fmt.Errorf("storing evidence: it is being stored: %w", context.Cause(ctx))
		}
	}
	u.err = a.move(ctx, evidenceID)
	a.mu.Lock()
	delete(a.uploading, evidenceID)
	a.mu.Unlock()
	close(u.done)
	return u.err
}

// move is upload for the only call that uploads the bundle.
func (a *Archive) move(ctx context.Context, evidenceID string) error {
	s, err := a.spool.Open(evidenceID)
	if errors.Is(err, ErrNotFound) {
		return nil // it was uploaded since it was listed
	}
	if err != nil {
		return err
	}
	if err := a.store.Put(ctx, s); err != nil {
		return fmt.Errorf("storing evidence: %w", err)
	}
	if err := readBack(ctx, a.store, s); err != nil {
		return fmt.Errorf("reading stored evidence back: %w", err)
	}
	return a.spool.folder.remove(evidenceID)
}

// readBack compares what a store has of a bundle with the bundle.
func readBack(ctx context.Context, r Reader, s *Sealed) error {
	evidenceID := s.Manifest.EvidenceID
	raw, err := r.Manifest(ctx, evidenceID)
	if err != nil {
		return err
	}
	if !bytes.Equal(raw, s.Raw) {
		return fmt.Errorf("evidence %s: %w: the manifest differs", evidenceID, ErrDamaged)
	}
	return eachPart(ctx, s.Manifest, func(ctx context.Context, p Part) error {
		return checkPart(ctx, r, evidenceID, p)
	})
}

// ReadPart returns a part as it is stored, or ErrNotFound, or ErrDamaged if it is not what the
// manifest says.
func ReadPart(ctx context.Context, r Reader, m Manifest, name string) ([]byte, error) {
	i := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Name == name && p.Missing == "" })
	if i < 0 {
		return nil, fmt.Errorf("evidence %s: part %q: %w", m.EvidenceID, shortID(name), ErrNotFound)
	}
	return readPart(ctx, r, m.EvidenceID, m.Parts[i])
}

// checkPart returns ErrNotFound or ErrDamaged if a part is not what its manifest says. For a
// missing part there is nothing to check.
func checkPart(ctx context.Context, r Reader, evidenceID string, p Part) error {
	if p.Missing != "" {
		return nil
	}
	_, err := readPart(ctx, r, evidenceID, p)
	return err
}

// readPart returns the content of a part, or ErrNotFound or ErrDamaged if it is not what its
// manifest says.
func readPart(ctx context.Context, r Reader, evidenceID string, p Part) ([]byte, error) {
	content, err := r.Part(ctx, evidenceID, p.Name)
	if err != nil {
		return nil, err
	}
	if sum := sha256Hex(content); sum != p.SHA256 {
		return nil, fmt.Errorf("evidence %s: part %s: %w: SHA-256 %s, the manifest says %s", evidenceID, p.Name, ErrDamaged, sum, p.SHA256)
	}
	return content, nil
}

// The methods of Reader ask the spool before the store. A bundle leaves the spool only when the
// store has it, so in this order none is missed while it moves.

// Manifest implements Reader.
func (a *Archive) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	if raw, err := a.spool.Manifest(ctx, evidenceID); err == nil {
		return raw, nil
	}
	return a.store.Manifest(ctx, evidenceID)
}

// Part implements Reader.
func (a *Archive) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if content, err := a.spool.Part(ctx, evidenceID, name); err == nil {
		return content, nil
	}
	return a.store.Part(ctx, evidenceID, name)
}

// List implements Reader. If the store cannot be read, it returns what the spool has, with the
// error.
func (a *Archive) List(ctx context.Context, profileID string) ([]Manifest, error) {
	list, err := a.spool.List(ctx, profileID)
	if err != nil {
		return nil, err
	}
	stored, err := a.store.List(ctx, profileID)
	for _, m := range stored {
		if !slices.ContainsFunc(list, func(have Manifest) bool { return have.EvidenceID == m.EvidenceID }) {
			list = append(list, m)
		}
	}
	Newest(list)
	return list, err
}
