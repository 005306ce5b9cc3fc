// Package s3store keeps evidence in a bucket of Amazon S3 or of a server that
// speaks the same protocol.
//
// The bucket holds, under the prefix, one object per part and one for the
// manifest, bundles/<evidence id>/<name>, and an empty object
// profiles/<profile id>/<evidence id>, by which a profile's bundles are listed.
// The manifest is written last: without it a bundle is not there. No object is
// written over blindly: each write is conditional on what was there.
package s3store

import (
	"bytes"
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

// Store is an evidence.Store in a bucket. Its methods may be called at the same
// time; each is bounded by its context.
type Store struct {
	cfg       Config
	client    *minio.Client
	transport *http.Transport
	creds     *credentials.Credentials
}

var _ evidence.Store = (*Store)(nil)

// ErrUnfit says that the bucket cannot be used as it is, and that waiting would
// not help: no or wrong credentials, no such bucket, or a server that ignores
// conditions. The error around it says which.
var ErrUnfit = errors.New("the S3 bucket cannot be used")

// answerTimeout bounds the wait for the first byte of an answer, so that a
// server which accepts and says nothing does not use up the caller's time.
const answerTimeout = 30 * time.Second

// Open returns the store. It asks nothing of the server: Check does. The
// credentials are those of the AWS tools: the variables AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, the files ~/.aws/config and ~/.aws/credentials with
// AWS_PROFILE, the role of the machine (not with AWS_EC2_METADATA_DISABLED=true).
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
		// A bundle that cannot be stored now waits in the spool: its next
		// attempt is the retry that counts.
		MaxRetries: 3,
	}
	if cfg.PathStyle {
		options.BucketLookup = minio.BucketLookupPath
	}
	where := cfg.Endpoint
	if where == "" {
		where = amazon
	}
	client, err := minio.New(where, options)
	if err != nil {
		return nil, fmt.Errorf("evidence store %s: %w", cfg, err)
	}
	return &Store{cfg: cfg, client: client, transport: transport, creds: creds}, nil
}

// Close gives idle connections up.
func (s *Store) Close() { s.transport.CloseIdleConnections() }

// formatKey is an object that every store of ours has; writing it is how Check
// learns what it may do.
const formatKey = "leasehold-evidence.json"

// Check finds out what can be known before the first bundle. ErrUnfit where it is
// for a person to mend; another error where the server cannot be reached now.
func (s *Store) Check(ctx context.Context) error {
	value, err := s.creds.GetWithContext(s.client.CredContext())
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return fmt.Errorf("evidence store %s: %w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or write ~/.aws/credentials", s.cfg, ErrUnfit)
	}
	for objects := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: s.cfg.Prefix, MaxKeys: 1}) {
		if objects.Err != nil {
			return s.unfit("list it", objects.Err)
		}
		break
	}
	content := []byte(`{"format":1}` + "\n")
	if _, err := s.write(ctx, formatKey, content, ""); err != nil && !exists(err) {
		return s.unfit("write to it", err)
	}
	switch _, err := s.write(ctx, formatKey, content, ""); {
	case exists(err):
		return nil
	case err != nil:
		return s.unfit("write to it", err)
	}
	return fmt.Errorf("evidence store %s: %w: the server ignores If-None-Match, so that a sealed bundle could be written over: use one that knows conditional writes", s.cfg, ErrUnfit)
}

// unfit tells what is for a person to mend from what passes.
func (s *Store) unfit(what string, err error) error {
	var hint string
	switch response := answer(err); {
	case response.Code == "NoSuchBucket":
		hint = "there is no such bucket: create it first"
	case response.Code == "InvalidAccessKeyId", response.Code == "XAdminUserNotFound": // Amazon's, Versity's
		hint = "the server does not know the access key"
	case response.Code == "SignatureDoesNotMatch":
		hint = "the secret key is not that of the access key"
	case response.Code == "AuthorizationHeaderMalformed":
		hint = "is region= in the URL that of the bucket?"
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden:
		hint = "the credentials may not " + what
	default:
		return fmt.Errorf("evidence store %s: %w", s.cfg, err)
	}
	return fmt.Errorf("evidence store %s: %w: %s: %w", s.cfg, ErrUnfit, hint, err)
}

func answer(err error) minio.ErrorResponse {
	var response minio.ErrorResponse
	errors.As(err, &response)
	return response
}

// exists tells whether a conditional write was refused: what was to be new is
// there, or what was to be replaced has changed.
func exists(err error) bool { return answer(err).StatusCode == http.StatusPreconditionFailed }

func bundle(evidenceID, name string) string { return path.Join("bundles", evidenceID, name) }

