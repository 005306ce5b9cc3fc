package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

type message natsget.Message

// operationHeader is the header of a marker, the message that deletes a value.
const operationHeader = "KV-Operation"

// deleted tells whether the message is a marker: the value of its key was deleted.
func (m message) deleted() bool {
	return m.Header.Get(operationHeader) != "" || m.Header.Get("Nats-Marker-Reason") != ""
}

// read returns the message that q asks for, or natsget.ErrNone. While the server is away it
// asks again until ctx ends, and then returns lease.ErrUnavailable.
func (s *Store) read(ctx context.Context, st *stream, q natsget.Request) (message, error) {
	for {
		m, err := s.readOnce(ctx, st, q)
		var api *jetstream.APIError
		switch {
		case err == nil:
			st.saw(m.Seq)
			return m, nil
		case errors.Is(err, natsget.ErrNone):
			return m, err
		case isMissing(err):
			_, _ = s.refresh(ctx, st)
		case errors.As(err, &api) && api.Code < 500, judge(err) == gone:
			return message{}, unavailable(fmt.Errorf("read stream %s: %w", st.name, err))
		}
		if pause(ctx, retryWait); ctx.Err() != nil {
			return message{}, unavailable(fmt.Errorf("read stream %s: %w", st.name, err))
		}
	}
}

func (s *Store) readOnce(ctx context.Context, st *stream, q natsget.Request) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	m, err := natsget.Ask(ctx, s.nc, st.api, st.name, q)
	return message(m), err
}

// last returns the last message of the key, which may be a marker.
func (s *Store) last(ctx context.Context, b bucket, key string) (message, error) {
	return s.read(ctx, b.stream, natsget.Request{LastFor: b.subject(key)})
}

// current returns the value of the key as newestValid does, or natsget.ErrNone if it was deleted
// or never written.
func (s *Store) current(ctx context.Context, b bucket, key string) (message, error) {
	m, err := s.last(ctx, b, key)
	switch {
	case err != nil:
		return message{}, err
	case m.deleted():
		return message{}, natsget.ErrNone
	}
	return s.newestValid(ctx, b, key, m)
}

// newestValid returns m, which is the last message of the key and not a marker. If no Store
// wrote its value, m gets the newest value below it that a Store wrote. The error is a
// *foreignError if there is none.
func (s *Store) newestValid(ctx context.Context, b bucket, key string, m message) (message, error) {
	if _, ok := b.nonce(key, m.Data); ok {
		return m, nil
	}
	var below *message
	err := s.snapshot(ctx, b.stream, []string{b.subject(key)}, jetstream.DeliverAllPolicy,
		func() { below = nil },
		func(older message) {
			if older.deleted() {
				below = nil
			} else if _, ok := b.nonce(key, older.Data); ok {
				below = &older
			}
		})
	if err != nil {
		return message{}, err
	}
	if below == nil {
		return message{}, &foreignError{bucket: b.name, revision: m.Seq}
	}
	s.log.Warn().Str("bucket", b.name).Str("key", key).Uint64("revision", m.Seq).
		Msg("something that no launcher writes was written over a value; the value below it counts")
	m.Data = below.Data
	return m, nil
}

// foreignError says that no Store wrote any of the values that are kept for a key.
type foreignError struct {
	bucket   string
	revision uint64
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("revision %d of stream %s and those below hold nothing that a launcher wrote: put a value back, or delete the key, so that its launcher starts from what it knows", e.revision, e.bucket)
}

// Get is part of lease.Store. It asks the leader, whose answer is outdated less often than that
// of other replicas, but is still only a hint. If something that is not a record was written
// over a record, Get returns the record with the revision of what was written over it.
func (s *Store) Get(ctx context.Context, profile string) (lease.Entry, error) {
	if err := lease.CheckProfileID(profile); err != nil {
		return lease.Entry{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m, err := s.current(ctx, s.leases, lease.Key(profile))
	switch {
	case errors.Is(err, natsget.ErrNone):
		return lease.Entry{}, fmt.Errorf("%s: %w", profile, lease.ErrNotFound)
	case err != nil:
		return lease.Entry{}, fmt.Errorf("lease of %s: %w", profile, err)
	}
	return s.recordEntry(m), nil
}

func (s *Store) recordEntry(m message) lease.Entry {
	r, _ := decodeRecord(keyOf(m), m.Data)
	return lease.Entry{Record: r, Revision: m.Seq, Age: s.leases.age(m.At)}
}

func presenceEntry(m message) lease.PresenceEntry {
	p, _ := decodePresence(keyOf(m), m.Data)
	return lease.PresenceEntry{Presence: p, Revision: m.Seq}
}

func keyOf(m message) string { return strings.SplitN(m.Subject, ".", 3)[2] }

// Presence is part of lease.Store. It does with presences what Get does with records.
func (s *Store) Presence(ctx context.Context, launcher string) (lease.PresenceEntry, error) {
	if err := checkLauncherID(launcher); err != nil {
		return lease.PresenceEntry{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m, err := s.current(ctx, s.hosts, launcherKey(launcher))
	switch {
	case errors.Is(err, natsget.ErrNone):
		return lease.PresenceEntry{}, nil
	case err != nil:
		return lease.PresenceEntry{}, fmt.Errorf("presence of launcher %s: %w", launcher, err)
	}
	return presenceEntry(m), nil
}

// List is part of lease.Store. It reads the last values of all keys once.
func (s *Store) List(ctx context.Context) ([]lease.Entry, error) {
	return list(ctx, s, s.leases, s.lastOfEachByConsumer, s.recordEntry)
}

// Presences is part of lease.Store. It does with presences what List does with records,
// but by one cheap request that any replica may answer.
func (s *Store) Presences(ctx context.Context) ([]lease.PresenceEntry, error) {
	return list(ctx, s, s.hosts, func(ctx context.Context, b bucket) ([]message, error) {
		messages, err := s.lastOfEach(ctx, b)
		if errors.Is(err, errTooMany) {
			return s.lastOfEachByConsumer(ctx, b)
		}
		return messages, err
	}, presenceEntry)
}

// lastOfEachByConsumer is lastOfEach for any number of keys.
func (s *Store) lastOfEachByConsumer(ctx context.Context, b bucket) ([]message, error) {
	var messages []message
	err := s.snapshot(ctx, b.stream, []string{b.subject(">")}, jetstream.DeliverLastPerSubjectPolicy,
		func() { messages = nil },
		func(m message) { messages = append(messages, m) })
	return messages, err
}

// list returns the entries in the messages of lasts. It leaves out keys that were deleted, and
// logs keys without a value that a Store wrote.
func list[T any](ctx context.Context, s *Store, b bucket, lasts func(context.Context, bucket) ([]message, error), entry func(message) T) ([]T, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	messages, err := lasts(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("list stream %s: %w", b.name, err)
	}
	entries := make([]T, 0, len(messages))
	for _, m := range messages {
		if m.deleted() {
			continue
		}
		m, err := s.newestValid(ctx, b, keyOf(m), m)
		switch {
		case errors.Is(err, lease.ErrUnavailable):
			return nil, fmt.Errorf("list stream %s: %w", b.name, err)
		case err != nil:
			// One bad key must not hide all the others.
			s.log.Warn().Err(err).Msg("not listed")
		default:
			entries = append(entries, entry(m))
		}
	}
	return entries, nil
}
