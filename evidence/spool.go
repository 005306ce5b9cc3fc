package evidence

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/evidence/redact"
	"leasehold/internal/durable"
	"leasehold/internal/id"
)

// Spool is the folder on local disk where bundles are made, and where sealed ones
// wait for their store. A bundle is a folder of its own there, named by its id;
// one without a manifest.json was never sealed. One process uses a spool at a time.
type Spool struct {
	folder
	key []byte
}

const (
	keyName = ".key"   // the secret of Salt
	leaving = ".gone-" // prefix of a bundle's folder that is being removed
)

// OpenSpool opens the spool in a folder, which it makes if need be.
func OpenSpool(dir string) (*Spool, error) {
	s := &Spool{folder: folder{dir}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	err := s.sweep()
	if err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	if s.key, err = loadKey(dir); err != nil {
		return nil, fmt.Errorf("evidence spool: %w", err)
	}
	return s, nil
}

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

// Salt returns the secret with which a profile's cookies are digested: 32 bytes,
// the same at every call on this spool, never part of a bundle.
func (s *Spool) Salt(profileID string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(profileID))
	return h.Sum(nil)
}

// New starts a bundle. The manifest needs a profile; an empty evidence id is made
// up, and a zero time is now. The id must not have been used in this spool.
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
	m.LastScreenshot, m.Pages, m.Parts = "", []PageResult{}, []Part{}
	dir := filepath.Join(s.dir, m.EvidenceID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("new bundle: %w", err)
	}
	return &Bundle{spool: s, dir: dir, m: m}, nil
}

// Unsealed returns the ids of bundles that nobody sealed: those being made, and
// those whose launcher died over them. Readers and Flush pass them by.
func (s *Spool) Unsealed() ([]string, error) { return s.ids(false) }

// Sealed returns the ids of the sealed bundles, the oldest first.
func (s *Spool) Sealed() ([]string, error) { return s.ids(true) }

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
	return &Sealed{Manifest: m, Raw: raw, from: s.folder}, nil
}

// Sealed is a sealed bundle, on its way from the spool, or from memory, to a store.
type Sealed struct {
	Manifest Manifest
	// Raw is manifest.json as it was sealed.
	Raw    []byte
	from   folder
	memory map[string][]byte // the parts of one that is in no folder
}

// Part reads a part that is not missing.
func (s *Sealed) Part(name string) ([]byte, error) {
	if s.memory != nil {
		return s.memory[name], nil
	}
	return s.from.Part(context.Background(), s.Manifest.EvidenceID, name)
}

// Bundle is evidence being gathered. Its methods may be called at the same time.
type Bundle struct {
	spool *Spool
	dir   string

	mu     sync.Mutex
	m      Manifest
	sealed string // hash of the manifest, once sealed
	gone   bool   // discarded
}

// ID returns the evidence id.
func (b *Bundle) ID() string { return b.m.EvidenceID }

// Add writes a part. The name is a plain file name that the bundle does not have
// yet. What is added is synced by Seal.
func (b *Bundle) Add(name, kind, mediaType string, content []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.free(name); err != nil {
		return fmt.Errorf("evidence %s: %w", b.m.EvidenceID, err)
	}
	if err := create(filepath.Join(b.dir, name), content); err != nil {
		return fmt.Errorf("evidence %s: part %s: %w", b.m.EvidenceID, name, err)
	}
	b.m.Parts = append(b.m.Parts, Part{
		Name: name, Kind: kind, MediaType: mediaType, Bytes: int64(len(content)), SHA256: sha256Hex(content),
	})
	return nil
}

func (b *Bundle) free(name string) error {
	if b.sealed != "" || b.gone {
		return errors.New("the bundle is sealed or discarded: nothing can be added")
	}
	if err := checkName("part", name); err != nil {
		return err
	}
	if name == ManifestName {
		return fmt.Errorf("part %s: the name is the manifest's", name)
	}
	if b.has(name) {
		return fmt.Errorf("part %s: the bundle has one already", name)
	}
	return nil
}

func (b *Bundle) has(name string) bool {
	return slices.ContainsFunc(b.m.Parts, func(p Part) bool { return p.Name == name })
}

// create writes a new file, or leaves none.
func create(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// AddMissing notes why a part could not be had. A name that the bundle has
// already stays as it is, and so does a sealed bundle.
func (b *Bundle) AddMissing(name, kind, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" && !b.has(name) {
		b.m.Parts = append(b.m.Parts, Part{Name: name, Kind: kind, Missing: redact.Clip(cmp.Or(why, "no reason was given"), 500)})
	}
}

