// Package s3store keeps evidence in a bucket of Amazon S3 or of a server that speaks the
// same protocol.
//
// The bucket has, under the prefix, one object per part and one for the manifest,
// bundles/<evidence id>/<name>, and an empty object profiles/<profile id>/<evidence id>,
// by which a profile's bundles are listed. The manifest is written last: without it
// readers do not see a bundle. Each write is conditional on what was there before, so
// that no object is overwritten by accident.
package s3store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"leasehold/evidence"
)

// Store is an evidence.Store in a bucket. Its methods are safe for concurrent use;
// each is bounded by its context.
type Store struct {
	cfg       Config
	client    *minio.Client
	transport *http.Transport
	creds     *credentials.Credentials
}

var _ evidence.Store = (*Store)(nil)

// ErrUnfit says that the bucket cannot be used as it is, and that waiting would not
// help: the credentials are missing or wrong, there is no such bucket, or the server
// ignores conditions. The error around it says which.
var ErrUnfit = errors.New("the S3 bucket cannot be used")

// answerTimeout bounds the wait for the first byte of an answer, so that a server which
// accepts requests and does not answer does not use up the caller's time.
const answerTimeout = 30 * time.Second

// Open returns the store. It does not ask the server; Check does. The credentials are
// found where the AWS tools find theirs: in the variables AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, in the files ~/.aws/config and ~/.aws/credentials with
// AWS_PROFILE, or in the role of the machine (unless AWS_EC2_METADATA_DISABLED=true).
func Open(cfg Config) (*Store, error) {
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		providers = append(providers, &credentials.IAM{})
	}
	creds := credentials.NewChainCredentials(providers)
	transport, err := minio.DefaultTransport(!cfg.Insecure)
	if err != nil {
		return nil, fmt.Errorf("evidence store %s: %w", cfg, err)
	}
	transport.ResponseHeaderTimeout = answerTimeout
	options := &minio.Options{
		Creds: creds, Secure: !cfg.Insecure, Region: cfg.Region, Transport: transport,
		// A few: a bundle that cannot be stored now waits in the spool, and is
		// tried again from there.
		MaxRetries: 3,
	}
	if cfg.PathStyle {
		options.BucketLookup = minio.BucketLookupPath
	}
	client, err := minio.New(cmp.Or(cfg.Endpoint, amazon), options)
	if err != nil {
		return nil, fmt.Errorf("evidence store %s: %w", cfg, err)
	}
	return &Store{cfg: cfg, client: client, transport: transport, creds: creds}, nil
}

// Close closes idle connections.
func (s *Store) Close() { s.transport.CloseIdleConnections() }

// formatKey is an object that every store has. Check writes it to learn what the
// credentials and the server allow.
const formatKey = "leasehold-evidence.json"

// Check finds out whether bundles can be stored. It returns ErrUnfit for what a person
// has to change, and another error where the server cannot be reached now.
func (s *Store) Check(ctx context.Context) error {
	value, err := s.creds.GetWithContext(s.client.CredContext())
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return fmt.Errorf("evidence store %s: %w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or write ~/.aws/credentials", s.cfg, ErrUnfit)
	}
	for objects := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: s.cfg.Prefix, MaxKeys: 1}) {
		if objects.Err != nil {
			return s.checkError("list it", objects.Err)
		}
		break
	}
	content := []byte(`{"format":1}` + "\n")
	if _, err := s.write(ctx, formatKey, content, ""); err != nil && !isRefused(err) {
		return s.checkError("write to it", err)
	}
	switch _, err := s.write(ctx, formatKey, content, ""); {
	case isRefused(err):
		return nil
	case err != nil:
		return s.checkError("write to it", err)
	}
	return fmt.Errorf("evidence store %s: %w: the server ignores If-None-Match, so that a sealed bundle could be written over: use one that knows conditional writes", s.cfg, ErrUnfit)
}

// checkError returns ErrUnfit with a hint for what a person has to change; an error that
// may pass stays as it is. action is what failed.
func (s *Store) checkError(action string, err error) error {
	var hint string
	switch response := errorResponse(err); {
	case response.Code == "NoSuchBucket":
		hint = "there is no such bucket: create it first"
	case response.Code == "InvalidAccessKeyId", response.Code == "XAdminUserNotFound": // Amazon's, Versity's
		hint = "the server does not know the access key"
	case response.Code == "SignatureDoesNotMatch":
		hint = "the secret key is not that of the access key"
	case response.Code == "AuthorizationHeaderMalformed":
		hint = "is region= in the URL that of the bucket?"
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden:
		hint = "the credentials may not " + action
	default:
		return fmt.Errorf("evidence store %s: %w", s.cfg, err)
	}
	return fmt.Errorf("evidence store %s: %w: %s: %w", s.cfg, ErrUnfit, hint, err)
}

