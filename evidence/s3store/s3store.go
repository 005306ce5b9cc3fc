// Package s3store keeps evidence in a bucket of Amazon S3 or of a server that speaks the
// same protocol.
//
// Below the prefix, a bundle has one object for each part and one for the manifest,
// bundles/<evidence id>/<name>, and an empty object profiles/<profile id>/<evidence id>, by which
// the bundles of a profile are listed. The manifest is written last: without it, readers do not
// see the bundle. Each write is conditional on what was there before, so that no object is
// overwritten by accident.
package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"leasehold/evidence"
	"leasehold/internal/s3bucket"
)

// Config says where the bundles are. It contains no credentials: Open looks for them where AWS
// tools do.
type Config = s3bucket.Config

// ParseURL reads s3://bucket/prefix?endpoint=..&region=..&path_style=true. The endpoint
// is a host, with a port if need be, or an http:// or https:// URL of one; without a
// scheme it is HTTPS. A URL with anything in it that could be a credential is refused,
// and the errors do not repeat such a value.
func ParseURL(raw string) (Config, error) { return s3bucket.ParseURL(raw) }

// Store is an evidence.Store in a bucket. Its methods are safe for concurrent use, and each is
// bounded by its context.
type Store struct{ bucket *s3bucket.Bucket }

var _ evidence.Store = (*Store)(nil)

// ErrUnfit says that the bucket cannot be used as it is, and that waiting would not help: the
// credentials are missing or wrong, there is no such bucket, or the server ignores conditions.
// The error that wraps it says which.
var ErrUnfit = s3bucket.ErrUnfit

// Open returns the store. It does not ask the server; Check does. It finds the credentials where
// the AWS tools find theirs (see s3bucket.Open).
func Open(cfg Config) (*Store, error) {
	bucket, err := s3bucket.Open("evidence store", cfg)
	if err != nil {
		return nil, err
	}
	return &Store{bucket}, nil
}

// Close closes idle connections.
func (s *Store) Close() { s.bucket.Close() }

// formatKey is the key of an object that every store has. Check writes it to find out what the
// credentials and the server allow.
const formatKey = "leasehold-evidence.json"

// Check finds out whether bundles can be stored. It returns ErrUnfit if a person has to change
// something, and another error if the server cannot be reached now.
func (s *Store) Check(ctx context.Context) error { return s.bucket.Check(ctx, formatKey) }

// fileKey is the key, below the prefix, of a bundle's manifest or part.
func fileKey(evidenceID, name string) string { return path.Join("bundles", evidenceID, name) }

// listKey is the key, below the prefix, by which a bundle is listed.
func listKey(profileID, evidenceID string) string {
	return path.Join("profiles", profileID, evidenceID)
}

// Put implements evidence.Store.
func (s *Store) Put(ctx context.Context, b *evidence.Sealed) error {
	evidenceID := b.Manifest.EvidenceID
	fail := func(what string, err error) error {
		return fmt.Errorf("evidence %s: storing %s: %w", evidenceID, what, err)
	}
	switch raw, err := s.get(ctx, fileKey(evidenceID, evidence.ManifestName)); {
	case errors.Is(err, evidence.ErrNotFound):
	case err != nil:
		return fail("it", err)
	case !bytes.Equal(raw, b.Raw):
		return fail("it", evidence.ErrConflict)
	}
	if err := b.EachPart(ctx, func(ctx context.Context, name string, content []byte) error {
		return s.put(ctx, fileKey(evidenceID, name), content)
	}); err != nil {
		return err
	}
	if err := s.bucket.Write(ctx, listKey(b.Manifest.ProfileID, evidenceID), nil, ""); err != nil && !s3bucket.IsRefused(err) {
		return fail("its place in the list", err)
	}
	err := s.bucket.Write(ctx, fileKey(evidenceID, evidence.ManifestName), b.Raw, "")
	if s3bucket.IsRefused(err) {
		raw, getErr := s.get(ctx, fileKey(evidenceID, evidence.ManifestName))
		switch {
		case getErr != nil:
			return fail("the manifest", getErr)
		case !bytes.Equal(raw, b.Raw):
			return fail("the manifest", evidence.ErrConflict)
		}
		return nil
	}
	if err != nil {
		return fail("the manifest", err)
	}
	return nil
}