// SetPages names in the manifest what was captured of the browser's pages, and takes
// the last screenshot and, where it is empty, the last known URL from the primary
// one.
func (b *Bundle) SetPages(results []PageResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m.Pages = results
	for _, r := range results {
		// Another page's picture would mislead: better none.
		if r.Primary {
			b.m.LastScreenshot = r.Screenshot
		}
		if r.Primary && b.m.LastKnownURL == "" {
			b.m.LastKnownURL = cmp.Or(r.CommittedURL, r.URL)
		}
	}
}

// Seal syncs the parts, writes the manifest last and syncs that too. It returns
// the manifest and the hex SHA-256 of its bytes; again, if called again. After an
// error the bundle is not sealed and Seal may be tried once more.
func (b *Bundle) Seal() (Manifest, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed != "" {
		return b.m, b.sealed, nil
	}
	if b.gone {
		return Manifest{}, "", fmt.Errorf("sealing evidence %s: the bundle was discarded", b.m.EvidenceID)
	}
	raw, err := b.seal()
	if err != nil {
		return Manifest{}, "", fmt.Errorf("sealing evidence %s: %w", b.m.EvidenceID, err)
	}
	b.sealed = sha256Hex(raw)
	return b.m, b.sealed, nil
}

func (b *Bundle) seal() ([]byte, error) {
	for _, p := range b.m.Parts {
		if p.Missing != "" {
			continue
		}
		if err := durable.Sync(filepath.Join(b.dir, p.Name)); err != nil {
			return nil, err
		}
	}
	raw, err := json.MarshalIndent(b.m, "", "  ")
	if err != nil {
		return nil, err
	}
	raw = append(raw, '\n')
	if err := durable.Replace(filepath.Join(b.dir, ManifestName), raw); err != nil {
		return nil, err
	}
	return raw, durable.Sync(filepath.Dir(b.dir))
}

// folder reads bundles from a folder of folders: the spool's layout, and that of
// DirStore.
type folder struct{ dir string }

// Manifest implements Reader.
func (f folder) Manifest(_ context.Context, evidenceID string) ([]byte, error) {
	return f.read(evidenceID, ManifestName)
}

// Part implements Reader.
func (f folder) Part(_ context.Context, evidenceID, name string) ([]byte, error) {
	if !f.isSealed(evidenceID) || name == ManifestName {
		return nil, fmt.Errorf("evidence %s: part %q: %w", redact.Clip(evidenceID, 140), redact.Clip(name, 140), ErrNotFound)
	}
	return f.read(evidenceID, name)
}

func (f folder) read(evidenceID, name string) ([]byte, error) {
	if !SafeName(evidenceID) || !SafeName(name) {
		return nil, fmt.Errorf("evidence %q: %q: %w", redact.Clip(evidenceID, 140), redact.Clip(name, 140), ErrNotFound)
	}
	b, err := os.ReadFile(filepath.Join(f.dir, evidenceID, name))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return b, nil
}

func (f folder) isSealed(evidenceID string) bool {
	if !SafeName(evidenceID) {
		return false
	}
	_, err := os.Stat(filepath.Join(f.dir, evidenceID, ManifestName))
	return err == nil
}

// remove forgets a bundle, all of it or nothing as far as readers see.
func (f folder) remove(evidenceID string) error {
	gone := filepath.Join(f.dir, leaving+evidenceID)
	if err := os.Rename(filepath.Join(f.dir, evidenceID), gone); err != nil {
		return fmt.Errorf("evidence folder: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("evidence folder: %w", err)
	}
	return nil
}

// sweep finishes what a crash left of removals and of writes.
func (f folder) sweep() error {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), leaving) || strings.HasPrefix(e.Name(), durable.Unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.dir, e.Name())))
		}
	}
	return err
}

// ids returns the bundles that are sealed, or those that are not, sorted.
func (f folder) ids(sealed bool) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("evidence folder: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && SafeName(e.Name()) && f.isSealed(e.Name()) == sealed {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// List implements Reader. Manifests that cannot be read are not in it; Verify
// finds them through the bundle that names them.
func (f folder) List(ctx context.Context, profileID string) ([]Manifest, error) {
	ids, err := f.ids(true)
	if err != nil {
		return nil, err
	}
	list := []Manifest{}
	for _, evidenceID := range ids {
		raw, err := f.Manifest(ctx, evidenceID)
		if errors.Is(err, ErrNotFound) {
			continue // moved on to the store in between
		}
		if err != nil {
			return nil, err
		}
		if m, err := Decode(evidenceID, raw); err == nil && (profileID == "" || m.ProfileID == profileID) {
			list = append(list, m)
		}
	}
	Newest(list)
	return list, nil
}

// same tells whether a folder holds exactly this content under a name.
func (f folder) same(evidenceID, name string, content []byte) bool {
	b, err := f.read(evidenceID, name)
	return err == nil && bytes.Equal(b, content)
}
