// Package snapshots keeps sealed copies of profiles at rest in a store that several hosts
// share, so that a profile can go on elsewhere when its host is gone.
//
// A profile is read while nobody uses it (Read), and then sealed (Seal): its files are cut into
// chunks by their content; the chunks that the store does not have yet are compressed,
// encrypted and sent; and finally one conditional write of the profile's list makes the
// snapshot exist. The list carries the highest fencing token with which it was written, and a
// holder with a lower token is refused: by Seal itself if it reads the list in time, and
// otherwise by the store's conditional write.
//
// Everything is encrypted and authenticated with a key that is derived from the store's key and
// the profile's id. The store learns how many profiles and chunks there are, how large the
// chunks are when compressed, the tokens, and when something is written. It can withhold data,
// or show an older list. It cannot change anything, nor pass one profile's content off as
// another's.
package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"leasehold/internal/chromever"
	"leasehold/internal/objects"
	"leasehold/lease"
)

// Errors that callers distinguish.
var (
	// ErrNoSnapshot says that the profile has no such snapshot, or none at all.
	ErrNoSnapshot = errors.New("there is no such snapshot")
	// ErrWrongKey says that the store was written with another key.
	ErrWrongKey = errors.New("the key is not the one that the profile store was made with")
	// ErrDamaged says that what is stored is not what was stored: it was changed, cut off,
	// or taken from another profile.
	ErrDamaged = errors.New("the profile store is damaged")
	// ErrFormat says that a later version of leasehold wrote it.
	ErrFormat = errors.New("a later version of leasehold wrote this")
	// ErrChanged says that the profile was written to while it was being read, so that no
	// snapshot can be made.
	ErrChanged = errors.New("the profile changed while it was read")
	// ErrStale says that what this host knows about the last snapshot is no longer true: the
	// next Read reads all files.
	ErrStale = errors.New("what was known of the last snapshot is out of date")
	// ErrIncomplete says that the list names a chunk that is not there.
	ErrIncomplete = errors.New("a part of the snapshot is missing from the profile store")
	// ErrFull says that the profile's list takes no further snapshot: Retain makes room.
	ErrFull = errors.New("the profile's list of snapshots is full")
)

// StaleTokenError says that a later holder of the profile has written its list.
type StaleTokenError struct {
	ProfileID      string
	Token, Current lease.Token
}

// Error implements error.
func (e *StaleTokenError) Error() string {
	return fmt.Sprintf("profile %s: snapshot refused: lease token %d is superseded by %d", e.ProfileID, e.Token, e.Current)
}

// NewerChromeError says that a snapshot was made by a newer Chrome than the one here.
type NewerChromeError struct {
	SnapshotID  string
	Their, Ours string
}

// Error implements error.
func (e *NewerChromeError) Error() string {
	return fmt.Sprintf("snapshot %s was made by Chrome %s, and this host has Chrome %s, which cannot read a newer one's profile: upgrade the Chrome of this host",
		e.SnapshotID, e.Their, e.Ours)
}

// Store keeps snapshots. Its methods are safe for concurrent use, even by several launchers.
type Store struct {
	// Most is how many snapshots a profile's list takes. It is MaxSnapshots, and a test may lower it.
	Most int

	objects objects.Objects
	key     *Key

	mu  sync.Mutex
	fit bool // the key was checked and is the store's
}

// New returns the store whose objects are encrypted with the key. It does not access the store;
// Check does.
func New(o objects.Objects, key *Key) *Store { return &Store{Most: MaxSnapshots, objects: o, key: key} }

// Through returns the store whose objects are what wrap makes of this one's.
func (s *Store) Through(wrap func(objects.Objects) objects.Objects) *Store {
	return New(wrap(s.objects), s.key)
}

// formatKey is the object that says how the store is written, and with which key.
const formatKey = "leasehold-profiles"

type format struct {
	Format int    `json:"format"`
	KeyID  string `json:"key_id"`
}

// Check finds out whether snapshots can be stored and read. In an empty store it writes the
// first object. The error is ErrWrongKey or ErrFormat if the store belongs to somebody else.
func (s *Store) Check(ctx context.Context) error {
	stored, _, err := s.objects.Get(ctx, formatKey)
	if errors.Is(err, objects.ErrNone) {
		var b []byte
		if b, err = json.Marshal(format{Format, s.key.id()}); err == nil {
			err = s.objects.Put(ctx, formatKey, b, "")
		}
		if err == nil || errors.Is(err, objects.ErrOtherVersion) {
			stored, _, err = s.objects.Get(ctx, formatKey)
		}
	}
	return s.checkFormat(stored, err)
}

