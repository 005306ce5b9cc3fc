package natskv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

const (
	// deliveryTime is how long a delivery may take before it is given to another launcher.
	deliveryTime = time.Minute
	// maxDelivered is how many deliveries of one receiver may wait to be made again; others stay on
	// the stream until then.
	maxDelivered = 1024
	// leastFetch is the least time for which the server is asked.
	leastFetch = 50 * time.Millisecond
	// receiverTime is how long the server remembers a receiver whom no launcher asks for.
	receiverTime = 30 * 24 * time.Hour
)

// Deliveries are the events that one receiver has not taken yet, from when it was first asked for.
// The server keeps which these are, for all launchers that ask for the receiver. Its methods are
// for one goroutine.
type Deliveries struct {
	s        *Store
	receiver string
	consumer jetstream.Consumer // nil: not made or found yet
	// there is when the server was last known to remember the receiver, by the server's clock; zero: it
	// was not known here yet.
	there time.Time
}

// Deliveries returns those of a receiver, by a name of A-Z a-z 0-9 _ -.
func (s *Store) Deliveries(receiver string) *Deliveries { return &Deliveries{s: s, receiver: receiver} }

// Next waits for the next delivery. ok is false if none came in that time. The error is
// lease.ErrUnavailable.
func (d *Deliveries) Next(ctx context.Context, wait time.Duration) (_ lease.Delivery, ok bool, err error) {
	for end := time.Now().Add(wait); ; {
		m, err := d.fetch(ctx, time.Until(end))
		if err != nil {
			d.consumer = nil // it may have been removed
			return lease.Delivery{}, false, unavailable(fmt.Errorf("receiver %s: %w", d.receiver, err))
		}
		if m == nil {
			return lease.Delivery{}, false, nil
		}
		if next, ok := delivery(m); ok {
			return next, true, nil
		}
		if err := m.Ack(); err != nil { // it is no event
			return lease.Delivery{}, false, unavailable(err)
		}
	}
}

// Unconfirmed is how many deliveries of the receiver, to whomever, are not confirmed. The error is
// lease.ErrUnavailable.
func (d *Deliveries) Unconfirmed(ctx context.Context) (int, error) {
	asking, cancel := context.WithTimeout(ctx, d.s.tryTime)
	defer cancel()
	c, err := d.s.events.js.Consumer(asking, Stream, d.name())
	if err != nil {
		return 0, unavailable(fmt.Errorf("receiver %s: %w", d.receiver, err))
	}
	return c.CachedInfo().NumAckPending, nil
}

// name is that of the receiver's consumer.
func (d *Deliveries) name() string { return "leasehold_notify_" + d.receiver }

// fetch returns the next message; nil if none came in that time.
func (d *Deliveries) fetch(ctx context.Context, wait time.Duration) (jetstream.Msg, error) {
	asked := d.s.events.clock()
	if d.consumer == nil {
		asking, cancel := context.WithTimeout(ctx, d.s.tryTime)
		defer cancel()
		c, err := d.find(asking)
		if err != nil {
			return nil, err
		}
		d.consumer = c
		if d.there.IsZero() {
			d.there = asked
		}
	}
	end := time.Now().Add(max(wait, leastFetch))
	waiting, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	batch, err := d.consumer.Fetch(1, jetstream.FetchContext(waiting))
	// By the clock, as Fetch goes by it: the context may not know yet that its time is over.
	if err != nil && !time.Now().Before(end) && ctx.Err() == nil { // this process had no time to ask
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := <-batch.Messages()
	err = batch.Error()
	switch {
	case m != nil || err == nil: // the server answered
		d.there = asked
	case !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded):
		return nil, err
	}
	return m, nil
}

// find finds the consumer of the receiver, or makes it. If the event stream was lost, or went back to a
// copy from before the consumer was made, the receiver gets what has been published since then, too.
func (d *Deliveries) find(ctx context.Context) (jetstream.Consumer, error) {
	c := jetstream.ConsumerConfig{
		Durable: d.name(), Description: "Leasehold: what a webhook has not taken yet",
		DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy, AckWait: deliveryTime,
		MaxAckPending: maxDelivered, MaxDeliver: -1, InactiveThreshold: receiverTime,
	}
	have, err := d.s.events.js.Consumer(ctx, Stream, c.Durable)
	switch {
	case err == nil: // where it began cannot be changed
		c.DeliverPolicy, c.OptStartTime = have.CachedInfo().Config.DeliverPolicy, have.CachedInfo().Config.OptStartTime
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil, err
	case !d.there.IsZero():
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &d.there
	}
	return d.s.events.js.CreateOrUpdateConsumer(ctx, Stream, c)
}

// delivery returns the event in a message; false if it is none.
func delivery(m jetstream.Msg) (lease.Delivery, bool) {
	meta, err := m.Metadata()
	if err != nil {
		return lease.Delivery{}, false
	}
	e, ok := decodeEvent(m.Subject(), m.Data())
	if !ok {
		return lease.Delivery{}, false
	}
	return lease.Delivery{
		Published: lease.Published{Event: e, Data: m.Data(), Place: lease.PlaceOf(meta.Sequence.Stream, m.Data())},
		Tries:     int(meta.NumDelivered),
		Done:      m.Ack,
		Again:     m.NakWithDelay,
	}, true
}
