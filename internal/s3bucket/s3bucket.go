// Package s3bucket reads and writes the objects of a bucket of Amazon S3, or of a server
// that speaks the same protocol. Each write is conditional on what was there before, so
// that no object is overwritten by accident.
package s3bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"leasehold/internal/objects"
)

// Bucket is a bucket, or the part of one below a prefix. Its methods are safe for
// concurrent use; each is bounded by its context.
type Bucket struct {
	// what names the bucket in errors.
	what      string
	cfg       Config
	client    *minio.Client
	transport *http.Transport
	creds     *credentials.Credentials
}

var _ objects.Objects = (*Bucket)(nil)

// ErrUnfit says that the bucket cannot be used as it is, and that waiting would not help: the
// credentials are missing or wrong, there is no such bucket, or the server ignores conditions.
// The error that wraps it says which.
var ErrUnfit = errors.New("the S3 bucket cannot be used")

// answerTimeout bounds the wait for the first byte of an answer, so that a server which accepts
// requests but does not answer does not use up the caller's time.
const answerTimeout = 30 * time.Second

// Open returns the bucket, which errors call what, such as "evidence store". It does not ask
// the server; Check does. It finds the credentials where the AWS tools find theirs: in the
// variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the files ~/.aws/config and
// ~/.aws/credentials with AWS_PROFILE, or in the role of the machine (unless
// AWS_EC2_METADATA_DISABLED=true).
func Open(what string, cfg Config) (*Bucket, error) {
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		providers = append(providers, &credentials.IAM{})
	}
	creds := credentials.NewChainCredentials(providers)
	transport, err := minio.DefaultTransport(!cfg.Insecure)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, cfg, err)
	}
	transport.ResponseHeaderTimeout = answerTimeout
	options := &minio.Options{
		Creds: creds, Secure: !cfg.Insecure, Region: cfg.Region, Transport: transport,
		// Only a few: what cannot be stored now waits on this host's disk, and is tried again
		// from there.
		MaxRetries: 3,
	}
	if cfg.PathStyle {
		options.BucketLookup = minio.BucketLookupPath
	}
	client, err := minio.New(cmp.Or(cfg.Endpoint, amazon), options)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, cfg, err)
	}
	return &Bucket{what: what, cfg: cfg, client: client, transport: transport, creds: creds}, nil
}

// String names the bucket in errors and logs, such as "evidence store s3://name/prefix/".
func (b *Bucket) String() string { return b.what + " " + b.cfg.String() }

// Close closes idle connections.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// Check finds out whether objects can be stored, by writing one under formatKey. It returns
// ErrUnfit if a person has to change something, and another error if the server cannot be
// reached now.
func (b *Bucket) Check(ctx context.Context, formatKey string) error {
	value, err := b.creds.GetWithContext(b.client.CredContext())
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return fmt.Errorf("%s: %w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or write ~/.aws/credentials", b, ErrUnfit)
	}
	for listed := range b.client.ListObjectsIter(ctx, b.cfg.Bucket, minio.ListObjectsOptions{Prefix: b.cfg.Prefix, MaxKeys: 1}) {
		if listed.Err != nil {
			return b.checkError("list it", listed.Err)
		}
		break
	}
	content := []byte(`{"format":1}` + "\n")
	if err := b.Put(ctx, formatKey, content, ""); err != nil && !errors.Is(err, objects.ErrOtherVersion) {
		return b.checkError("write to it", err)
	}
	for _, condition := range []struct{ header, version, why string }{
		{"If-None-Match", "", "what was sealed could be written over"},
		{"If-Match", "00000000000000000000000000000000", "what somebody else wrote meanwhile could be lost"},
	} {
		switch err := b.Put(ctx, formatKey, content, condition.version); {
		case err == nil:
			return fmt.Errorf("%s: %w: the server ignores %s, so that %s: use one that knows conditional writes", b, ErrUnfit, condition.header, condition.why)
		case !errors.Is(err, objects.ErrOtherVersion):
			return b.checkError("write to it", err)
		}
	}
	return nil
}