// errorResponse returns the server's answer in an error; zero where there is none.
func errorResponse(err error) minio.ErrorResponse {
	var response minio.ErrorResponse
	errors.As(err, &response)
	return response
}

// isRefused tells whether the condition of a write was not met: what was to be new
// exists, or what was to be replaced has changed.
func isRefused(err error) bool { return errorResponse(err).StatusCode == http.StatusPreconditionFailed }

// fileKey is the key of a bundle's manifest or part, below the prefix.
func fileKey(evidenceID, name string) string { return path.Join("bundles", evidenceID, name) }

// listKey is the key by which a bundle is listed, below the prefix.
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
	for _, p := range b.Manifest.Parts {
		if p.Missing != "" {
			continue
		}
		content, err := b.Part(p.Name)
		if err != nil {
			return err
		}
		if err := s.put(ctx, fileKey(evidenceID, p.Name), content); err != nil {
			return fail("part "+p.Name, err)
		}
	}
	if _, err := s.write(ctx, listKey(b.Manifest.ProfileID, evidenceID), nil, ""); err != nil && !isRefused(err) {
		return fail("its place in the list", err)
	}
	_, err := s.write(ctx, fileKey(evidenceID, evidence.ManifestName), b.Raw, "")
	if isRefused(err) {
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

// put stores a part's content. It writes a new object, or replaces a damaged one; where
// somebody else changes that at the same time it fails.
func (s *Store) put(ctx context.Context, key string, content []byte) error {
	_, err := s.write(ctx, key, content, "")
	if !isRefused(err) {
		return err
	}
	have, etag, err := s.read(ctx, key)
	if err != nil {
		return err
	}
	if bytes.Equal(have, content) {
		return nil
	}
	_, err = s.write(ctx, key, content, etag)
	return err
}

// write creates an object, or with an etag replaces the object that has it. isRefused
// recognizes the error that there is an object already, or another one than with the
// etag.
func (s *Store) write(ctx context.Context, key string, content []byte, etag string) (minio.UploadInfo, error) {
	options := minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
	}
	if etag == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(etag)
	}
	return s.client.PutObject(ctx, s.cfg.Bucket, s.cfg.Prefix+key, bytes.NewReader(content), int64(len(content)), options)
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
	// A part without a manifest is one of a half-stored bundle.
	_, err = s.client.StatObject(ctx, s.cfg.Bucket, s.cfg.Prefix+fileKey(evidenceID, evidence.ManifestName), minio.StatObjectOptions{})
	if errorResponse(err).StatusCode == http.StatusNotFound {
		err = evidence.ErrNotFound
	}
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
	object, err := s.client.GetObject(ctx, s.cfg.Bucket, s.cfg.Prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = object.Close() }() // what was only read closes without error
	content, err = io.ReadAll(object)
	if err == nil {
		var info minio.ObjectInfo
		info, err = object.Stat()
		etag = info.ETag
	}
	if errorResponse(err).Code == minio.NoSuchKey {
		return nil, "", evidence.ErrNotFound
	}
	return content, etag, err
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

// listed returns the manifest of a bundle for a list; nil where the bundle is not one of
// the profile's, or cannot be decoded, or is half stored or half removed.
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
		return nil, nil //nolint:nilerr // Verify finds it
	}
	return &m, nil
}

// ids lists the bundles of a profile; with an empty profile id, those of all profiles.
func (s *Store) ids(ctx context.Context, profileID string) ([]string, error) {
	if profileID != "" && !evidence.SafeName(profileID) {
		return nil, nil
	}
	prefix := s.cfg.Prefix + "profiles/"
	if profileID != "" {
		prefix += profileID + "/"
	}
	var ids []string
	for object := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, object.Err
		}
		if evidenceID := path.Base(object.Key); !strings.HasSuffix(object.Key, "/") && evidence.SafeName(evidenceID) {
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
	manifest := s.cfg.Prefix + fileKey(m.EvidenceID, evidence.ManifestName)
	for object := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{
		Prefix: s.cfg.Prefix + fileKey(m.EvidenceID, "") + "/", Recursive: true,
	}) {
		if object.Err != nil {
			return fail(object.Err)
		}
		if object.Key != manifest {
			if err := s.remove(ctx, object.Key); err != nil {
				return fail(err)
			}
		}
	}
	for _, key := range []string{s.cfg.Prefix + listKey(m.ProfileID, m.EvidenceID), manifest} {
		if err := s.remove(ctx, key); err != nil {
			return fail(err)
		}
	}
	return nil
}

func (s *Store) remove(ctx context.Context, key string) error {
	err := s.client.RemoveObject(ctx, s.cfg.Bucket, key, minio.RemoveObjectOptions{})
	if errorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return err
}