// checkFormat returns what the first object of a store says about it, or the error with which
// it was read.
func (s *Store) checkFormat(stored []byte, err error) error {
	if err != nil {
		return fmt.Errorf("profile store: %w", err)
	}
	var f format
	switch err := json.Unmarshal(stored, &f); {
	case err != nil:
		return fmt.Errorf("profile store: %w: object %s: %w", ErrDamaged, formatKey, err)
	case f.Format != Format:
		return fmt.Errorf("profile store: %w: format %d, want %d", ErrFormat, f.Format, Format)
	case f.KeyID != s.key.id():
		return fmt.Errorf("profile store: %w: it was made with key %.40s, and this is key %s", ErrWrongKey, f.KeyID, s.key.id())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fit = true
	return nil
}

// checkKey makes Check once. Without it, a store would look empty under a wrong key.
func (s *Store) checkKey(ctx context.Context) error {
	s.mu.Lock()
	fit := s.fit
	s.mu.Unlock()
	if fit {
		return nil
	}
	return s.Check(ctx)
}

// List returns a profile's snapshots, the newest first.
func (s *Store) List(ctx context.Context, profileID string) ([]Snapshot, error) {
	h, err := s.head(ctx, s.key.of(profileID), profileID)
	if err != nil {
		return nil, err
	}
	list := make([]Snapshot, 0, len(h.Snapshots))
	for _, e := range slices.Backward(h.Snapshots) {
		list = append(list, e.Snapshot)
	}
	return list, nil
}

// Token returns the highest token under which a profile's list was written; zero if it has none.
func (s *Store) Token(ctx context.Context, profileID string) (lease.Token, error) {
	h, err := s.head(ctx, s.key.of(profileID), profileID)
	if err != nil {
		return 0, err
	}
	return h.Token, nil
}

// Manifest returns the content of a snapshot.
func (s *Store) Manifest(ctx context.Context, profileID, snapshotID string) (Manifest, error) {
	c := s.key.of(profileID)
	h, err := s.head(ctx, c, profileID)
	if err != nil {
		return Manifest{}, err
	}
	e, err := h.find(snapshotID)
	if err != nil {
		return Manifest{}, err
	}
	return s.manifest(ctx, c, e, nil)
}

// manifest reads the manifest of a snapshot of the list. read has chunks that were read
// already, and gets those that are read now; it may be nil.
func (s *Store) manifest(ctx context.Context, c *codec, e *entry, read map[string][]byte) (Manifest, error) {
	fail := func(err error) (Manifest, error) {
		return Manifest{}, fmt.Errorf("profile %s: snapshot %s: %w", e.ProfileID, e.ID, err)
	}
	var raw []byte
	for _, chunk := range e.Manifest {
		piece, known := read[chunk.Name]
		if !known {
			var err error
			if piece, err = s.chunk(ctx, c, chunk); err != nil {
				return fail(err)
			}
			if read != nil {
				read[chunk.Name] = piece
			}
		}
		if raw = append(raw, piece...); len(raw) > maxManifest {
			return fail(fmt.Errorf("%w: the manifest is larger than %d bytes", ErrDamaged, maxManifest))
		}
	}
	m, err := DecodeManifest(raw)
	if err == nil && (m.ID != e.ID || m.ProfileID != e.ProfileID || m.Token != e.Token) {
		err = fmt.Errorf("%w: the manifest is that of %s of profile %s", ErrDamaged, m.ID, m.ProfileID)
	}
	if err != nil {
		return fail(err)
	}
	m.Snapshot = e.Snapshot // the list's entry has the number of bytes stored
	return m, nil
}

// chunk reads a chunk. The error is ErrIncomplete or ErrDamaged.
func (s *Store) chunk(ctx context.Context, c *codec, chunk Chunk) ([]byte, error) {
	stored, _, err := s.objects.Get(ctx, c.chunkKey(chunk))
	if errors.Is(err, objects.ErrNone) {
		return nil, fmt.Errorf("%w: chunk %s", ErrIncomplete, chunk.Name)
	}
	if err == nil {
		stored, err = c.open(chunk, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("chunk %s: %w", chunk.Name, err)
	}
	return stored, nil
}

// Raise says that the profile is now held with this token: from now on a snapshot of a holder
// with a lower one is refused, even before the new holder has made one. The error is a
// StaleTokenError if a later holder was first.
func (s *Store) Raise(ctx context.Context, profileID string, token lease.Token) error {
	return s.change(ctx, s.key.of(profileID), profileID, func(h *head) (bool, error) {
		if err := h.may(token); err != nil || h.Token == token {
			return false, err
		}
		h.Token = token
		return true, nil
	})
}

// CheckChrome returns a NewerChromeError if a snapshot was made by a newer Chrome than ours, whose
// version is one such as 156.0.8078.79. A version that cannot be parsed is no reason to refuse.
func CheckChrome(of Snapshot, ours string) error {
	if chromever.Older(ours, of.ChromeVersion) {
		return &NewerChromeError{SnapshotID: of.ID, Their: of.ChromeVersion, Ours: ours}
	}
	return nil
}
