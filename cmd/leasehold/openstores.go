//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"leasehold/evidence"
	"leasehold/evidence/s3store"
	"leasehold/internal/objects"
	"leasehold/internal/s3bucket"
	"leasehold/launcher/snapshots"
)

// natsDir is the name of the embedded server's folder in the data directory.
const natsDir = "nats"

// spoolDir is the name of the spool's folder in the data directory.
const spoolDir = "evidence-spool"

// openArchive opens the spool and the store of evidence. If the store cannot be reached, that
// is not an error: evidence waits for it in the spool.
func (s *service) openArchive(ctx context.Context) error {
	spool, err := evidence.OpenEncryptedSpool(filepath.Join(s.config.DataDir, spoolDir), s.config.Keys)
	if err != nil {
		return &exitError{exitDataDir, err}
	}
	store, closeStore, err := openStore(s.config.EvidenceStore, s.nats, s.replicas())
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--evidence-store: %w", err)}
	}
	s.stops.add("evidence store", closeStore)
	if checked, ok := store.(*s3store.Store); ok {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		switch err := checked.Check(ctx); {
		case errors.Is(err, s3bucket.ErrUnfit):
			return &exitError{exitUsage, fmt.Errorf("--evidence-store: %w", err)}
		case err != nil:
			s.log.Warn().Err(err).Msg("the evidence store does not answer: evidence waits in the spool")
		}
	}
	s.archive = evidence.NewArchive(spool, store, s.log)
	return nil
}

// openSnapshots opens the profile store, if one is configured. If it cannot be reached, that is
// not an error: snapshots are made later.
func (s *service) openSnapshots(ctx context.Context) error {
	if s.config.ProfileStore == "" {
		return nil
	}
	objects, closeObjects, err := openObjects(s.config.ProfileStore, s.nats, s.replicas())
	if err != nil {
		return exitWith(exitUsage, "--profile-store: %w", err)
	}
	s.stops.add("profile store", closeObjects)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s.snapshots = snapshots.New(objects, s.config.SnapshotKey)
	err = checkSnapshots(ctx, objects, s.snapshots)
	switch {
	case errors.Is(err, s3bucket.ErrUnfit), errors.Is(err, snapshots.ErrWrongKey), errors.Is(err, snapshots.ErrFormat), errors.Is(err, snapshots.ErrDamaged):
		return exitWith(exitUsage, "--profile-store: %w", err)
	case err != nil:
		s.log.Warn().Err(err).Msg("the profile store does not answer: snapshots are made later")
	}
	return nil
}

// checkSnapshots finds out whether snapshots can be stored.
func checkSnapshots(ctx context.Context, o objects.Objects, store *snapshots.Store) error {
	if bucket, ok := o.(*s3bucket.Bucket); ok {
		if err := bucket.Check(ctx, "leasehold-conditions"); err != nil {
			return err
		}
	}
	return store.Check(ctx)
}

// checkProfileStore is doctor's check of the profile store and its key.
func (c RunConfig) checkProfileStore(ctx context.Context) (string, error) {
	if c.ProfileStore == ownNATS {
		return "the key can be read; the store is in the NATS of the sidecar", nil
	}
	if strings.HasPrefix(c.ProfileStore, "file:") { // doctor makes no directory
		dir, err := storeDir(c.ProfileStore)
		if err != nil {
			return "", fmt.Errorf("--profile-store: %w", err)
		}
		said, err := checkDir("--profile-store", dir)
		if _, missing := os.Stat(dir); err != nil || missing != nil {
			return said, err
		}
	}
	objects, closeObjects, err := openObjects(c.ProfileStore, nil, 0)
	if err != nil {
		return "", fmt.Errorf("--profile-store: %w", err)
	}
	err = checkSnapshots(ctx, objects, snapshots.New(objects, c.SnapshotKey))
	if err = errors.Join(err, closeObjects()); err != nil {
		return "", fmt.Errorf("--profile-store: %w", err)
	}
	return c.ProfileStore + " takes snapshots, and was made with this key", nil
}
