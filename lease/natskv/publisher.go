package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

const (
	// TokenHeader carries the lease token of an event.
	TokenHeader = "Leasehold-Token"

	minBackoff, maxBackoff = 50 * time.Millisecond, 2 * time.Second
)

// position orders the transitions of a profile: tokens never fall, and where a
// record was lost and its sequence starts again, the token is a higher one.
type position struct {
	token    lease.Token
	sequence uint64
}

func positionOf(e lease.Event) position { return position{e.Token, e.Sequence} }

func (p position) after(q position) bool {
	if p.token != q.token {
		return p.token > q.token
	}
	return p.sequence > q.sequence
}

// tail is the last transition of a profile on the event stream, and the sequence
// of the stream at which it, or what was published over it, stands. The zero tail
// is that of a profile without events.
type tail struct {
	position
	seq uint64
}

// publisher brings the outboxes of records to the event stream: one goroutine, in
// order per profile. An event is published on condition that the profile's last
// event is the one that this publisher knows of, so several launchers with the
// same event in hand, at any delay, store it once and never behind a later one.
type publisher struct {
	s      *Store
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}
	status chan nats.Status

	mu    sync.Mutex
	queue map[string][]lease.Event // not yet known to be on the stream, in order
	order []string                 // the profiles in queue, longest waiting first
	tails map[string]tail
	// sweeping says that the outboxes of all records are to be looked through.
	sweeping bool
	// idle is closed when nothing is left to do, and made anew when there is.
	idle chan struct{}
}

func startPublisher(s *Store) *publisher {
	ctx, cancel := context.WithCancel(context.Background())
	p := &publisher{
		s: s, cancel: cancel,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
		status: s.nc.StatusChanged(nats.CONNECTED),
		queue:  map[string][]lease.Event{}, tails: map[string]tail{},
		sweeping: true, idle: make(chan struct{}),
	}
	go p.run(ctx)
	return p
}

func (p *publisher) stop() {
	p.cancel()
	<-p.done
	p.s.nc.RemoveStatusListener(p.status)
}

func (p *publisher) run(ctx context.Context) {
	defer close(p.done)
	backoff := minBackoff
	for {
		err := p.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		wake, retry := p.wake, (<-chan time.Time)(nil)
		if err == nil {
			backoff = minBackoff
		} else {
			if backoff == minBackoff {
				p.s.log.Warn().Err(err).Msg("events wait to be published")
			}
			// New events must not hurry a server that is away.
			wake, retry = nil, time.After(backoff)
			backoff = min(2*backoff, maxBackoff)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.status:
			// Writes whose answer was lost with the connection may have left
			// events in outboxes.
			p.sweep()
		case <-retry:
		case <-wake:
		}
	}
}

// pass publishes what it can, and returns why something is left.
func (p *publisher) pass(ctx context.Context) error {
	if p.startSweep() {
		if err := p.collect(ctx); err != nil {
			p.sweep()
			return err
		}
	}
	var errs []error
	for _, profile := range p.waiting() {
		for {
			e, ok := p.head(profile)
			if !ok {
				break
			}
			if err := p.publish(ctx, e); err != nil {
				errs = append(errs, fmt.Errorf("event %s of %s: %w", e.Event, profile, err))
				if errors.Is(err, lease.ErrUnavailable) {
					return errors.Join(errs...)
				}
				break
			}
			p.pop(profile)
		}
	}
	p.settleIdle()
	return errors.Join(errs...)
}

// collect enqueues the outboxes of all records. The event stream is looked at
// first: what is remembered of one that was lost must not keep events back.
func (p *publisher) collect(ctx context.Context) error {
	if _, err := p.s.look(ctx, p.s.events); err != nil {
		return unavailable(err)
	}
	entries, err := p.s.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p.enqueue(e.Record.ProfileID, e.Record.Outbox)
	}
	return nil
}

func (p *publisher) startSweep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.sweeping
	if due {
		// Not idle before what is found is published.
		p.busy()
	}
	p.sweeping = false
	return due
}

// restart forgets what is known to be on the event stream, which was lost or went
// back, and looks for what can be published again.
func (p *publisher) restart() {
	p.mu.Lock()
	clear(p.tails)
	p.mu.Unlock()
	p.sweep()
}

// sweep asks for a look through the outboxes of all records.
func (p *publisher) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = true
	p.busy()
}

// enqueue takes over the events of an outbox that are neither published nor
// waiting.
func (p *publisher) enqueue(profile string, outbox []lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := p.queue[profile]
	last := p.tails[profile].position
	if n := len(queue); n > 0 {
		last = positionOf(queue[n-1])
	}
	for _, e := range outbox {
		if at := positionOf(e); at.after(last) {
			queue, last = append(queue, e), at
		}
	}
	if len(queue) == 0 {
		return
	}
	if _, waiting := p.queue[profile]; !waiting {
		p.order = append(p.order, profile)
	}
	p.queue[profile] = queue
	p.busy()
}

