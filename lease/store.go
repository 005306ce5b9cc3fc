package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entry is a record with the revision of the write that stored it.
type Entry struct {
	Record   Record
	Revision uint64
	// Age is how long ago, by the store's own clock, the entry was written, as far as that is
	// known. It is zero in what a watch shows as a change, and in the result of a Swap.
	Age time.Duration
	// Number is set in the entry of a profile without a record: it says in which store a record
	// may be made, see Sight.Number. Zero means in any.
	Number uint64
	// Dropped is called once, after Swap has returned ErrUnavailable, when the store knows that
	// the write was not stored and never will be; nil: nobody asks. Another goroutine calls it,
	// and it may write to a disk.
	Dropped func()
}

// Store keeps one record per profile and one presence per launcher, and changes them by
// compare-and-swap. Every call ends with its context, or after some seconds if the context has
// no deadline.
//
// A store may forget: it may lose entries that it had acknowledged, or go back to an old copy
// of them. The launchers that remember them repair that.
//
// It has 10 methods because records, presences and events are of one store: a launcher that reaches it
// for one of them, and not for the others, would hold leases that it cannot prove.
type Store interface {
	// Get returns the record of the profile. The record is a hint, since the answer may be an
	// old one: only a successful Swap proves that it was current. Errors: ErrNotFound,
	// ErrUnavailable.
	Get(ctx context.Context, profile string) (Entry, error)
	// List returns all records, in no order; each is a hint, as with Get.
	List(ctx context.Context) ([]Entry, error)
	// Swap stores next if the record still has the revision of prev, and returns it as stored;
	// revision zero means that the profile has no record yet. If prev has a Number, and the
	// store was lost since then, the error is ErrUnavailable, whether or not the record was
	// made in the new store. The events in next's outbox are published, in order. If a write
	// gets no answer, Swap finds out whether it was stored; if it cannot, the error is
	// ErrUnavailable, and the write may or may not have been stored. A *MovedError, with the
	// current entry if it is known, says that another write came first.
	Swap(ctx context.Context, prev Entry, next Record) (Entry, error)
	// Presence returns the presence of the launcher, or the zero entry if it has none. It is a
	// hint, as with Get. The error is ErrUnavailable.
	Presence(ctx context.Context, launcher string) (PresenceEntry, error)
	// Presences returns all presences, in no order.
	Presences(ctx context.Context) ([]PresenceEntry, error)
	// SwapPresence does with presences what Swap does with records. A *PresenceMovedError, with
	// the current entry if it is known, says that another write came first.
	SwapPresence(ctx context.Context, prev PresenceEntry, next Presence) (PresenceEntry, error)
	// Watch calls see, one call at a time, until ctx ends: first with every record, then with
	// every change. Silence does not prove that nothing has changed: a watch may see nothing
	// for seconds, and only the last of several writes to a record.
	Watch(ctx context.Context, see func(Sight)) error
	// Look asks the store itself, and so finds out earlier than the watch that the store was
	// lost. The sight has the Number and the Age. The error is ErrUnavailable.
	Look(ctx context.Context) (Sight, error)
	// Announce publishes an event that belongs to no transition. After ErrUnavailable the store goes on
	// with that in the background, until it is closed.
	Announce(ctx context.Context, e Event) error
	// History returns the profile's events, oldest first.
	History(ctx context.Context, profile string) ([]Event, error)
}

// Sight is one thing that a watch reports: a record, or a mark with Fresh or Complete.
type Sight struct {
	// Entry is a record as it was stored. In a mark its ProfileID is empty.
	Entry Entry
	// Fresh says that the watch starts again, and that every record follows, also one that is stored
	// right after. The server was away, the watch missed something, or the store forgot. What was
	// reported before no longer counts.
	Fresh bool
	// Stepped is set only together with Fresh. It says that the store is not the same as
	// before, or went back to an old copy.
	Stepped bool
	// Age is how long the store has existed, by its own clock; it is set in a mark with Fresh.
	// Others who share a young store may know profiles that it does not.
	Age time.Duration
	// Number distinguishes this store from those that existed before it was lost or went back;
	// it is set in a mark with Fresh. It is not zero.
	Number uint64
	// Complete says that every record was reported since Fresh.
	Complete bool
}

// Errors of a Store and of the holders of leases.
var (
	ErrNotFound = errors.New("the profile has no lease record")
	// ErrUnavailable says that the store cannot be reached. The requested operation may or may
	// not have happened.
	ErrUnavailable = errors.New("the lease store cannot be reached")
	// ErrExpired says that the holder could not renew in time.
	ErrExpired = errors.New("lease expired: it could not be renewed in time")
	// ErrSuperseded says that another launcher opened a presence under the same id.
	ErrSuperseded = errors.New("another launcher runs under the same id: give each one its own")
)

// MovedError says that the record no longer has the revision that was expected.
type MovedError struct {
	Profile string
	// Current is the entry that the store has now; nil if it could not be read.
	Current *Entry
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("lease of %s: another write came first", e.Profile)
}

// PresenceMovedError says that the presence no longer has the revision that was
// expected.
type PresenceMovedError struct {
	Launcher string
	// Current is the entry that the store has now; nil if it could not be read.
	Current *PresenceEntry
}

func (e *PresenceMovedError) Error() string {
	return fmt.Sprintf("presence of launcher %s: another write came first", e.Launcher)
}

// FencedError says that the lease with Token is over, usually because a higher one was granted:
// its holder may not write any more.
type FencedError struct {
	Profile string
	Token   Token
	Current Token
}

func (e *FencedError) Error() string {
	if e.Current < e.Token {
		return fmt.Sprintf("token %d is over: by the lease record, which has token %d, somebody else has the profile, or nobody", e.Token, e.Current)
	}
	return fmt.Sprintf("token %d superseded by %d", e.Token, e.Current)
}

// Change reads the record of the profile, applies fn, and swaps the result in. It starts again
// whenever another write came first. If the profile has no record, fn gets a record that
// contains only the profile's id, at revision zero. An error of fn ends Change, which then
// returns that error and the entry that fn was given.
func Change(ctx context.Context, s Store, profile string, fn func(Entry) (Record, error)) (Entry, error) {
	entry, err := s.Get(ctx, profile)
	if errors.Is(err, ErrNotFound) {
		entry, err = Entry{Record: Record{ProfileID: profile}}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	for {
		next, err := fn(Entry{Record: entry.Record.Clone(), Revision: entry.Revision, Age: entry.Age})
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

// ChangeExisting is Change for a record that is in the store. If it is not, or was forgotten
// meanwhile, the error is ErrNotFound and nothing is written: a launcher that remembers the
// record writes it again.
func ChangeExisting(ctx context.Context, s Store, profile string, fn func(Entry) (Record, error)) (Entry, error) {
	return Change(ctx, s, profile, func(e Entry) (Record, error) {
		if e.Revision == 0 {
			return e.Record, ErrNotFound
		}
		return fn(e)
	})
}
