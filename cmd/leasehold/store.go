package main

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/evidence/s3store"
	"leasehold/internal/s3bucket"
)

// ownNATS is the URL of the evidence store in the NATS that the sidecar itself uses.
const ownNATS = "nats://"

// byteSize is a number of bytes, written 500000, 20GiB or 1.5TB.
type byteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%.40q: want a size such as 20GiB", text)
	}
	*b = byteSize(n)
	return nil
}

// String is the number in the form in which it may be given.
func (b byteSize) String() string { return humanize.IBytes(uint64(b)) }

// errStoreURL refuses a URL with another scheme than those of the stores.
var errStoreURL = errors.New("want nats://, file:///path or s3://bucket/prefix")

// checkStore refuses what is not the URL of a store. The error does not repeat
// credentials.
func checkStore(raw string) error {
	scheme, rest, _ := strings.Cut(raw, "://")
	switch scheme {
	case "nats":
		if rest != "" {
			return errors.New("nats:// is the NATS of this sidecar, which --nats-url names: want nats:// alone")
		}
		return nil
	case "file":
		_, err := storeDir(raw)
		return err
	case "s3":
		_, err := s3bucket.ParseURL(raw)
		return err
	}
	return errStoreURL
}

// storeDir is the path of a file:// URL.
func storeDir(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) {
		return "", errors.New("want file:///path, an absolute one")
	}
	return filepath.Clean(u.Path), nil
}

// opener opens one of the three kinds of stores, for evidence or for profiles.
type opener[T any] struct {
	dir    func(path string) (T, error)
	bucket func(s3bucket.Config) (T, func(), error)
	stream func(jetstream.JetStream) T
}

// open opens the store at a URL that checkStore has accepted. nc is for nats://. The caller calls close
// when nothing uses the store any more.
func (o opener[T]) open(raw string, nc *nats.Conn) (store T, close func() error, err error) {
	nothing := func() error { return nil }
	switch scheme, _, _ := strings.Cut(raw, "://"); scheme {
	case "file":
		dir, err := storeDir(raw)
		if err != nil {
			return store, nil, err
		}
		store, err = o.dir(dir)
		return store, nothing, err
	case "s3":
		cfg, err := s3bucket.ParseURL(raw)
		if err != nil {
			return store, nil, err
		}
		store, release, err := o.bucket(cfg)
		return store, func() error { release(); return nil }, err
	case "nats":
		js, err := jetstream.New(nc)
		if err != nil {
			return store, nil, err
		}
		return o.stream(js), nothing, nil
	}
	return store, nil, errStoreURL
}

// openStore opens the store of evidence. The number of copies is for nats://.
func openStore(raw string, nc *nats.Conn, copies int) (evidence.Store, func() error, error) {
	return opener[evidence.Store]{
		dir: func(path string) (evidence.Store, error) { return evidence.OpenDirStore(path) },
		bucket: func(cfg s3bucket.Config) (evidence.Store, func(), error) {
			s, err := s3store.Open(cfg)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
		stream: func(js jetstream.JetStream) evidence.Store {
			return natsstore.New(js, natsstore.Config{Replicas: copies})
		},
	}.open(raw, nc)
}
