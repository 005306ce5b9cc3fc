package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/internal/objects"
	"leasehold/lease"
)

// head is the only object of a profile that is ever replaced: the list of its snapshots, oldest
// first, with the highest token under which it was written. Everything else is chunks, and a
// chunk that no snapshot of the list names does not count.
type head struct {
	Format    int         `json:"format"`
	ProfileID string      `json:"profile_id"`
	Token     lease.Token `json:"lease_token"`
	Snapshots []entry     `json:"snapshots"`
	// Doubted says that damage was found in what is stored: the next snapshot reuses none of
	// it.
	Doubted bool `json:"doubted,omitempty"`

	version string // of the object; empty: there is none
}

// entry is one snapshot of the list, with the chunks of its manifest.
type entry struct {
	Snapshot
	Manifest []Chunk `json:"manifest"`
}

// headName is the name of the head in the profile's folder, and the name under which it is
// encrypted.
const headName = "head"

// MaxSnapshots bounds the number of a profile's snapshots, so that the list fits into one
// object.
const MaxSnapshots = 1000

// newest is the newest snapshot; nil if there is none.
func (h *head) newest() *entry {
	if len(h.Snapshots) == 0 {
		return nil
	}
	return &h.Snapshots[len(h.Snapshots)-1]
}

// find returns a snapshot of the list. The error is ErrNoSnapshot.
func (h *head) find(snapshotID string) (*entry, error) {
	i := slices.IndexFunc(h.Snapshots, func(e entry) bool { return e.ID == snapshotID })
	if i < 0 {
		return nil, noSnapshot(h.ProfileID, snapshotID)
	}
	return &h.Snapshots[i], nil
}

func noSnapshot(profileID, snapshotID string) error {
	return fmt.Errorf("profile %s: snapshot %.80q: %w", profileID, snapshotID, ErrNoSnapshot)
}

// may returns a StaleTokenError if a holder with a higher token has written the list.
func (h *head) may(token lease.Token) error {
	if token < h.Token {
		return &StaleTokenError{ProfileID: h.ProfileID, Token: token, Current: h.Token}
	}
	return nil
}

// decodeHead reads a list, and checks that it belongs to the profile.
func decodeHead(profileID string, raw []byte) (*head, error) {
	h := &head{}
	if err := decodeJSON(raw, h); err != nil {
		return nil, err
	}
	if h.ProfileID != profileID || len(h.Snapshots) > MaxSnapshots {
		return nil, fmt.Errorf("%w: the list of profile %.80q with %d snapshots", ErrDamaged, h.ProfileID, len(h.Snapshots))
	}
	for _, e := range h.Snapshots {
		err := e.check()
		if err == nil && (e.ProfileID != profileID || e.Token > h.Token || len(e.Manifest) == 0) {
			err = fmt.Errorf("snapshot %s is none of profile %s", e.ID, profileID)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: list: %w", ErrDamaged, err)
		}
	}
	return h, nil
}

// headTime bounds how long the store may take to show a profile's list. It is small, and a person
// may be waiting for it.
const headTime = 20 * time.Second

// head reads a profile's list; it is empty if there is none.
func (s *Store) head(ctx context.Context, c *codec, profileID string) (*head, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, headTime, errNoAnswer)
	defer cancel()
	if err := s.checkKey(ctx); err != nil {
		return nil, answered(ctx, err)
	}
	stored, version, err := s.objects.Get(ctx, c.headKey())
	err = answered(ctx, err)
	if errors.Is(err, objects.ErrNone) {
		return &head{Format: Format, ProfileID: profileID}, nil
	}
	var h *head
	if err == nil {
		var raw []byte
		if raw, err = c.unpack(headName, stored); err == nil {
			h, err = decodeHead(profileID, raw)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("profile %s: list of snapshots: %w", profileID, err)
	}
	h.version = version
	return h, nil
}

// headToChange is head for who writes: a store that was emptied gets its first object again, before it gets
// anything else.
func (s *Store) headToChange(ctx context.Context, c *codec, profileID string) (*head, error) {
	h, err := s.head(ctx, c, profileID)
	if err == nil && h.version == "" {
		err = s.Check(ctx)
	}
	return h, err
}

// errNoAnswer says that the store did not show a list in headTime.
var errNoAnswer = fmt.Errorf("the profile store did not answer within %s: try again when it can be reached", headTime)

// answered is an error of the store, or errNoAnswer if that is why.
func answered(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, objects.ErrNone) && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}

// putHead replaces the list that was read. The error is objects.ErrOtherVersion if somebody else has
// replaced it.
func (s *Store) putHead(ctx context.Context, c *codec, h *head) error {
	raw, err := json.Marshal(h)
	if err == nil {
		err = s.objects.Put(ctx, c.headKey(), c.pack(headName, raw), h.version)
	}
	if err != nil {
		return fmt.Errorf("profile %s: list of snapshots: %w", h.ProfileID, err)
	}
	return nil
}

// doubt makes the profile's next snapshot, whoever makes it, store all its content again,
// because damage was found in snapshots. It returns those of them that the list no longer has: their
// chunks are collected, which is no damage. If this cannot be noted, the damage will be found again.
func (s *Store) doubt(ctx context.Context, c *codec, profileID string, snapshotIDs ...string) (gone []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doubtTime)
	defer cancel()
	_ = s.change(ctx, c, profileID, func(h *head) (bool, error) {
		gone = slices.DeleteFunc(slices.Clone(snapshotIDs), func(snapshotID string) bool {
			_, err := h.find(snapshotID)
			return err == nil
		})
		before := h.Doubted
		h.Doubted = before || len(gone) < len(snapshotIDs)
		return h.Doubted != before, nil
	})
	return gone
}

const doubtTime = 10 * time.Second

// maxTries is how often a change of the list is tried if others change it at the same time.
const maxTries = 10

// change makes a change of a profile's list, and tries again if somebody else was first. The
// function change returns false if there is nothing to do.
func (s *Store) change(ctx context.Context, c *codec, profileID string, change func(*head) (bool, error)) error {
	var err error
	for range maxTries {
		var h *head
		if h, err = s.headToChange(ctx, c, profileID); err != nil {
			return err
		}
		changed, err2 := change(h)
		if err2 != nil || !changed {
			return err2
		}
		if err = s.putHead(ctx, c, h); !errors.Is(err, objects.ErrOtherVersion) {
			return err
		}
	}
	return err
}

const profilesKey = "profiles/"

func (c *codec) headKey() string { return profilesKey + c.profile + "/" + headName }

func (c *codec) chunkKey(chunk Chunk) string { return c.chunksKey() + chunk.key() }

func (c *codec) chunksKey() string { return profilesKey + c.profile + "/chunks/" }
