package snapshots

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/lease"
)

// Retention says which snapshots of a profile stay.
type Retention struct {
	// Keep is how many of the newest stay; zero: all.
	Keep int
	// KeepFor is how old a snapshot may become; zero: as old as it likes.
	KeepFor time.Duration
	// Also are the ids of others that stay, such as the one that the profile's record
	// names.
	Also []string
}

// stays tells whether a snapshot stays. newer is how many are newer.
func (r Retention) stays(s Snapshot, newer int, now time.Time) bool {
	switch {
	case newer == 0, len(s.Pins) > 0, slices.Contains(r.Also, s.ID):
		return true
	case r.Keep > 0 && newer >= r.Keep:
		return false
	}
	return r.KeepFor == 0 || now.Sub(s.CreatedAt) <= r.KeepFor
}

// Retain removes the snapshots that need not stay, never the newest and never one with a
// pin, and then what no snapshot has any more. token is that of the caller, who is the
// last holder of the profile: the error is a StaleTokenError if there is a later one, and
// nothing was removed. It returns the ids of what was removed.
func (s *Store) Retain(ctx context.Context, profileID string, token lease.Token, r Retention, now time.Time) (removed []string, err error) {
	c := s.key.of(profileID)
	err = s.change(ctx, c, profileID, func(h *head) (bool, error) {
		removed = nil
		if err := h.may(token); err != nil {
			return false, err
		}
		var stay []entry
		for i, e := range h.Snapshots {
			if r.stays(e.Snapshot, len(h.Snapshots)-1-i, now) {
				stay = append(stay, e)
			} else {
				removed = append(removed, e.ID)
			}
		}
		// With the token, what is collected below is nobody's who seals later.
		h.Snapshots, h.Token = stay, token
		return len(removed) > 0, nil
	})
	if err != nil || len(removed) == 0 {
		return nil, err
	}
	if err := s.collect(ctx, c, profileID, token); err != nil {
		return removed, fmt.Errorf("profile %s: collecting what no snapshot has: %w", profileID, err)
	}
	return removed, nil
}

// Collect removes what no snapshot of a profile has: what removed ones had, and what
// attempts left that were not completed. token is as in Retain.
func (s *Store) Collect(ctx context.Context, profileID string, token lease.Token) error {
	c := s.key.of(profileID)
	err := s.Raise(ctx, profileID, token)
	if err == nil {
		err = s.collect(ctx, c, profileID, token)
	}
	if err != nil {
		return fmt.Errorf("profile %s: collecting what no snapshot has: %w", profileID, err)
	}
	return nil
}

// collect deletes chunks that no snapshot of the list names. The list has the token, or a
// higher one. That is safe beside others:
//
//   - One with a lower token stores chunks that may be deleted here, and its list is
//     refused.
//   - One with a higher token stores chunks in the folder of that token, which stays. Of
//     older chunks it uses only those of snapshots that are in the list, and if the list
//     that it read had one that is removed by now, its own is refused.
//   - There is one with this token, and it does one thing at a time.
func (s *Store) collect(ctx context.Context, c *codec, profileID string, token lease.Token) error {
	keys, err := s.objects.List(ctx, c.chunksKey())
	if err != nil {
		return err
	}
	h, err := s.head(ctx, c, profileID)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	read := map[string][]byte{}
	for _, e := range h.Snapshots {
		m, err := s.manifest(ctx, c, &e, read)
		if err != nil { // what it has is not known: nothing is deleted
			return err
		}
		for _, chunk := range append(chunksOf(m), e.Manifest...) {
			used[c.chunkKey(chunk)] = true
		}
	}
	for _, key := range keys {
		if used[key] || !ofToken(strings.TrimPrefix(key, c.chunksKey()), token) {
			continue
		}
		if err := s.objects.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// ofToken tells whether a chunk's key is in the folder of a token up to this one.
func ofToken(key string, token lease.Token) bool {
	folder, name, ok := strings.Cut(key, "/")
	n, err := strconv.ParseUint(folder, 16, 64)
	return ok && err == nil && isName(name) && lease.Token(n) <= token
}