// checkError returns ErrUnfit with a hint if a person has to change something; an error that
// may pass stays as it is. action is what failed.
func (b *Bucket) checkError(action string, err error) error {
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
		return fmt.Errorf("%s: %w", b, err)
	}
	return fmt.Errorf("%s: %w: %s: %w", b, ErrUnfit, hint, err)
}

// errorResponse returns the server's answer in an error; zero if there is none.
func errorResponse(err error) minio.ErrorResponse {
	var response minio.ErrorResponse
	errors.As(err, &response)
	return response
}

// Get implements objects.Objects. The version is the etag.
func (b *Bucket) Get(ctx context.Context, key string) (content []byte, version string, err error) {
	object, err := b.client.GetObject(ctx, b.cfg.Bucket, b.cfg.Prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = object.Close() }() // an object that was only read closes without an error
	content, err = io.ReadAll(object)
	if err == nil {
		var info minio.ObjectInfo
		info, err = object.Stat()
		version = info.ETag
	}
	if errorResponse(err).Code == minio.NoSuchKey {
		return nil, "", objects.ErrNone
	}
	return content, version, err
}

// Stat returns nil for an object that exists, and objects.ErrNone for one that does not.
func (b *Bucket) Stat(ctx context.Context, key string) error {
	_, err := b.client.StatObject(ctx, b.cfg.Bucket, b.cfg.Prefix+key, minio.StatObjectOptions{})
	if errorResponse(err).StatusCode == http.StatusNotFound {
		return objects.ErrNone
	}
	return err
}

// Put implements objects.Objects.
func (b *Bucket) Put(ctx context.Context, key string, content []byte, version string) error {
	options := minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
	}
	if version == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(version)
	}
	_, err := b.client.PutObject(ctx, b.cfg.Bucket, b.cfg.Prefix+key, bytes.NewReader(content), int64(len(content)), options)
	response := errorResponse(err)
	switch {
	case response.StatusCode == http.StatusPreconditionFailed,
		response.Code == "ConditionalRequestConflict", // Amazon's answer, a 409, if two conditional writes of one key collide
		response.Code == minio.NoSuchKey && version != "":
		return objects.ErrOtherVersion
	case response.StatusCode == 0 && err != nil && b.changed(ctx, key, version):
		return objects.ErrOtherVersion
	}
	return err
}

// changed finds out, after a write that got no answer, whether its condition does not hold. A server
// may refuse a write without reading the content, and close the connection: who still sends sees an
// error of the network instead of the refusal, however often it tries. version is as in Put. It
// returns false if the server does not answer this either.
func (b *Bucket) changed(ctx context.Context, key, version string) bool {
	info, err := b.client.StatObject(ctx, b.cfg.Bucket, b.cfg.Prefix+key, minio.StatObjectOptions{})
	if version != "" && errorResponse(err).StatusCode == http.StatusNotFound {
		return true
	}
	return err == nil && info.ETag != version
}

// Delete implements objects.Objects.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := b.client.RemoveObject(ctx, b.cfg.Bucket, b.cfg.Prefix+key, minio.RemoveObjectOptions{})
	if errorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return err
}

// List implements objects.Objects.
func (b *Bucket) List(ctx context.Context, prefix string) ([]string, error) {
	return b.list(ctx, prefix, true, func(key string) (string, bool) { return strings.TrimPrefix(key, b.cfg.Prefix), true })
}

// Folders implements objects.Objects.
func (b *Bucket) Folders(ctx context.Context, prefix string) ([]string, error) {
	return b.list(ctx, prefix, false, func(key string) (string, bool) {
		return strings.CutSuffix(strings.TrimPrefix(key, b.cfg.Prefix+prefix), "/")
	})
}

// list returns what name makes of the keys that begin with a prefix: of all of them, or of those
// directly below it. It leaves out those for which name returns false.
func (b *Bucket) list(ctx context.Context, prefix string, all bool, name func(key string) (string, bool)) (names []string, err error) {
	for object := range b.client.ListObjectsIter(ctx, b.cfg.Bucket, minio.ListObjectsOptions{Prefix: b.cfg.Prefix + prefix, Recursive: all}) {
		if object.Err != nil {
			return nil, object.Err
		}
		if found, wanted := name(object.Key); wanted {
			names = append(names, found)
		}
	}
	return names, nil
}
