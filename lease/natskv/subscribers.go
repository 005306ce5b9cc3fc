package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsd"
)

// copyInterval is how often the subscribers' copy is checked while nothing is known to be wrong
// with it. A subscriber can make the server remove it.
const copyInterval = 10 * time.Second

// lacksTime is how long the copy has to lack what the event stream has before it is made again.
// Each of them removes its oldest messages by itself, and not at the same time.
const lacksTime = 10 * time.Minute

// copyPause is about how long a subscriber's greeting waits before it looks at the copy again.
const copyPause = 20 * time.Millisecond

// copyOf is the key in the copy's metadata that says which event stream it copies: an event
// stream that was made again is another one.
const copyOf = "leasehold_copy_of"

// copier keeps the copy of the event stream in the subscribers' account, if the server has such
// an account. The copy is a mirror, fed by a consumer that the copier makes: nothing that a
// subscriber does in its account can put a message on the event stream or on the copy. The copy
// has the sequences and subjects of the event stream.
//
// On a server of this launcher's own the copy is made when the first subscriber comes, whose greeting
// waits for it (Store.CopyEvents). From then on it is kept.
type copier struct {
	s    *Store
	js   jetstream.JetStream // of the subscribers' account
	quit chan struct{}
	done chan struct{}
	wake chan struct{}
	// wanted is closed when there has to be a copy.
	wanted chan struct{}
	want   func() // closes wanted, once
	// complete says that the copy once had all events of the stream.
	complete atomic.Bool

	// Only run's goroutine uses these, and startCopier before that goroutine begins.

	// aheadSince is since when the copy has ended above the event stream; zero if it does not.
	aheadSince time.Time
	// lacksSince is since when the copy has begun above the event stream's first event, which
	// all that time has had the sequence lacks; zero if it does not.
	lacksSince time.Time
	lacks      uint64
}

// errCopy says that the copy cannot be kept, and what to do.
var errCopy = errors.New("the subscribers' copy of the event stream")

// startCopier makes the copy if it is missing, within ctx, and then keeps it. If it cannot be
// made, that is not an error: it is logged and tried again.
func startCopier(ctx context.Context, s *Store) (*copier, error) {
	js, err := jetstream.NewWithAPIPrefix(s.nc, natsd.SubscribersAPI)
	if err != nil {
		return nil, err
	}
	c := &copier{s: s, js: js, quit: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), wanted: make(chan struct{})}
	c.want = sync.OnceFunc(func() { close(c.wanted) })
	if there := c.isThere(ctx); there || !s.ownServer {
		c.complete.Store(there)
		c.want()
		err = c.keep(ctx)
	}
	go c.run(err)
	return c, nil
}

// isThere tells whether there is a copy, or that is not known.
func (c *copier) isThere(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.s.tryTime)
	defer cancel()
	_, err := c.js.Stream(ctx, Stream)
	return !errors.Is(err, jetstream.ErrStreamNotFound)
}

// CopyEvents has the subscribers' copy made, if nobody has wanted it before, and returns when it has
// all events that are on the stream now: a subscriber that is there earlier would get old events for
// new ones.
func (s *Store) CopyEvents(ctx context.Context) error {
	if s.copier.complete.Load() {
		return nil
	}
	events, err := s.refresh(ctx, s.events)
	if err != nil {
		return unavailable(err)
	}
	s.copier.want()
	for {
		have, err := s.copier.js.Stream(ctx, Stream)
		if err == nil && have.CachedInfo().State.LastSeq >= events.State.LastSeq {
			s.copier.complete.Store(true)
			return nil
		}
		if pause(ctx, copyPause); ctx.Err() != nil || judge(err) == gone {
			return unavailable(fmt.Errorf("%w has not all %d events yet: %w", errCopy, events.State.LastSeq, cmp.Or(err, ctx.Err())))
		}
	}
}

// stop ends the copier after its current work, so that the server is not asked for a stream
// whose making nobody waits for.
func (c *copier) stop() {
	close(c.quit)
	<-c.done
}

// look arranges that the copy is checked soon.
func (c *copier) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *copier) run(err error) {
	defer close(c.done)
	select {
	case <-c.wanted:
	case <-c.quit:
		return
	}
	c.look() // it is made at once if it was not wanted until now
	said := ""
	for {
		wait := copyInterval
		if err != nil {
			wait = maxBackoff
		}
		// Others log that the server does not answer.
		if text := fmt.Sprint(err); err != nil && judge(err) != gone && text != said {
			c.s.log.Warn().Err(err).Msg("subscribers do not get all events")
			said = text
		}
		select {
		case <-c.quit:
			return
		case <-time.After(wait):
		case <-c.wake:
		}
		if err = c.keep(context.Background()); err == nil {
			said = ""
		}
	}
}

