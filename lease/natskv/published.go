package natskv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

const (
	// quietTime is how long a reader of the event stream waits for the next event before it
	// checks whether it was cut off.
	quietTime = 2 * time.Second
	// pageSize is how many messages are gathered, at most, before they are reported.
	pageSize = 256
)

// errBehind says that the server that answered does not yet know everything that this Store has
// seen.
var errBehind = errors.New("the server that answers is behind")

// EventsAfter reads the events after a place, at most some hundred. When it returns, the
// consumer that it used is deleted. The error is lease.ErrUnavailable.
func (s *Store) EventsAfter(ctx context.Context, after lease.Place) (lease.EventPage, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	page, f, err := s.eventsFrom(ctx, after)
	if err != nil {
		return lease.EventPage{}, unavailable(err)
	}
	defer f.stop(ctx)
	if err := s.gather(ctx, f, &page); err != nil && len(page.Events) == 0 {
		return lease.EventPage{}, unavailable(err)
	}
	return page, nil
}

// FollowEvents calls see with what is on the event stream after a place: once immediately, even
// if there is nothing, and then whenever there is more. It calls see in its caller's goroutine.
// It returns when ctx ends, or when events may be missing, so that it has to be called again;
// then the error is lease.ErrUnavailable.
func (s *Store) FollowEvents(ctx context.Context, after lease.Place, see func(lease.EventPage)) error {
	page, f, err := s.eventsFrom(ctx, after)
	if err != nil {
		return unavailable(err)
	}
	defer f.stop(ctx)
	losses := s.events.lossCount()
	missed := false // at the last look the stream had something that has not come yet
	for {
		if err := s.gather(ctx, f, &page); err != nil {
			return unavailable(err)
		}
		see(page)
		page = lease.EventPage{Through: page.Through}
		for {
			m, err := f.next(ctx, quietTime)
			if err == nil {
				page = s.with(page, m)
				missed = false
				break
			}
			if !errors.Is(err, errQuiet) {
				return unavailable(err)
			}
			behind := s.events.highestSeen() > page.Through.Sequence
			if s.events.lossCount() != losses || behind && missed {
				return unavailable(fmt.Errorf("%w: the event stream was lost, or shows no more", errBroken))
			}
			missed = behind
		}
	}
}

// eventsFrom returns a follower of the messages after a place, and a page that says which of
// them are lost.
func (s *Store) eventsFrom(ctx context.Context, after lease.Place) (lease.EventPage, *follower, error) {
	info, err := s.refresh(ctx, s.events)
	if err != nil {
		return lease.EventPage{}, nil, err
	}
	page, err := s.locate(ctx, after, info.State)
	if err != nil {
		return lease.EventPage{}, nil, err
	}
	f, err := s.followWith(ctx, s.events, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: page.Through.Sequence + 1})
	return page, f, err
}

// locate finds out where on the stream to read on after a place, and what is lost of the events
// after it.
func (s *Store) locate(ctx context.Context, after lease.Place, state jetstream.StreamState) (lease.EventPage, error) {
	before := lease.Place{Sequence: max(state.FirstSeq, 1) - 1} // the first message that is kept
	switch {
	case after == lease.PlaceNow:
		here := lease.Place{Sequence: state.LastSeq}
		if state.Msgs > 0 {
			m, err := s.messageAt(ctx, state.LastSeq)
			if err != nil && !errors.Is(err, natsget.ErrNone) {
				return lease.EventPage{}, err
			}
			if err == nil {
				here = lease.PlaceOf(m.Seq, m.Data)
			}
		}
		return lease.EventPage{Through: here}, nil
	case after.Sequence > state.LastSeq && after.Sequence <= s.events.highestSeen():
		return lease.EventPage{}, errBehind
	case after.Sequence > state.LastSeq:
		return lease.EventPage{Through: before, Lost: lease.LostStream}, nil
	case after.Sequence < before.Sequence:
		// A reader that asks for everything from the beginning misses nothing.
		page := lease.EventPage{Through: before, Lost: lease.LostOldest}
		if after.Sequence == 0 {
			page.Lost = lease.NothingLost
		}
		return page, nil
	case after.Sequence == before.Sequence:
		return lease.EventPage{Through: after}, nil
	}
	m, err := s.messageAt(ctx, after.Sequence)
	switch {
	case err != nil && !errors.Is(err, natsget.ErrNone):
		return lease.EventPage{}, err
	case err != nil, after.Check != 0 && lease.PlaceOf(m.Seq, m.Data) != after:
		return lease.EventPage{Through: before, Lost: lease.LostStream}, nil
	}
	return lease.EventPage{Through: lease.PlaceOf(m.Seq, m.Data)}, nil
}

func (s *Store) messageAt(ctx context.Context, seq uint64) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	return s.read(ctx, s.events, natsget.Request{Seq: seq})
}

// gather adds what is on the stream to the page, until the page has a good size.
func (s *Store) gather(ctx context.Context, f *follower, page *lease.EventPage) error {
	for n := 0; n < pageSize && f.remaining > 0; n++ {
		m, err := f.next(ctx, s.tryTime)
		if err != nil {
			return err
		}
		*page = s.with(*page, m)
	}
	return nil
}

// with returns the page with one more message, which need not be an event.
func (s *Store) with(page lease.EventPage, m message) lease.EventPage {
	page.Through = lease.PlaceOf(m.Seq, m.Data)
	if e, ok := decodeEvent(m.Subject, m.Data); ok {
		page.Events = append(page.Events, lease.Published{Event: e, Data: m.Data, Place: page.Through})
	}
	return page
}
