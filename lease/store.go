package lease

import (
	"context"
	"errors"
	"fmt"
)

// Entry is a record with the revision of the write that stored it.
type Entry struct {
	Record   Record
	Revision uint64
}

// Store keeps one record per profile and one presence per launcher, and changes
// them by compare-and-swap. Every call is bounded by its context, or by some
// seconds where that has no deadline.
type Store interface {
	// Get returns what the store last said of the profile. It is a hint: only
	// a successful Swap proves that it was current. ErrNotFound,
	// ErrUnavailable.
	Get(ctx context.Context, profile string) (Entry, error)
	// List returns every record, in no order; hints, as with Get.
	List(ctx context.Context) ([]Entry, error)
	// Swap stores next over the revision of prev (zero: the profile has no
	// record yet) and returns it as stored. The events in next's outbox are
	// published, in order. A write that got no answer is settled before Swap
	// returns, or reported as ErrUnavailable and then has to be treated as
	// either. ErrMoved with the current entry where known.
	Swap(ctx context.Context, prev Entry, next Record) (Entry, error)
	// Presence returns what the store last said of the launcher, as Get does;
	// the zero entry where it has none. ErrUnavailable.
	Presence(ctx context.Context, launcher string) (PresenceEntry, error)
	// Presences returns every presence, in no order.
	Presences(ctx context.Context) ([]PresenceEntry, error)
	// SwapPresence stores next over the revision of prev, as Swap does.
	// *PresenceMovedError with the current entry.
	SwapPresence(ctx context.Context, prev PresenceEntry, next Presence) (PresenceEntry, error)
	// Watch calls see with what it sees, in order, until ctx ends: every record
	// once, then every change. It never says that nothing happened: a watch can
	// be blind for seconds, and may miss records between two that it sees.
	Watch(ctx context.Context, see func(Sight)) error
	// Announce publishes an event that is no transition.
	Announce(ctx context.Context, e Event) error
	// History returns the profile's events, oldest first.
	History(ctx context.Context, profile string) ([]Event, error)
}

// Sight is one thing that a watch sees.
type Sight struct {
	// Entry is a record as it was stored. Its Record's ProfileID is empty where
	// Fresh or Complete is said.
	Entry Entry
	// Fresh says that the watch begins anew, and every record follows: the
	// server was away, the watch was blind, or the store was lost or went back.
	// What was seen before counts no more.
	Fresh bool
	// Stepped, with Fresh, says that the store is not the one that was watched
	// before, or went back to an old copy of it.
	Stepped bool
	// Complete says that every record has been seen since Fresh.
	Complete bool
}

// Errors of a Store and of those who hold leases.
var (
	ErrNotFound = errors.New("the profile has no lease record")
	// ErrUnavailable says that the store cannot be reached. Nothing is known
	// of what was asked.
	ErrUnavailable = errors.New("the lease store cannot be reached")
	// ErrExpired says that the holder could not renew in time.
	ErrExpired = errors.New("lease expired: it could not be renewed in time")
	// ErrSuperseded says that a launcher was opened under the id of this one.
	ErrSuperseded = errors.New("another launcher runs under the same id: give each one its own")
)

// MovedError says that the record is not the one that was read.
type MovedError struct {
	Profile string
	// Current is the entry that stands there now, if it could be read.
	Current *Entry
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("lease of %s: another write came first", e.Profile)
}

// PresenceMovedError says that the presence is not the one that was read.
type PresenceMovedError struct {
	Launcher string
	// Current is what stands there now, if it could be read.
	Current *PresenceEntry
}

func (e *PresenceMovedError) Error() string {
	return fmt.Sprintf("presence of launcher %s: another write came first", e.Launcher)
}

// FencedError says that a higher token was granted: the holder of Token may
// write nothing more.
type FencedError struct {
	Profile string
	Token   Token
	Current Token
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("token %d superseded by %d", e.Token, e.Current)
}

// Change reads the profile's record, applies fn and swaps the result in, again
// from the start for as long as other writes come first. A profile without a
// record is passed to fn as the zero Entry. An error of fn ends it.
func Change(ctx context.Context, s Store, profile string, fn func(Entry) (Record, error)) (Entry, error) {
	entry, err := s.Get(ctx, profile)
	if errors.Is(err, ErrNotFound) {
		entry, err = Entry{Record: Record{ProfileID: profile}}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	for {
		next, err := fn(Entry{Record: entry.Record.Clone(), Revision: entry.Revision})
		if err != nil {
			return entry, err
		}
		stored, err := s.Swap(ctx, entry, next)
		var moved *MovedError
		if !errors.As(err, &moved) {
			return stored, err
		}
		if moved.Current != nil {
			entry = *moved.Current
			continue
		}
		if entry, err = s.Get(ctx, profile); err != nil {
			return Entry{}, err
		}
	}
}