// keep makes the copy or its consumer if they are missing, and makes the copy again if it belongs
// to an event stream that no longer exists, has other bounds than the event stream, or lacks an
// event. It does nothing if the server has no account for subscribers.
func (c *copier) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.s.tryTime)
	defer cancel()
	have, err := c.js.Stream(ctx, Stream)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return nil // no account for subscribers
	case errors.Is(err, jetstream.ErrStreamNotFound):
		have = nil
	case err != nil:
		return fmt.Errorf("%w: %w", errCopy, err)
	}
	// The event stream is asked after its copy, so that it has everything that the copy has.
	events, err := c.s.events.js.Stream(ctx, Stream)
	if err != nil {
		return fmt.Errorf("%w: %w", errCopy, err)
	}
	origin := events.CachedInfo()
	switch {
	case have == nil:
		return c.remake(ctx, origin)
	case have.CachedInfo().Config.Mirror == nil:
		return fmt.Errorf("%w: the account of the subscribers has a stream %s that is none: remove it", errCopy, Stream)
	case !c.fits(have.CachedInfo(), origin, time.Now()):
		c.s.log.Warn().Uint64("last_sequence", origin.State.LastSeq).Uint64("copied", have.CachedInfo().State.LastSeq).
			Int("missing", have.CachedInfo().State.NumDeleted).Msg("the subscribers' copy is not one of the event stream that is there, and is made again")
		if err := c.js.DeleteStream(ctx, Stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: remove the old one: %w", errCopy, err)
		}
		return c.remake(ctx, origin)
	}
	_, err = events.PushConsumer(ctx, natsd.FeedConsumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		// The consumer begins with the first event. The copy leaves out the events that it has
		// already.
		_, err = events.CreatePushConsumer(ctx, feedConfig())
	}
	if err != nil {
		return fmt.Errorf("%w: its consumer: %w", errCopy, err)
	}
	return nil
}

// fits tells whether the copy belongs to this event stream. A replicated stream may end below
// its copy for a while, after a change of leader.
func (c *copier) fits(have, origin *jetstream.StreamInfo, now time.Time) bool {
	if have.Config.Metadata[copyOf] != incarnation(origin) {
		return false
	}
	// Its configuration cannot be changed from the launchers' account.
	if have.Config.MaxBytes != origin.Config.MaxBytes || have.Config.MaxAge != origin.Config.MaxAge {
		return false
	}
	// A mirror skips what its consumer has acknowledged, even if a crash of several servers
	// took that from the mirror. Nothing is ever deleted from the event stream.
	if have.State.NumDeleted > origin.State.NumDeleted {
		return false
	}
	if c.lacksFirst(have, origin, now) {
		return false
	}
	if have.State.LastSeq <= origin.State.LastSeq {
		c.aheadSince = time.Time{}
		return true
	}
	if c.aheadSince.IsZero() {
		c.aheadSince = now
	}
	return origin.Config.Replicas > 1 && now.Sub(c.aheadSince) < doubtTime
}

// lacksFirst tells whether the copy lacks the first events, for example because its consumer
// had already passed them on to an earlier copy when it was made. Each stream removes old
// messages by itself, and either may be the first to do so: only what stays on the event stream
// counts.
func (c *copier) lacksFirst(have, origin *jetstream.StreamInfo, now time.Time) bool {
	first := origin.State.FirstSeq
	if origin.State.Msgs == 0 || have.State.FirstSeq <= first {
		c.lacksSince = time.Time{}
		return false
	}
	if c.lacksSince.IsZero() || c.lacks != first {
		c.lacksSince, c.lacks = now, first
	}
	return now.Sub(c.lacksSince) >= lacksTime
}

// remake makes the copy, with a consumer that begins with the first event.
func (c *copier) remake(ctx context.Context, origin *jetstream.StreamInfo) error {
	c.aheadSince, c.lacksSince = time.Time{}, time.Time{}
	if err := c.s.events.js.DeleteConsumer(ctx, Stream, natsd.FeedConsumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("%w: its consumer: %w", errCopy, err)
	}
	if _, err := c.s.events.js.CreatePushConsumer(ctx, Stream, feedConfig()); err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("%w: its consumer: %w", errCopy, err)
	}
	_, err := c.js.CreateStream(ctx, c.config(origin))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another launcher was first
		return fmt.Errorf("%w: %w", errCopy, err)
	}
	return nil
}

func incarnation(info *jetstream.StreamInfo) string {
	return info.Created.UTC().Format(time.RFC3339Nano)
}

func (c *copier) config(origin *jetstream.StreamInfo) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         Stream,
		Description:  "Leasehold: what happened to profiles; a copy for subscribers",
		Metadata:     map[string]string{copyOf: incarnation(origin)},
		MaxAge:       origin.Config.MaxAge,
		MaxMsgs:      -1,
		MaxBytes:     origin.Config.MaxBytes,
		MaxConsumers: -1,
		Storage:      jetstream.FileStorage,
		Replicas:     c.s.replicas,
		DenyDelete:   true,
		DenyPurge:    true,
		AllowDirect:  true,
		Mirror: &jetstream.StreamSource{
			Name:     Stream,
			External: &jetstream.ExternalStream{APIPrefix: natsd.LaunchersAPI},
			Consumer: &jetstream.StreamConsumerSource{Name: natsd.FeedConsumer, DeliverSubject: natsd.FeedSubject},
		},
	}
}

// feedConfig is the configuration of the consumer that feeds the copy, in the form that a
// mirror needs.
func feedConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        natsd.FeedConsumer,
		Description:    "Leasehold: feeds the subscribers' copy",
		DeliverSubject: natsd.FeedSubject,
		AckPolicy:      jetstream.AckFlowControlPolicy,
		FlowControl:    true,
		IdleHeartbeat:  time.Second,
		MaxAckPending:  1000,
	}
}
