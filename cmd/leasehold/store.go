package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/evidence/s3store"
	"leasehold/lease"
)

// ownNATS is the store in the NATS that the sidecar itself uses.
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

// String writes the number as it may be given.
func (b byteSize) String() string { return humanize.IBytes(uint64(b)) }

// checkStore refuses a URL of no store. Errors repeat no credential.
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
		_, err := s3store.ParseURL(raw)
		return err
	}
	return errors.New("want nats://, file:///path or s3://bucket/prefix")
}

// storeDir is the path of a file:// URL.
func storeDir(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) {
		return "", errors.New("want file:///path, an absolute one")
	}
	return filepath.Clean(u.Path), nil
}

// openStore opens the store of a checked URL; nc and the number of copies are for
// nats://. close may be called once everything that uses the store has ended.
func openStore(raw string, nc *nats.Conn, copies int) (store evidence.Store, close func() error, err error) {
	nothing := func() error { return nil }
	switch scheme, _, _ := strings.Cut(raw, "://"); scheme {
	case "file":
		dir, err := storeDir(raw)
		if err != nil {
			return nil, nil, err
		}
		d, err := evidence.OpenDirStore(dir)
		return d, nothing, err
	case "s3":
		cfg, err := s3store.ParseURL(raw)
		if err != nil {
			return nil, nil, err
		}
		s, err := s3store.Open(cfg)
		if err != nil {
			return nil, nil, err
		}
		return s, func() error { s.Close(); return nil }, nil
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	return natsstore.New(js, natsstore.Config{Replicas: copies}), nothing, nil
}

// spoolDir is the folder of the spool in the data directory.
const spoolDir = "evidence-spool"

// openArchive opens the spool and the store behind it. A store that is only away
// is no error: evidence waits for it in the spool.
func openArchive(ctx context.Context, c RunConfig, nc *nats.Conn, started *stops, log zerolog.Logger) (*evidence.Archive, error) {
	spool, err := evidence.OpenSpool(filepath.Join(c.DataDir, spoolDir))
	if err != nil {
		return nil, &exitError{exitDataDir, err}
	}
	store, closeStore, err := openStore(c.EvidenceStore, nc, replicas(c, nc))
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--evidence-store: %w", err)}
	}
	started.add("evidence store", closeStore)
	if checked, ok := store.(*s3store.Store); ok {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		switch err := checked.Check(ctx); {
		case errors.Is(err, s3store.ErrUnfit):
			return nil, &exitError{exitUsage, fmt.Errorf("--evidence-store: %w", err)}
		case err != nil:
			log.Warn().Err(err).Msg("the evidence store does not answer: evidence waits in the spool")
		}
	}
	return evidence.NewArchive(spool, store, log), nil
}

// How often retention is applied, and how long one round may take.
const (
	retainEvery   = time.Hour
	retainTimeout = 30 * time.Minute
)

// startRetention removes evidence that is no longer kept, at once and every hour,
// until the returned function is called.
func startRetention(c RunConfig, launcherID string, archive *evidence.Archive, records lease.Store, log zerolog.Logger) func() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	limits := evidence.Retention{MaxAge: c.EvidenceMaxAge, MaxBytes: int64(c.EvidenceMax)}
	go func() {
		defer close(done)
		for {
			retain(ctx, limits, launcherID, archive, records, log)
			select {
			case <-time.After(retainEvery):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

func retain(ctx context.Context, limits evidence.Retention, launcherID string, archive *evidence.Archive, records lease.Store, log zerolog.Logger) {
	round, cancel := context.WithTimeout(ctx, retainTimeout)
	defer cancel()
	done, err := archive.Retain(round, limits, launcherID, func(ctx context.Context) (evidence.Needs, error) {
		entries, err := records.List(ctx)
		return needs(entries), err
	}, time.Now())
	if err != nil && ctx.Err() == nil {
		log.Warn().Err(err).Msg("retention is not complete: it is tried again")
	}
	if done.Removed > 0 {
		log.Info().Int("bundles", done.Removed).Int64("bytes", done.Bytes).Msg("old evidence removed")
	}
}

// needs are the bundles that records name: in recovery and in review because
// somebody reads them, in every other state because the next bundle's chain
// begins there.
func needs(entries []lease.Entry) evidence.Needs {
	n := evidence.Needs{Profiles: map[string]bool{}, Evidence: map[string]bool{}, Sessions: map[string]bool{}}
	for _, e := range entries {
		n.Profiles[e.Record.ProfileID] = true
		if e.Record.EvidenceID != "" {
			n.Evidence[e.Record.EvidenceID] = true
		}
		if hand := e.Record.ByHand; hand != nil && hand.Review != nil {
			n.Evidence[hand.Review.EvidenceID] = true
		}
		if !e.Record.State.Free() {
			for _, sessionID := range e.Record.Sessions() {
				n.Sessions[sessionID] = true
			}
		}
	}
	return n
}
