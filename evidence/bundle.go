package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"leasehold/evidence/crypt"
	"leasehold/evidence/redact"
	"leasehold/internal/durable"
)

// Bundle is evidence that is being gathered in a spool. Its methods are safe for concurrent
// use.
type Bundle struct {
	spool *Spool
	dir   string

	to *crypt.Recipients // nil: the bundle is in clear

	mu        sync.Mutex
	m         Manifest // in clear, with the sizes and hashes of what was added
	stored    []Part   // of an encrypted bundle: the parts as they are stored
	sealed    string   // hex SHA-256 of the manifest, once sealed
	discarded bool
}

// ID returns the evidence id.
func (b *Bundle) ID() string { return b.m.EvidenceID }

// Add writes a part, encrypted if the bundle is. The name is a plain file name that the bundle
// does not have yet. Seal syncs what was added. A part that cannot be written, for example
// because the disk is full, is missing in the bundle, with the reason.
func (b *Bundle) Add(name, kind, mediaType string, content []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkFree(name); err != nil {
		return fmt.Errorf("evidence %s: %w", b.m.EvidenceID, err)
	}
	stored, err := encrypt(b.to, content)
	if err == nil && len(stored) > maxPart {
		err = fmt.Errorf("it has %d bytes, want at most %d", len(stored), maxPart)
	}
	if err == nil {
		err = withReserveOf(kind)(b.dir, func() error { return create(filepath.Join(b.dir, name), stored) })
	}
	if err != nil {
		b.miss(name, kind, err.Error())
		return fmt.Errorf("evidence %s: part %s: %w", b.m.EvidenceID, name, err)
	}
	p := Part{Name: name, Kind: kind, MediaType: mediaType}
	b.m.Parts = append(b.m.Parts, p.with(content))
	b.stored = append(b.stored, p.with(stored))
	return nil
}

// checkFree returns an error unless a part can be added under the name.
func (b *Bundle) checkFree(name string) error {
	if b.sealed != "" || b.discarded {
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

// withReserveOf is how a part of the kind uses the reserve of a full disk. Those that are large do without it
// before nothing is left for the others and the manifest, without which there is no bundle.
func withReserveOf(kind string) func(dir string, write func() error) error {
	switch kind {
	case KindScreenshot, KindDOM, KindDetail:
		return durable.WithHalfReserve
	}
	return durable.WithReserve
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

// maxReason is the length, in bytes, of the reason why a part is missing.
const maxReason = 500

// AddMissing records why a part could not be captured. It does nothing if the bundle already
// has a part of that name, or is sealed.
func (b *Bundle) AddMissing(name, kind, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" && !b.has(name) {
		b.miss(name, kind, reason)
	}
}

// miss adds a part that is missing. The caller holds b.mu.
func (b *Bundle) miss(name, kind, reason string) {
	p := Part{Name: name, Kind: kind, Missing: redact.Clip(cmp.Or(reason, "no reason was given"), maxReason)}
	b.m.Parts, b.stored = append(b.m.Parts, p), append(b.stored, p)
}

// SetPages names in the manifest what was captured of the browser's pages. The primary page's
// screenshot becomes the last screenshot, and its URL becomes the last known URL if that is
// empty.
func (b *Bundle) SetPages(results []PageResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m.Pages = results
	for _, r := range results {
		if !r.Primary {
			continue // its screenshot would mislead: none is better
		}
		b.m.LastScreenshot = r.Screenshot
		b.m.LastKnownURL = cmp.Or(b.m.LastKnownURL, r.CommittedURL, r.URL)
	}
}

// SetPictures names in the manifest the pictures that were stored while the session
// lived. It does nothing to a bundle that is sealed, or nil.
func (b *Bundle) SetPictures(pictures []Picture) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" {
		b.m.Pictures = pictures
	}
}

// SetStateChanged says in the manifest whether the account's state has changed since the grant,
// from two parts of NewDigests; see Changed. So the answer can be read even if the parts are
// encrypted. It does nothing to a bundle that is sealed.
func (b *Bundle) SetStateChanged(before, after []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" {
		answer, how := Changed(before, after)
		b.m.StateChanged = &StateChange{Answer: answer, How: how}
	}
}

// Seal syncs the parts, writes the manifest last, and syncs that, too. It returns the manifest
// in clear and the hex SHA-256 of the bytes that were written; if called again, it returns the
// same. After an error the bundle is not sealed, and Seal may be tried again.
func (b *Bundle) Seal() (Manifest, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed != "" {
		return b.m, b.sealed, nil
	}
	if b.discarded {
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
	if err := b.syncParts(); err != nil {
		return nil, err
	}
	if !b.m.inChain() {
		raw, err := b.encoded()
		if err != nil {
			return nil, err
		}
		return raw, b.write(raw)
	}
	return b.spool.sealInChain(b)
}

// syncParts puts the content of all parts on disk.
func (b *Bundle) syncParts() error {
	return eachPart(context.Background(), b.m, func(_ context.Context, p Part) error {
		return durable.WithReserve(b.dir, func() error { return durable.Sync(filepath.Join(b.dir, p.Name)) })
	})
}

// partsAtOnce is how many parts are worked on side by side: when a disk syncs one file, it also
// syncs what others wait for, and the waits for a store overlap.
const partsAtOnce = 8

// eachPart calls do with each part that is not missing, several at a time, and returns when all
// calls have. After the first error, which is returned, the context of the others ends and no
// further part is begun.
func eachPart(ctx context.Context, m Manifest, do func(context.Context, Part) error) error {
	work, parts := errgroup.WithContext(ctx)
	work.SetLimit(partsAtOnce)
	for _, p := range m.Parts {
		if p.Missing == "" && parts.Err() == nil {
			work.Go(func() error { return do(parts, p) })
		}
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return ctx.Err() // if that had ended before, no part was begun
}

// encoded returns the manifest as it is stored.
func (b *Bundle) encoded() ([]byte, error) {
	sealed := b.m
	if b.to != nil {
		var err error
		if sealed, err = b.m.encrypted(b.to, b.stored); err != nil {
			return nil, err
		}
	}
	return encodeJSON(sealed, "  ")
}

// write writes the manifest, synced. After that the bundle is sealed.
func (b *Bundle) write(raw []byte) error {
	if err := durable.Replace(filepath.Join(b.dir, ManifestName), raw); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(b.dir))
}

// Discard removes an unsealed bundle that turned out not to be needed, because the session goes
// on. It refuses a sealed one: evidence stays. A second call does nothing.
func (b *Bundle) Discard() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sealed != "" || b.spool.folder.isSealed(b.m.EvidenceID):
		return fmt.Errorf("evidence %s: the bundle is sealed, and stays", b.m.EvidenceID)
	case b.discarded:
		return nil
	}
	// The parts first: on a full disk nothing else can be written before. The directory stays for now, since
	// without it the bundle would count as one that was sealed, and has left the spool.
	for _, p := range b.m.Parts {
		if err := os.Remove(filepath.Join(b.dir, p.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := b.spool.notSealed(b.m.ProfileID, b.m.EvidenceID); err != nil {
		return err
	}
	if err := b.spool.folder.remove(b.m.EvidenceID); err != nil {
		return err
	}
	b.discarded = true
	return nil
}
