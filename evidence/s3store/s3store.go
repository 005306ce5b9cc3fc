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

	"leasehold/evidence"
	"leasehold/internal/objects"
	"leasehold/internal/s3bucket"
)

// Store is the store in a bucket. Its methods are safe for concurrent use, and each is bounded by
// its context.
type Store struct {
	evidence.Store
	bucket *s3bucket.Bucket
}

// Open returns the store. It does not ask the server; Check does. It finds the credentials where
// the AWS tools find theirs (see s3bucket.Open).
func Open(cfg s3bucket.Config) (*Store, error) {
	bucket, err := s3bucket.Open("evidence store", cfg)
	if err != nil {
		return nil, err
	}
	return &Store{evidence.NewStore(files{bucket}), bucket}, nil
}

// Close closes idle connections.
func (s *Store) Close() { s.bucket.Close() }

// formatKey is the key of an object that every store has. Check writes it to find out what the
// credentials and the server allow.
const formatKey = "leasehold-evidence.json"

// Check finds out whether bundles can be stored. It returns s3bucket.ErrUnfit if a person has to
// change something, and another error if the server cannot be reached now.
func (s *Store) Check(ctx context.Context) error { return s.bucket.Check(ctx, formatKey) }

type files struct{ bucket *s3bucket.Bucket }

// fileKey is the key, below the prefix, of a bundle's manifest or part.
func fileKey(evidenceID, name string) string { return path.Join("bundles", evidenceID, name) }

// listKey is the key, below the prefix, by which a bundle is listed.
func listKey(m evidence.Manifest) string { return path.Join("profiles", m.ProfileID, m.EvidenceID) }

// Get implements evidence.Source.
func (f files) Get(ctx context.Context, evidenceID, name string) ([]byte, error) {
	content, _, err := f.bucket.Get(ctx, fileKey(evidenceID, name))
	if err == nil && name != evidence.ManifestName {
		// A part without a manifest belongs to a half-stored bundle.
		err = f.bucket.Stat(ctx, fileKey(evidenceID, evidence.ManifestName))
	}
	if errors.Is(err, objects.ErrNone) {
		err = evidence.ErrNotFound
	}
	return content, err
}

// IDs implements evidence.Source.
func (f files) IDs(ctx context.Context, profileID string) ([]string, error) {
	prefix := "profiles/"
	if profileID != "" {
		prefix += profileID + "/"
	}
	keys, err := f.bucket.List(ctx, prefix)
	var ids []string
	for _, key := range keys {
		if evidenceID := path.Base(key); !strings.HasSuffix(key, "/") && evidence.SafeName(evidenceID) {
			ids = append(ids, evidenceID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// upload stores the objects of one bundle.
type upload struct {
	files
	m evidence.Manifest
}

// Begin implements evidence.Files.
func (f files) Begin(_ context.Context, m evidence.Manifest) (evidence.Upload, error) {
	return upload{f, m}, nil
}

// Part implements evidence.Upload. It writes a new object, or replaces a damaged one. It fails if
// somebody else changes the damaged one at the same time.
func (u upload) Part(ctx context.Context, name string, content []byte) error {
	key := fileKey(u.m.EvidenceID, name)
	err := u.bucket.Put(ctx, key, content, "")
	if !errors.Is(err, objects.ErrOtherVersion) {
		return err
	}
	have, version, err := u.bucket.Get(ctx, key)
	if err != nil || bytes.Equal(have, content) {
		return err
	}
	return u.bucket.Put(ctx, key, content, version)
}

// Seal implements evidence.Upload.
func (u upload) Seal(ctx context.Context, manifest []byte) error {
	if err := u.bucket.Put(ctx, listKey(u.m), nil, ""); err != nil && !errors.Is(err, objects.ErrOtherVersion) {
		return fmt.Errorf("its place in the list: %w", err)
	}
	err := u.bucket.Put(ctx, fileKey(u.m.EvidenceID, evidence.ManifestName), manifest, "")
	if errors.Is(err, objects.ErrOtherVersion) {
		return fs.ErrExist
	}
	return err
}

// Remove implements evidence.Files.
func (f files) Remove(ctx context.Context, m evidence.Manifest) error {
	manifest := fileKey(m.EvidenceID, evidence.ManifestName)
	keys, err := f.bucket.List(ctx, fileKey(m.EvidenceID, "")+"/")
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == manifest })
	for _, key := range append(keys, listKey(m), manifest) {
		if err := f.bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
