// Package s3objects keeps the objects of a profile store in a bucket of Amazon S3, or of a
// server that speaks the same protocol.
package s3objects

import (
	"context"
	"errors"
	"io/fs"

	"leasehold/internal/s3bucket"
	"leasehold/launcher/snapshots"
)

// Objects are the objects of a bucket. Versions are etags.
type Objects struct{ bucket *s3bucket.Bucket }

var _ snapshots.Objects = (*Objects)(nil)

// Open returns the objects of a bucket. It does not ask the server; Check does. It finds the
// credentials where the AWS tools find theirs (s3bucket.Open).
func Open(cfg s3bucket.Config) (*Objects, error) {
	bucket, err := s3bucket.Open("profile store", cfg)
	if err != nil {
		return nil, err
	}
	return &Objects{bucket}, nil
}

// Close closes idle connections.
func (o *Objects) Close() { o.bucket.Close() }

// Check finds out whether objects can be stored. It returns s3bucket.ErrUnfit if a person has
// to change something, and another error if the server cannot be reached now.
func (o *Objects) Check(ctx context.Context) error {
	return o.bucket.Check(ctx, "leasehold-conditions")
}

// Get implements snapshots.Objects.
func (o *Objects) Get(ctx context.Context, key string) (content []byte, version string, err error) {
	content, version, err = o.bucket.Read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		err = snapshots.ErrNoObject
	}
	return content, version, err
}

// Put implements snapshots.Objects.
func (o *Objects) Put(ctx context.Context, key string, content []byte, version string) error {
	err := o.bucket.Write(ctx, key, content, version)
	if s3bucket.IsRefused(err) || version != "" && s3bucket.IsMissing(err) {
		return snapshots.ErrOtherVersion
	}
	return err
}

// Delete implements snapshots.Objects.
func (o *Objects) Delete(ctx context.Context, key string) error { return o.bucket.Remove(ctx, key) }

// List implements snapshots.Objects.
func (o *Objects) List(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	for key, err := range o.bucket.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Folders implements snapshots.Objects.
func (o *Objects) Folders(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for name, err := range o.bucket.Folders(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