func marker(profileID, evidenceID string) string { return path.Join("profiles", profileID, evidenceID) }

// Put implements evidence.Store.
func (s *Store) Put(ctx context.Context, b *evidence.Sealed) error {
	evidenceID := b.Manifest.EvidenceID
	fail := func(what string, err error) error {
		return fmt.Errorf("evidence %s: storing %s: %w", evidenceID, what, err)
	}
	switch raw, err := s.get(ctx, bundle(evidenceID, evidence.ManifestName)); {
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
		if err := s.put(ctx, bundle(evidenceID, p.Name), content); err != nil {
			return fail("part "+p.Name, err)
		}
	}
	if _, err := s.write(ctx, marker(b.Manifest.ProfileID, evidenceID), nil, ""); err != nil && !exists(err) {
		return fail("its place in the list", err)
	}
	_, err := s.write(ctx, bundle(evidenceID, evidence.ManifestName), b.Raw, "")
	if exists(err) {
		raw, getErr := s.get(ctx, bundle(evidenceID, evidence.ManifestName))
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

// put makes a part's object hold the content: it writes a new one, or puts a
// damaged or half-made one right, if nobody else does so at the same time.
func (s *Store) put(ctx context.Context, key string, content []byte) error {
	_, err := s.write(ctx, key, content, "")
	if !exists(err) {
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

// write makes an object where there is none, or replaces the one with this etag.
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
	return s.named(ctx, evidenceID, evidence.ManifestName)
}

// Part implements evidence.Reader.
func (s *Store) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if name == evidence.ManifestName {
		return nil, fmt.Errorf("evidence %.140s: part %s: %w", evidenceID, name, evidence.ErrNotFound)
	}
	content, err := s.named(ctx, evidenceID, name)
	if err != nil {
		return nil, err
	}
	// A part without its manifest is of a bundle that is half stored.
	_, err = s.client.StatObject(ctx, s.cfg.Bucket, s.cfg.Prefix+bundle(evidenceID, evidence.ManifestName), minio.StatObjectOptions{})
	if answer(err).StatusCode == http.StatusNotFound {
		err = evidence.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %s: %w", evidenceID, name, err)
	}
	return content, nil
}

func (s *Store) named(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if !evidence.SafeName(evidenceID) || !evidence.SafeName(name) {
		return nil, fmt.Errorf("evidence %.140q: %.140q: %w", evidenceID, name, evidence.ErrNotFound)
	}
	content, err := s.get(ctx, bundle(evidenceID, name))
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
	defer func() { _ = object.Close() }() // it was only read
	content, err = io.ReadAll(object)
	if err == nil {
		var info minio.ObjectInfo
		info, err = object.Stat()
		etag = info.ETag
	}
	if answer(err).Code == minio.NoSuchKey {
		return nil, "", evidence.ErrNotFound
	}
	return content, etag, err
}

// readers is how many manifests are fetched at the same time for a list.
const readers = 8

// List implements evidence.Reader.
func (s *Store) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	ids, err := s.ids(ctx, profileID)
	if err != nil {
		return nil, fmt.Errorf("evidence of %s: %w", profileID, err)
	}
	found := make([]*evidence.Manifest, len(ids))
	failed := make([]error, len(ids))
	next := make(chan int)
	var running sync.WaitGroup
	for range min(readers, len(ids)) {
		running.Go(func() {
			for i := range next {
				raw, err := s.Manifest(ctx, ids[i])
				switch {
				case errors.Is(err, evidence.ErrNotFound): // half stored, or half removed
				case err != nil:
					failed[i] = err
				default:
					if m, err := evidence.Decode(ids[i], raw); err == nil && (profileID == "" || m.ProfileID == profileID) {
						found[i] = &m
					}
				}
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	running.Wait()
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

// ids lists the bundles that a profile, or where it is empty any, has.
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
	manifest := s.cfg.Prefix + bundle(m.EvidenceID, evidence.ManifestName)
	for object := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{
		Prefix: s.cfg.Prefix + bundle(m.EvidenceID, "") + "/", Recursive: true,
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
	for _, key := range []string{s.cfg.Prefix + marker(m.ProfileID, m.EvidenceID), manifest} {
		if err := s.remove(ctx, key); err != nil {
			return fail(err)
		}
	}
	return nil
}

func (s *Store) remove(ctx context.Context, key string) error {
	err := s.client.RemoveObject(ctx, s.cfg.Bucket, key, minio.RemoveObjectOptions{})
	if answer(err).Code == minio.NoSuchKey {
		return nil
	}
	return err
}
