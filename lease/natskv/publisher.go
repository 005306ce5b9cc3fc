package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// maxAnnounced is how many events of no transition may wait to be published.
	maxAnnounced = 1024
)

// position is the place of an event in the order of its profile's transitions. Tokens never
// fall; if a record was lost and its sequence starts again, the token is a higher one.
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

func comparePosition(e lease.Event, p position) int {
	switch at := positionOf(e); {
	case at.after(p):
		return 1
	case p.after(at):
		return -1
	}
	return 0
}

// tail is the position of a profile's last transition on the event stream, with the stream
// sequence of that event, or of what was published after it on the same subjects. The zero tail
// is for a profile without events.
type tail struct {
	position
	seq uint64
}

// publisher publishes the outboxes of records on the event stream, in one goroutine and in
// order for each profile. It publishes an event on the condition that the last event of the
// profile is the one that it knows. So if several launchers publish the same event, however
// late, it is stored once, and never after a later one.
type publisher struct {
	s      *Store
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}
	status chan nats.Status

	mu    sync.Mutex
	queue map[string][]lease.Event // by profile, in order: events that are not known to be on the stream
	order []string                 // the profiles in queue, the one that waits longest first
	tails map[string]tail          // by profile, as far as they are known
	// announced are the events of no transition that were not published while their callers waited.
	announced []*nats.Msg
	// memory has the last events, for a stream that loses what it had acknowledged.
	memory *memory
	// sweeping says that the outboxes of all records have to be read.
	sweeping bool
	// idle is closed while there is nothing to do. A new one is made when there is something.
	idle chan struct{}
}

func startPublisher(s *Store) *publisher {
	ctx, cancel := context.WithCancel(context.Background())
	p := &publisher{
		s: s, cancel: cancel,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
		status: s.nc.StatusChanged(nats.CONNECTED),
		queue:  map[string][]lease.Event{}, tails: map[string]tail{}, memory: newMemory(memorySize),
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
			// New events must not cause requests to a server that is away.
			wake, retry = nil, time.After(backoff)
			backoff = min(2*backoff, maxBackoff)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.status:
			// Writes whose answers were lost with the connection may have put events into
			// outboxes.
			p.sweep()
		case <-retry:
		case <-wake:
		}
	}
}

// errNotShown says nothing about the events of other profiles.
var errNotShown = errors.New("the server recognises it, and does not show it")

// pass publishes what it can, and returns why some events could not be published.
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
				if errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, errNotShown) {
					return errors.Join(errs...)
				}
				break
			}
			p.pop(e)
		}
	}
	if err := p.announce(ctx); err != nil {
		errs = append(errs, err)
	}
	p.closeIfIdle()
	return errors.Join(errs...)
}

// announceLater has an event of no transition published in the background. Of too many the oldest is
// dropped.
func (p *publisher) announceLater(msg *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.announced) == maxAnnounced {
		p.s.log.Warn().Str("subject", p.announced[0].Subject).Msg("event not published: too many wait")
		p.announced = p.announced[1:]
	}
	p.announced = append(p.announced, msg)
	p.busy()
}

// announcing returns a channel that is closed when no event waits, or nil if none of no transition does.
func (p *publisher) announcing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.announced) == 0 {
		return nil
	}
	return p.idle
}

// announce publishes the events of no transition that wait.
func (p *publisher) announce(ctx context.Context) error {
	for {
		p.mu.Lock()
		var msg *nats.Msg
		if len(p.announced) > 0 {
			msg = p.announced[0]
		}
		p.mu.Unlock()
		if msg == nil {
			return nil
		}
		err := p.s.announceOnce(ctx, msg)
		switch judge(err) {
		case stored:
		case refused:
			p.s.log.Error().Err(err).Str("subject", msg.Subject).Msg("event not published: the store refuses it")
		case notSent:
			_, _ = p.s.refresh(ctx, p.s.events)
			return unavailable(err)
		default:
			return unavailable(err)
		}
		p.mu.Lock()
		p.announced = slices.DeleteFunc(slices.Clone(p.announced), func(m *nats.Msg) bool { return m == msg })
		p.mu.Unlock()
	}
}

// collect enqueues the outboxes of all records. It refreshes the event stream first: if that
// was lost, what is remembered about it must not delay events.
func (p *publisher) collect(ctx context.Context) error {
	if _, err := p.s.refresh(ctx, p.s.events); err != nil {
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
		// The publisher is not idle until what the sweep finds is published.
		p.busy()
	}
	p.sweeping = false
	return due
}

// restart forgets what was on the event stream, after the stream was lost or went back. What
// this launcher had published is published again, and so is what a sweep finds.
func (p *publisher) restart() {
	p.mu.Lock()
	clear(p.tails)
	for _, e := range p.memory.lastPublished() {
		p.insert(e)
	}
	p.mu.Unlock()
	p.sweep()
}

// sweep asks the goroutine to read the outboxes of all records.
func (p *publisher) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = true
	p.busy()
}

// enqueue adds the events of an outbox to the queue, except for those that are published or
// in the queue already.
func (p *publisher) enqueue(profile string, outbox []lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range outbox {
		if p.isPublished(e) {
			continue
		}
		if !positionOf(e).after(p.tails[profile].position) {
			// The record went back, and perhaps the stream, too.
			delete(p.tails, profile)
		}
		p.memory.add(e)
		p.insert(e)
	}
	if len(p.queue[profile]) > 0 {
		p.busy()
	}
}

