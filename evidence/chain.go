package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"leasehold/internal/durable"
)

// The lease record names one bundle as the newest. That is not enough for a chain: runs that
// share a profile end one after the other, and were all granted under the same newest bundle; a
// launcher that takes evidence while the store is away has an old record; and so has a store
// that forgot. So the spool remembers the loose ends of each profile: the bundles that no
// bundle names. The next bundle that is sealed names them all, besides the one in the record.
// If such a bundle is removed before that, this is noticed nevertheless, because its name and
// hash are remembered here.

// chainDir is the folder of the spool with what is remembered of the profiles' chains, one file
// for each profile.
const (
	chainDir = ".chain"
	chainExt = ".json"
)

// maxNamed is how many named bundles are remembered. This only spares a later bundle an
// unnecessary link.
const maxNamed = 64

// chain is what a spool remembers of a profile's chain.
type chain struct {
	// Ends are bundles that no bundle names, oldest first.
	Ends []Link `json:"ends"`
	// Sealing is the bundle whose manifest was about to be written when this file was: it names
	// all of Ends, and replaces them if it was sealed.
	Sealing *sealing `json:"sealing,omitempty"`
	// Named are the bundles that were most recently seen to be named by others, oldest first.
	Named []string `json:"named,omitempty"`
}

// sealing is a bundle that is about to be sealed, and the bundle before it according to the
// record.
type sealing struct {
	Link
	Previous string `json:"previous_evidence_id"`
}

// name notes that a bundle was seen to be named by another.
func (c *chain) name(evidenceIDs ...string) {
	for _, evidenceID := range evidenceIDs {
		if evidenceID != "" && !slices.Contains(c.Named, evidenceID) {
			c.Named = append(c.Named, evidenceID)
		}
	}
	c.Named = c.Named[max(0, len(c.Named)-maxNamed):]
}

func (s *Spool) chainFile(profileID string) string {
	return filepath.Join(s.folder.dir, chainDir, profileID+chainExt)
}

// chain reads what is remembered of a profile's chain; the caller holds s.sealing. For a
// profile without bundles nothing is remembered.
func (s *Spool) chain(profileID string) (chain, error) {
	var c chain
	raw, err := os.ReadFile(s.chainFile(profileID))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return chain{}, fmt.Errorf("the chain of profile %s: %w", profileID, err)
	}
	if c.Sealing != nil && s.wasSealed(c.Sealing.EvidenceID) {
		c.name(c.Sealing.Previous)
		for _, end := range c.Ends {
			c.name(end.EvidenceID)
		}
		c.Ends = []Link{c.Sealing.Link}
	}
	c.Sealing = nil
	return c, nil
}

// wasSealed tells whether a bundle whose sealing began was sealed: it has its manifest, or it
// has left the spool. Otherwise it stays there, or is discarded (notSealed).
func (s *Spool) wasSealed(evidenceID string) bool {
	_, err := os.Stat(filepath.Join(s.folder.dir, evidenceID))
	return s.folder.isSealed(evidenceID) || errors.Is(err, fs.ErrNotExist)
}

func (s *Spool) keepChain(profileID string, c chain) error {
	raw, err := encodeJSON(c, "")
	if err != nil {
		return err
	}
	path := s.chainFile(profileID)
	err = durable.Replace(path, raw)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = errors.Join(durable.Replace(path, raw), durable.Sync(s.folder.dir))
		}
	}
	return err
}

// chainPart is the name of the part by which a bundle says that the bundle before it is not
// known.
const chainPart = "chain.json"

// sealInChain writes the manifest of a bundle, so that it names every loose end of its profile,
// and returns the bytes. What is remembered of the chain is written first: after a crash in
// between, the bundle is either sealed and remembered, or neither.
func (s *Spool) sealInChain(b *Bundle) ([]byte, error) {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	if raw, err := os.ReadFile(filepath.Join(b.dir, ManifestName)); err == nil {
		return raw, b.write(raw) // an earlier attempt did all but sync it: others may name it already
	}
	c, err := s.chain(b.m.ProfileID)
	if err != nil && !b.has(chainPart) { // evidence matters more than its place in the chain
		missing := Part{Name: chainPart, Kind: KindChain, Missing: err.Error()}
		b.m.Parts, b.stored = append(b.m.Parts, missing), append(b.stored, missing)
	}
	b.m.AlsoFollows = nil
	for _, end := range c.Ends {
		if end.EvidenceID != b.m.PreviousEvidenceID {
			b.m.AlsoFollows = append(b.m.AlsoFollows, end)
		}
	}
	raw, err := b.encoded()
	if err != nil {
		return nil, err
	}
	c.Sealing = &sealing{Link{b.m.EvidenceID, sha256Hex(raw)}, b.m.PreviousEvidenceID}
	if err := s.keepChain(b.m.ProfileID, c); err != nil {
		return nil, err
	}
	return raw, b.write(raw)
}

