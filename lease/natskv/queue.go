package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

// Queue is the KV bucket of the waiters: one key per waiting request. Unlike the other buckets
// it has nothing that must not be lost, and its values expire. A launcher that cannot use it
// serves its own requests in order, and does not know of others.
const Queue = "leasehold_queue"

// waiterAge is how long a waiter that nobody removed is kept: longer than a request may wait.
const waiterAge = 15 * time.Minute

var _ lease.WaiterStore = (*Store)(nil)

func queueConfig() jetstream.StreamConfig {
	c := bucketConfig(Queue, "Leasehold: requests that wait, one key each", 1)
	c.MaxAge, c.Discard, c.Duplicates = waiterAge, jetstream.DiscardOld, minDuplicates
	return c
}

func queueDrift(c jetstream.StreamConfig) error {
	want := queueConfig()
	switch {
	case len(c.Subjects) != 1 || c.Subjects[0] != want.Subjects[0]:
		return &DriftError{"subjects", c.Subjects, want.Subjects, "it is not this bucket"}
	case c.Mirror != nil || c.Sealed || c.NoAck || c.SubjectTransform != nil:
		return &DriftError{"mirror, sealed, no_ack or subject_transform", "set", "none", "requests could not be written to it"}
	case c.MaxMsgsPerSubject != 1:
		return &DriftError{"max_msgs_per_subject (history)", c.MaxMsgsPerSubject, 1, "requests that wait no longer would come again"}
	case c.MaxAge != 0 && c.MaxAge < waiterAge:
		return &DriftError{"max_age (TTL)", c.MaxAge, waiterAge, "requests that still wait would vanish"}
	}
	return nil
}

// waiterID is the form of a waiter's id: one part of a subject.
var waiterID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func waiterSubject(launcher, id string) (string, error) {
	if err := checkLauncherID(launcher); err != nil {
		return "", err
	}
	if !waiterID.MatchString(id) {
		return "", errors.New("id of a waiter: want 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return "$KV." + Queue + "." + launcherKey(launcher) + "." + id, nil
}

// PutWaiter is part of lease.WaiterStore.
func (s *Store) PutWaiter(ctx context.Context, w lease.Waiter) (uint64, error) {
	subject, err := waiterSubject(w.LauncherID, w.ID)
	if err != nil {
		return 0, err
	}
	b, err := lease.Encode(w)
	if err != nil {
		return 0, err
	}
	return s.publishWaiter(ctx, &nats.Msg{Subject: subject, Data: b})
}

// DropWaiter is part of lease.WaiterStore. It leaves a marker, which expires.
func (s *Store) DropWaiter(ctx context.Context, launcher, id string) error {
	subject, err := waiterSubject(launcher, id)
	if err == nil {
		_, err = s.publishWaiter(ctx, &nats.Msg{Subject: subject, Header: nats.Header{operationHeader: {"DEL"}}})
	}
	return err
}

// publishWaiter tries only once: a waiting request is in the queue of its own launcher anyway.
func (s *Store) publishWaiter(ctx context.Context, m *nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	ack, err := s.queue.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, unavailable(fmt.Errorf("queue: %w", err))
	}
	s.queue.saw(ack.Sequence)
	return ack.Sequence, nil
}

// WatchWaiters is part of lease.WaiterStore. It returns nil when ctx ends, and otherwise the
// reason why the bucket cannot be used, or was cut off.
func (s *Store) WatchWaiters(ctx context.Context, see func(lease.WaiterSight)) error {
	err := s.watchLast(ctx, s.queue, lastWatch{
		fresh:    func() { see(lease.WaiterSight{Fresh: true}) },
		complete: func() { see(lease.WaiterSight{Complete: true}) },
		show: func(m message) {
			if sight, ok := waiterSight(m); ok {
				see(sight)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("queue of waiting requests: %w", err)
	}
	return nil
}

// waiterSight reads a message of the bucket; false for one that no Store wrote.
func waiterSight(m message) (lease.WaiterSight, bool) {
	launcher, id, ok := strings.Cut(strings.TrimPrefix(m.Subject, "$KV."+Queue+"."), ".")
	launcher = lease.ProfileOfKey(launcher)
	if !ok || !waiterID.MatchString(id) || checkLauncherID(launcher) != nil {
		return lease.WaiterSight{}, false
	}
	if m.deleted() {
		return lease.WaiterSight{Entry: lease.WaiterEntry{Waiter: lease.Waiter{LauncherID: launcher, ID: id}, Revision: m.Seq}, Gone: true}, true
	}
	var w lease.Waiter
	if json.Unmarshal(m.Data, &w) != nil || w.LauncherID != launcher || w.ID != id {
		return lease.WaiterSight{}, false
	}
	return lease.WaiterSight{Entry: lease.WaiterEntry{Waiter: w, Revision: m.Seq}}, true
}