// insert puts an event into the queue, replacing one with the same position. The caller holds
// mu.
func (p *publisher) insert(e lease.Event) {
	queue, waiting := p.queue[e.ProfileID]
	i, same := slices.BinarySearchFunc(queue, positionOf(e), comparePosition)
	if same {
		queue[i] = e
		return
	}
	p.queue[e.ProfileID] = slices.Insert(slices.Clone(queue), i, e)
	if !waiting {
		p.order = append(p.order, e.ProfileID)
	}
}

// remember takes in an outbox that the store shows. The launcher that wrote it publishes it.
func (p *publisher) remember(outbox []lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range outbox {
		p.memory.add(e)
	}
}

// isPublished tells whether an event is known to be on the stream. An event of which that was not
// found out is not, wherever the stream ends: the record went back, and goes on from there. The
// watch may show the event, in an outbox, before the writer of the record has it. The caller holds mu.
func (p *publisher) isPublished(e lease.Event) bool {
	return !positionOf(e).after(p.tails[e.ProfileID].position) && p.memory.isConfirmed(e)
}

// outbox returns the outbox with which a record is stored over one whose last event has the
// number before: the events that are not known to be on the stream. If there is a gap in the
// numbers, the store forgot, and perhaps the stream, too: then the outbox also has the
// remembered events in between, for any launcher to publish.
func (p *publisher) outbox(before uint64, next lease.Record) []lease.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	outbox := slices.DeleteFunc(next.Outbox, p.isPublished)
	lost := p.memory.missing(before, next, outbox)
	if len(lost) == 0 {
		return outbox
	}
	delete(p.tails, next.ProfileID)
	outbox = slices.Concat(outbox, lost)
	slices.SortFunc(outbox, func(a, b lease.Event) int { return comparePosition(a, positionOf(b)) })
	return outbox
}

// busy ends the idle state and wakes the goroutine. The caller holds mu.
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

// closeIfIdle closes idle if there is nothing to do.
func (p *publisher) closeIfIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping || len(p.queue) > 0 || len(p.announced) > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// queued returns how many events are in the queue, and a channel that is closed when there
// is nothing to do.
func (p *publisher) queued() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.announced)
	for _, q := range p.queue {
		n += len(q)
	}
	return n, p.idle
}

// waiting returns the profiles that have events in the queue.
func (p *publisher) waiting() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

// head returns the next event of the profile to publish, if there is one.
func (p *publisher) head(profile string) (lease.Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queue[profile]; len(q) > 0 {
		return q[0], true
	}
	return lease.Event{}, false
}

// pop removes an event from the queue, unless another one has replaced it meanwhile.
func (p *publisher) pop(e lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	profile := e.ProfileID
	queue := slices.DeleteFunc(slices.Clone(p.queue[profile]), func(q lease.Event) bool { return isSame(q, e) })
	if len(queue) > 0 {
		p.queue[profile] = queue
		return
	}
	delete(p.queue, profile)
	p.order = slices.DeleteFunc(p.order, func(s string) bool { return s == profile })
}

// publish stores the event on the stream, unless it is there already. Before it, it stores the
// remembered events that the stream has lost.
func (p *publisher) publish(ctx context.Context, e lease.Event) error {
	twice := position{} // position of the last event that the server took for one it has
	for {
		losses := p.s.events.lossCount()
		last, err := p.tail(ctx, e.ProfileID)
		if err != nil {
			return err
		}
		if !positionOf(e).after(last.position) {
			p.confirm(e)
			return nil
		}
		next, err := p.due(ctx, last, e)
		if err != nil {
			return err
		}
		ack, err := p.send(ctx, next, last.seq)
		v := judge(err)
		if v == stored && !ack.Duplicate {
			p.s.events.saw(ack.Sequence)
			p.published(next, tail{positionOf(next), ack.Sequence}, losses)
			continue
		}
		p.forgetTail(e.ProfileID)
		switch v {
		case stored: // by an earlier attempt, which the server recognized, and will show soon
			if twice == positionOf(next) {
				return unavailable(fmt.Errorf("%s %d.%d: %w", next.Event, next.Token, next.Sequence, errNotShown))
			}
			twice = positionOf(next)
		case refused:
			if isSame(next, e) {
				return err
			}
			p.forget(next)
		case notSent, unknown, gone:
			_, _ = p.s.refresh(ctx, p.s.events)
			return unavailable(err)
		}
		if pause(ctx, v.wait()); ctx.Err() != nil {
			return unavailable(err)
		}
	}
}

// due returns the event to publish next, on the way from the end of the stream to e: a
// remembered event that was lost, or e itself. If the stream has no event of the profile, and
// is not a new one, all of them may have been removed because it is full.
func (p *publisher) due(ctx context.Context, last tail, e lease.Event) (lease.Event, error) {
	p.mu.Lock()
	lost, ok := p.memory.between(last.position, e)
	p.mu.Unlock()
	if !ok {
		return e, nil
	}
	if last.seq == 0 {
		info, err := p.s.refresh(ctx, p.s.events)
		if err != nil {
			return e, unavailable(err)
		}
		if info.State.FirstSeq > 1 {
			return e, nil
		}
	}
	return lost, nil
}

// confirm notes that an event is on the stream, where somebody else has put it.
func (p *publisher) confirm(e lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.confirm(e)
}

func (p *publisher) send(ctx context.Context, e lease.Event, last uint64) (*jetstream.PubAck, error) {
	msg, err := eventMessage(e, fmt.Sprintf("%s.%d.%d", e.ProfileID, e.Token, e.Sequence))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.s.tryTime)
	defer cancel()
	return p.s.events.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequenceForSubject(last, transitionsOf(e.ProfileID)), jetstream.WithRetryAttempts(0))
}

// published notes that an event was stored, as the profile's last one.
func (p *publisher) published(e lease.Event, t tail, losses uint64) {
	p.setTail(e.ProfileID, t, losses)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.publish(e)
}
