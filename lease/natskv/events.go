package natskv

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/id"
	"leasehold/lease"
)

// Flush waits until every write with an unknown outcome is settled, and every event that this
// Store knows of is on the stream. If ctx ends first, the error is lease.ErrUnavailable; no
// event is lost by that.
func (s *Store) Flush(ctx context.Context) error {
	n, settled := s.settler.unsettled()
	if !closes(ctx, settled) {
		return fmt.Errorf("%d writes not settled: %w", n, unavailable(ctx.Err()))
	}
	if _, idle := s.pub.queued(); !closes(ctx, idle) {
		n, _ := s.pub.queued()
		return fmt.Errorf("%d events not published: %w", n, unavailable(ctx.Err()))
	}
	return nil
}

// closes waits for a channel to close until ctx ends, and tells whether it is closed then.
func closes(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Announce is part of lease.Store. If it returns nil, the event is stored. After lease.ErrUnavailable
// it may or may not be stored, and is published in the background, before those that are announced later;
// the server recognises one that it has stored in the last minutes. If the connection is closed for good,
// nothing more is published.
func (s *Store) Announce(ctx context.Context, e lease.Event) error {
	if e.Site == "" {
		if err := lease.CheckProfileID(e.ProfileID); err != nil {
			return err
		}
	}
	if e.Sequence != 0 {
		return fmt.Errorf("event %s of %s: has sequence %d: transitions are published from the outbox of their record", e.Event, cmp.Or(e.ProfileID, e.Site), e.Sequence)
	}
	msg, err := eventMessage(e, id.New("announce"))
	if err != nil {
		return err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for {
		if before := s.pub.announcing(); before != nil && !closes(ctx, before) {
			s.pub.announceLater(msg)
			return fmt.Errorf("event %s of %s: earlier ones wait: %w", e.Event, cmp.Or(e.ProfileID, e.Site), unavailable(ctx.Err()))
		}
		err := s.announceOnce(ctx, msg)
		v := judge(err)
		switch v {
		case stored:
			return nil
		case refused:
			return fmt.Errorf("event %s of %s: the store refuses it: %w", e.Event, cmp.Or(e.ProfileID, e.Site), err)
		case gone:
			return fmt.Errorf("event %s of %s: %w", e.Event, cmp.Or(e.ProfileID, e.Site), unavailable(err))
		case notSent:
			_, _ = s.refresh(ctx, s.events)
		}
		if pause(ctx, v.wait()); ctx.Err() != nil {
			s.pub.announceLater(msg)
			return fmt.Errorf("event %s of %s: %w", e.Event, cmp.Or(e.ProfileID, e.Site), unavailable(err))
		}
	}
}

func (s *Store) announceOnce(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	_, err := s.events.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	return err
}

// History is part of lease.Store. It returns the events, including conflicts and late
// writes, that were published when it was called, except those that were removed because the
// stream was full. If transitions are missing at the front, the first one's Sequence is above 1.
func (s *Store) History(ctx context.Context, profile string) ([]lease.Event, error) {
	if err := lease.CheckProfileID(profile); err != nil {
		return nil, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	events, err := s.history(ctx, profile)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", profile, err)
	}
	return events, nil
}

func (s *Store) history(ctx context.Context, profile string) ([]lease.Event, error) {
	key := lease.Key(profile)
	subjects := []string{transitionsOf(profile), "leasehold.conflict." + key, "leasehold.late_write." + key}
	var events []lease.Event
	err := s.snapshot(ctx, s.events, subjects, jetstream.DeliverAllPolicy,
		func() { events = []lease.Event{} },
		func(m message) {
			if e, ok := decodeEvent(m.Subject, m.Data); ok {
				events = append(events, e)
				return
			}
			s.log.Warn().Str("profile", profile).Uint64("sequence", m.Seq).Msg("something that is no event stands on the event stream")
		})
	return events, err
}
