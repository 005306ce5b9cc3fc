package evidence

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"leasehold/evidence/redact"
	"leasehold/internal/durable"
	"leasehold/internal/id"
)

// Spool is the directory on local disk in which bundles are made, and in which sealed ones wait
// for their store. Each is a directory of its own, named after its id; one without
// manifest.json was never sealed. Only one process uses a spool at a time.
type Spool struct {
	reader
	folder folder
	key    []byte
	keys   Keys

	sealing sync.Mutex // one bundle is sealed at a time, so that the next can name it
}

// keyName is the file with the key of Salt.
const keyName = ".key"

// OpenSpool opens the spool in a directory, which it makes if need be. Its bundles are in
// clear.
func OpenSpool(dir string) (*Spool, error) { return OpenEncryptedSpool(dir, Keys{}) }

// OpenEncryptedSpool is OpenSpool for bundles that are encrypted with the keys.
func OpenEncryptedSpool(dir string, keys Keys) (*Spool, error) {
	at := folder{dir}
	s := &Spool{reader: reader{from: at}, folder: at, keys: keys}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	err := errors.Join(at.sweep(), s.sweepUnsealed(time.Now()))
	if err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	if s.key, err = loadKey(dir); err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	return s, nil
}

// unsealedAge is how long a bundle that is not sealed stays after the last write to it: the guard or
// the launcher may still be filling a young one.
const unsealedAge = 24 * time.Hour

// sweepUnsealed removes the bundles that were begun and never sealed, because their launcher was killed.
func (s *Spool) sweepUnsealed(now time.Time) error {
	entries, err := os.ReadDir(s.folder.dir)
	for _, e := range entries {
		if !e.IsDir() || !SafeName(e.Name()) || s.folder.isSealed(e.Name()) {
			continue
		}
		written, failed := lastWrite(filepath.Join(s.folder.dir, e.Name()))
		if failed == nil && now.Sub(written) > unsealedAge {
			if failed = s.neverSealed(e.Name()); failed == nil {
				failed = s.folder.remove(e.Name())
			}
		}
		if !errors.Is(failed, fs.ErrNotExist) { // the guard may have discarded it
			err = errors.Join(err, failed)
		}
	}
	return err
}

// lastWrite returns when a bundle's directory or a file in it was last written.
func lastWrite(dir string) (last time.Time, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.ModTime().After(last) {
			last = fi.ModTime()
		}
		return err
	})
	return last, err
}

// loadKey reads the spool's key, or makes one if there is none.
func loadKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyName)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		err = durable.Replace(path, key)
	}
	if err != nil {
		return nil, err
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("%s: %d bytes, want 32: remove it, and cookie digests made before compare no more", path, len(key))
	}
	return key, nil
}

// Salt returns the secret under which a profile's cookies and storage are digested: 32
// bytes, the same at every call on this spool. It is never part of a bundle.
func (s *Spool) Salt(profileID string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(profileID))
	return h.Sum(nil)
}

// New starts a bundle. The manifest needs a profile. An empty evidence id is replaced
// by a new one, and a zero time by now. The id must not have been used in this spool.
func (s *Spool) New(m Manifest) (*Bundle, error) {
	if m.EvidenceID == "" {
		m.EvidenceID = id.New("ev")
	}
	if m.At.IsZero() {
		m.At = time.Now().UTC()
	}
	if err := errors.Join(checkName("evidence id", m.EvidenceID), checkName("profile id", m.ProfileID)); err != nil {
		return nil, fmt.Errorf("new bundle: %w", err)
	}
	m.LastKnownURL = redact.URL(m.LastKnownURL)
	m.LastScreenshot, m.Pages, m.Parts, m.Encryption, m.AlsoFollows = "", []PageResult{}, []Part{}, nil, nil
	dir := filepath.Join(s.folder.dir, m.EvidenceID)
	if err := durable.WithReserve(s.folder.dir, func() error { return os.Mkdir(dir, 0o700) }); err != nil {
		return nil, fmt.Errorf("new bundle: %w", err)
	}
	b := &Bundle{spool: s, dir: dir, m: m, to: s.keys.To}
	if m.IsAnchor() {
		b.to = nil // an anchor has nothing to hide, and everybody has to be able to follow it
	}
	return b, nil
}

// Sealed returns the ids of the sealed bundles, sorted: ids that New made are in the order in
// which they were made.
func (s *Spool) Sealed() ([]string, error) { return s.folder.IDs(context.Background(), "") }

// Open returns a sealed bundle of the spool, or ErrNotFound.
func (s *Spool) Open(evidenceID string) (*Sealed, error) {
	raw, err := s.Manifest(context.Background(), evidenceID)
	if err != nil {
		return nil, err
	}
	m, err := Decode(evidenceID, raw)
	if err != nil {
		return nil, err
	}
	return &Sealed{Manifest: m, Raw: raw, part: func(name string) ([]byte, error) {
		return s.Part(context.Background(), evidenceID, name)
	}}, nil
}

// Sealed is a sealed bundle on its way to a store.
type Sealed struct {
	Manifest Manifest
	// Raw is manifest.json as it was sealed.
	Raw  []byte
	part func(name string) ([]byte, error)
}

// Part reads a part that is not missing.
func (s *Sealed) Part(name string) ([]byte, error) { return s.part(name) }

// EachPart calls do with each part that is not missing, several at a time, and returns when all
// calls have. After the first error, which then names the part, the context of the others ends
// and no further part is begun.
func (s *Sealed) EachPart(ctx context.Context, do func(ctx context.Context, name string, content []byte) error) error {
	return eachPart(ctx, s.Manifest, func(ctx context.Context, p Part) error {
		content, err := s.Part(p.Name)
		if err != nil {
			return err
		}
		if err := do(ctx, p.Name, content); err != nil {
			return fmt.Errorf("evidence %s: storing part %s: %w", s.Manifest.EvidenceID, p.Name, err)
		}
		return nil
	})
}
