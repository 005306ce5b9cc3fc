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

// Retention says which snapshots of a profile are kept.
type Retention struct {
	// Keep is how many of the newest are kept; zero: all. Of those with the same token, the
	// newest takes the place of the others. The list always has room for one more, for which
	// the oldest leave.
	Keep int
	// KeepFor is the greatest age of a snapshot; zero: no limit.
	KeepFor time.Duration
	// Also are the ids of further snapshots that are kept, such as the one that the profile's
	// record names.
	Also []string
}

// stays tells whether a snapshot is kept. later are those that are newer, the oldest first.
func (r Retention) stays(s Snapshot, later []entry, now time.Time) bool {
	newer := len(slices.CompactFunc(slices.Clone(later), func(a, b entry) bool { return a.Token == b.Token }))
	switch {
	case newer == 0, slices.Contains(r.Also, s.ID):
		return true
	case r.Keep > 0 && (newer >= r.Keep || later[0].Token == s.Token):
		return false
	}
	return r.KeepFor == 0 || now.Sub(s.CreatedAt) <= r.KeepFor
}

// Retain removes the snapshots that need not be kept, never the newest, and
// then the chunks that no snapshot has any more. token is the caller's: it is the last
// holder of the profile. If there is a later one, the error is a StaleTokenError, and nothing
// was removed. Retain returns the ids of the snapshots that it removed.
func (s *Store) Retain(ctx context.Context, profileID string, token lease.Token, r Retention, now time.Time) (removed []string, err error) {
	c := s.key.of(profileID)
	err = s.change(ctx, c, profileID, func(h *head) (bool, error) {
		removed = nil
		if err := h.may(token); err != nil {
			return false, err
		}
		var stay []entry
		for i, e := range h.Snapshots {
			if r.stays(e.Snapshot, h.Snapshots[i+1:], now) {
				stay = append(stay, e)
			} else {
				removed = append(removed, e.ID)
			}
		}
		for i := 0; len(stay) >= s.Most && i < len(stay)-1; {
			if slices.Contains(r.Also, stay[i].ID) {
				i++
				continue
			}
			removed = append(removed, stay[i].ID)
			stay = slices.Delete(stay, i, i+1)
		}
		// After the list is written with the token, nothing that is collected below can belong
		// to a later seal.
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

// Collect removes the chunks that no snapshot of a profile has: those of removed snapshots, and
// those of attempts that were not completed. token is as in Retain.
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
// higher one. This is safe beside others:
//
//   - A holder with a lower token stores chunks that may be deleted here, but its list is refused.
//   - A holder with a higher token stores chunks in the folder of that token, which is not
//     touched. Of older chunks it uses only those of snapshots in the list; if the list that it
//     read had a snapshot that is removed by now, its own list is refused.
//   - The holder with this token does one thing at a time.
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
		if err != nil { // its chunks are not known, so nothing is deleted
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

// ofToken tells whether a chunk's key is in the folder of this token or of a lower one.
func ofToken(key string, token lease.Token) bool {
	folder, name, ok := strings.Cut(key, "/")
	n, err := strconv.ParseUint(folder, 16, 64)
	return ok && err == nil && isName(name) && lease.Token(n) <= token
}