// put stores a part's content. It writes a new object, or replaces a damaged one. It fails if
// somebody else changes the damaged one at the same time.
func (s *Store) put(ctx context.Context, key string, content []byte) error {
	err := s.bucket.Write(ctx, key, content, "")
	if !s3bucket.IsRefused(err) {
		return err
	}
	have, etag, err := s.read(ctx, key)
	if err != nil {
		return err
	}
	if bytes.Equal(have, content) {
		return nil
	}
	err = s.bucket.Write(ctx, key, content, etag)
	return err
}

// Manifest implements evidence.Reader.
func (s *Store) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	return s.file(ctx, evidenceID, evidence.ManifestName)
}

// Part implements evidence.Reader.
func (s *Store) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if name == evidence.ManifestName {
		return nil, fmt.Errorf("evidence %.140s: part %s: %w", evidenceID, name, evidence.ErrNotFound)
	}
	content, err := s.file(ctx, evidenceID, name)
	if err != nil {
		return nil, err
	}
	// A part without a manifest belongs to a half-stored bundle.
	err = translate(s.bucket.Stat(ctx, fileKey(evidenceID, evidence.ManifestName)))
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return content, nil
}

// file reads a bundle's manifest or part.
func (s *Store) file(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if !evidence.SafeName(evidenceID) || !evidence.SafeName(name) {
		return nil, fmt.Errorf("evidence %.140q: %.140q: %w", evidenceID, name, evidence.ErrNotFound)
	}
	content, err := s.get(ctx, fileKey(evidenceID, name))
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return content, nil
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	content, _, err := s.read(ctx, key)
	return content, err
}

func (s *Store) read(ctx context.Context, key string) (content []byte, etag string, err error) {
	content, etag, err = s.bucket.Read(ctx, key)
	return content, etag, translate(err)
}

// translate returns the error of package evidence for an object that does not exist. Other errors
// stay as they are.
func translate(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return evidence.ErrNotFound
	}
	return err
}

// parallelReads is how many manifests are read at the same time for a list.
const parallelReads = 8

// List implements evidence.Reader.
func (s *Store) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	ids, err := s.ids(ctx, profileID)
	if err != nil {
		return nil, fmt.Errorf("evidence of %s: %w", profileID, err)
	}
	found := make([]*evidence.Manifest, len(ids))
	failed := make([]error, len(ids))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(parallelReads, len(ids)) {
		workers.Go(func() {
			for i := range next {
				found[i], failed[i] = s.listed(ctx, ids[i], profileID)
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	workers.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	list := []evidence.Manifest{}
	for _, m := range found {
		if m != nil {
			list = append(list, *m)
		}
	}
	evidence.Newest(list)
	return list, nil
}

// listed returns the manifest of a bundle for a list. It returns nil if the bundle is not one of
// the profile's, if it cannot be decoded, or if it is half stored or half removed.
func (s *Store) listed(ctx context.Context, evidenceID, profileID string) (*evidence.Manifest, error) {
	raw, err := s.Manifest(ctx, evidenceID)
	if errors.Is(err, evidence.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := evidence.Decode(evidenceID, raw)
	if err != nil || profileID != "" && m.ProfileID != profileID {
		return nil, nil //nolint:nilerr // Verify reports it
	}
	return &m, nil
}

// ids returns the ids of a profile's bundles; with an empty profile id, those of all profiles.
func (s *Store) ids(ctx context.Context, profileID string) ([]string, error) {
	if profileID != "" && !evidence.SafeName(profileID) {
		return nil, nil
	}
	prefix := "profiles/"
	if profileID != "" {
		prefix += profileID + "/"
	}
	var ids []string
	for key, err := range s.bucket.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if evidenceID := path.Base(key); !strings.HasSuffix(key, "/") && evidence.SafeName(evidenceID) {
			ids = append(ids, evidenceID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Delete implements evidence.Store.
func (s *Store) Delete(ctx context.Context, m evidence.Manifest) error {
	fail := func(err error) error { return fmt.Errorf("evidence %.140s: removing it: %w", m.EvidenceID, err) }
	if !evidence.SafeName(m.EvidenceID) || !evidence.SafeName(m.ProfileID) {
		return fail(evidence.ErrNotFound)
	}
	manifest := fileKey(m.EvidenceID, evidence.ManifestName)
	for key, err := range s.bucket.List(ctx, fileKey(m.EvidenceID, "")+"/") {
		if err != nil {
			return fail(err)
		}
		if key != manifest {
			if err := s.bucket.Remove(ctx, key); err != nil {
				return fail(err)
			}
		}
	}
	for _, key := range []string{listKey(m.ProfileID, m.EvidenceID), manifest} {
		if err := s.bucket.Remove(ctx, key); err != nil {
			return fail(err)
		}
	}
	return nil
}