// notSealed forgets that a bundle was about to be sealed.
func (s *Spool) notSealed(profileID, evidenceID string) error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	raw, err := os.ReadFile(s.chainFile(profileID))
	var c chain
	if err != nil || json.Unmarshal(raw, &c) != nil || c.Sealing == nil || c.Sealing.EvidenceID != evidenceID {
		return nil //nolint:nilerr // nothing is remembered of it
	}
	c.Sealing = nil
	return s.keepChain(profileID, c)
}

// neverSealed is notSealed for a bundle whose profile is not known.
func (s *Spool) neverSealed(evidenceID string) error {
	files, err := os.ReadDir(filepath.Join(s.folder.dir, chainDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range files {
		if profileID, ok := strings.CutSuffix(file.Name(), chainExt); ok {
			err = errors.Join(err, s.notSealed(profileID, evidenceID))
		}
	}
	return err
}

// owe remembers a bundle that no bundle of this spool is known to name, so that the next one
// names it.
func (s *Spool) owe(profileID string, l Link) error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	c, err := s.chain(profileID)
	known := func(o Link) bool { return o.EvidenceID == l.EvidenceID }
	if err != nil || slices.ContainsFunc(c.Ends, known) || slices.Contains(c.Named, l.EvidenceID) {
		return err
	}
	c.Ends = append(c.Ends, l)
	return s.keepChain(profileID, c)
}

// Follow returns the bundle that a profile's record should name, if the record names at now and
// next was sealed. It is next, unless at was sealed after next: so if the records of two
// bundles are written in the wrong order, the newer bundle is not hidden. If no bundle is known
// to name at, it is remembered, and the profile's next bundle names it.
func (a *Archive) Follow(profileID string, at, next Link) (Link, error) {
	head, err := a.Newer(profileID, at, next)
	if err != nil || at.EvidenceID == "" || at == head || head.EvidenceID == "" {
		return head, err
	}
	return head, a.spool.owe(profileID, at)
}

// Newer is Follow, but remembers nothing.
func (a *Archive) Newer(profileID string, at, next Link) (Link, error) {
	if next.EvidenceID == "" || at.EvidenceID == "" || at == next {
		return next, nil
	}
	a.spool.sealing.Lock()
	c, err := a.spool.chain(profileID)
	a.spool.sealing.Unlock()
	if err == nil && slices.Contains(c.Ends, at) && !slices.Contains(c.Ends, next) && slices.Contains(c.Named, next.EvidenceID) {
		return at, nil
	}
	return next, err
}

// maxOwed is how many bundles of a profile one call of oweStrays remembers, because a manifest
// has to stay small. Later calls remember the others.
const maxOwed = 100

// oweStrays remembers those of the store's bundles, the newest first, that nothing names. heads
// are those of Needs.
func (a *Archive) oweStrays(ctx context.Context, all []Manifest, heads map[string]Link) error {
	named := map[string]bool{}
	for _, m := range all {
		for _, l := range m.follows() {
			named[l.EvidenceID] = true
		}
	}
	var failed []error
	owed := map[string]int{}                 // by profile
	for _, m := range slices.Backward(all) { // oldest first
		head, ours := heads[m.ProfileID]
		if !ours || !m.inChain() || named[m.EvidenceID] || m.EvidenceID == head.EvidenceID || owed[m.ProfileID] == maxOwed {
			continue
		}
		owed[m.ProfileID]++
		raw, err := a.store.Manifest(ctx, m.EvidenceID)
		if err == nil {
			err = a.spool.owe(m.ProfileID, Link{m.EvidenceID, sha256Hex(raw)})
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			failed = append(failed, fmt.Errorf("evidence %s, which nothing names: %w", m.EvidenceID, err))
		}
	}
	return errors.Join(failed...)
}