// unpublished returns the events of an outbox that are not known to be on the
// stream.
func (p *publisher) unpublished(profile string, outbox []lease.Event) []lease.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	published := p.tails[profile].position
	return slices.DeleteFunc(outbox, func(e lease.Event) bool { return !positionOf(e).after(published) })
}

// busy wakes the goroutine. The caller holds mu.
func (p *publisher) busy() {
	select {
	case <-p.idle:
		p.idle = make(chan struct{})
	default:
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *publisher) settleIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping || len(p.queue) > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// left returns how many events wait, and a channel that is closed when none does.
func (p *publisher) left() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, q := range p.queue {
		n += len(q)
	}
	return n, p.idle
}

func (p *publisher) waiting() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

func (p *publisher) head(profile string) (lease.Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queue[profile]; len(q) > 0 {
		return q[0], true
	}
	return lease.Event{}, false
}

func (p *publisher) pop(profile string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queue[profile][1:]; len(q) > 0 {
		p.queue[profile] = q
		return
	}
	delete(p.queue, profile)
	p.order = slices.DeleteFunc(p.order, func(s string) bool { return s == profile })
}

// publish stores the event on the stream, unless it is there already.
func (p *publisher) publish(ctx context.Context, e lease.Event) error {
	msg, err := eventMessage(e, fmt.Sprintf("%s.%d.%d", e.ProfileID, e.Token, e.Sequence))
	if err != nil {
		return err
	}
	transitions := transitionsOf(e.ProfileID)
	for {
		era := p.s.events.lossCount()
		last, err := p.tail(ctx, e.ProfileID)
		if err != nil {
			return err
		}
		if !positionOf(e).after(last.position) {
			return nil
		}
		ack, err := p.send(ctx, msg, last.seq, transitions)
		v := judge(err)
		if v == stored && !ack.Duplicate {
			p.s.events.saw(ack.Sequence)
			p.setTail(e.ProfileID, tail{positionOf(e), ack.Sequence}, era)
			return nil
		}
		p.forgetTail(e.ProfileID)
		switch v {
		case stored: // an earlier try was
			return nil
		case refused:
			return err
		case notSent, unknown, gone:
			_, _ = p.s.look(ctx, p.s.events)
			return unavailable(err)
		}
		if pause(ctx, v.wait()); ctx.Err() != nil {
			return unavailable(err)
		}
	}
}

func (p *publisher) send(ctx context.Context, msg *nats.Msg, last uint64, subjects string) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, p.s.tryTime)
	defer cancel()
	return p.s.events.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequenceForSubject(last, subjects), jetstream.WithRetryAttempts(0))
}

// tail returns the profile's last transition on the stream, as remembered, or
// else as the stream has it.
func (p *publisher) tail(ctx context.Context, profile string) (tail, error) {
	p.mu.Lock()
	known, ok := p.tails[profile]
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.s.tryTime)
	defer cancel()
	era := p.s.events.lossCount()
	m, err := p.s.read(ctx, p.s.events, getRequest{LastFor: transitionsOf(profile)})
	t := tail{seq: m.Seq}
	switch {
	case errors.Is(err, errNoMessage):
	case err != nil:
		return tail{}, err
	default:
		if e, ok := decodeEvent(m.Subject, m.Data); ok {
			t.position = positionOf(e)
			break
		}
		// Something that is no event stands above the last one.
		events, err := p.s.history(ctx, profile)
		if err != nil {
			return tail{}, err
		}
		for _, e := range events {
			if at := positionOf(e); e.Sequence > 0 && at.after(t.position) {
				t.position = at
			}
		}
	}
	p.setTail(profile, t, era)
	return t, nil
}

// setTail remembers a tail, unless the stream that it was seen on, as of era, was
// lost since.
func (p *publisher) setTail(profile string, t tail, era uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.s.events.lossCount() == era {
		p.tails[profile] = t
	}
}

func (p *publisher) forgetTail(profile string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tails, profile)
}

// transitionsOf matches the subjects of a profile's transitions, and not those of
// its conflicts and late writes, which have no place in the order.
func transitionsOf(profile string) string { return "leasehold.*." + lease.Key(profile) + ".*" }

// eventMessage is the event as published. The id makes the server itself drop a
// message that it got shortly before.
func eventMessage(e lease.Event, msgID string) (*nats.Msg, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s of %s: %w", e.Event, e.ProfileID, err)
	}
	m := nats.NewMsg(e.Subject())
	m.Data = data
	m.Header.Set(TokenHeader, strconv.FormatUint(uint64(e.Token), 10))
	m.Header.Set(jetstream.MsgIDHeader, msgID)
	return m, nil
}

// decodeEvent returns the event in a message of the stream, if it is one.
func decodeEvent(subject string, data []byte) (lease.Event, bool) {
	var e lease.Event
	if json.Unmarshal(data, &e) != nil || e.Event == "" || e.Subject() != subject {
		return lease.Event{}, false
	}
	return e, true
}
