// Package natskv keeps leases in NATS: the records in the JetStream KV bucket
// leasehold_leases, one key per profile; the presences in the bucket
// leasehold_hosts, one key per launcher; the events in the stream
// leasehold_events; the requests that wait in the bucket leasehold_queue; and what is
// known of sites in the bucket leasehold_sites.
//
// What is promised:
//
//   - A record or presence changes by compare-and-swap only. A write that got no answer
//     is settled, which means that its sender finds out whether it was stored: it sends
//     the same bytes again and compares a nonce.
//   - If the sender gives up before that, the write is settled in the background, by
//     another write on condition of the same revision. Then the write was either stored
//     by that time, or it never will be.
//   - The event of a transition is in the outbox of the record that made the transition,
//     so neither is ever stored without the other. The event reaches the stream exactly
//     once, and the events of one profile in the order of their transitions, whichever
//     launchers publish them and whenever they crash.
//   - A bucket or stream that was deleted is made again by whoever notices.
//   - Where the server has an account for subscribers, that has a copy of the event stream,
//     in which nothing stands but what the event stream has.
//
// What is not promised:
//
//   - No read is proof. A server that was cut off from its cluster answers with old
//     values for seconds.
//   - Servers that do not sync every write lose acknowledged records at a power cut.
//     JetStream has no way to ask a server that is not embedded whether it syncs.
//   - A bucket that was lost, or restored from an old copy, is used as it is, although a
//     watch reports it. The token floors beside the profiles guard against that.
//   - The background work ends with Close and with the process. A write that is still
//     delayed in the network at that time may be stored later, if nothing else is
//     written to the key before.
package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

const (
	// Bucket is the KV bucket of the records.
	Bucket = "leasehold_leases"
	// Hosts is the KV bucket of the presences.
	Hosts = "leasehold_hosts"
	// Stream is the JetStream stream of the events.
	Stream = "leasehold_events"
)

const (
	// tryTime limits one request; callTime, a call whose context has no deadline.
	tryTime  = 2 * time.Second
	callTime = 5 * time.Second
	// retryWait is about how long a read waits before it asks again.
	retryWait = 100 * time.Millisecond
	// api is the API prefix of JetStream.
	api = "$JS.API"
	// closeTime limits how long Close settles writes and publishes events.
	closeTime = 2 * time.Second
)

// Options of a Store.
type Options struct {
	// Replicas is how many replicas the buckets and the stream get when they are
	// made: 1 for a single server, 3 or 5 for a cluster. Zero means 1.
	Replicas int
	// EventBytes is the greatest size of the event stream; zero: no limit. At the limit the
	// oldest events are removed.
	EventBytes int64
	// OwnServer says that the server is this launcher's own, so that an existing stream gets
	// EventBytes, too, whatever its limit was.
	OwnServer bool
	Log       zerolog.Logger
	// LauncherID names this launcher in the log.
	LauncherID string
	// Metrics gets the number of events that are not published yet; nil: there are no metrics.
	Metrics prometheus.Registerer

	// tryTime replaces the constant in tests in which many answers get lost.
	tryTime time.Duration
}

// Store is a lease.Store on JetStream. It may be used by several goroutines.
type Store struct {
	nc  *nats.Conn
	log zerolog.Logger

	leases, hosts bucket
	events        *stream
	queue, sites  *stream
	replicas      int
	ownServer     bool

	pub     *publisher
	copier  *copier
	settler *settler
	// tryTime limits one request.
	tryTime time.Duration

	closing sync.Once
}

var _ lease.Store = (*Store)(nil)

// Open returns a Store on the connection, which the caller closes after the Store. The
// connection has to have the option ReconnectBufSize(-1), as those of natsd.Dial and
// natsd.Server.Connect have. Open makes the buckets and the stream if they are missing.
// A *DriftError says that one of them is configured so that records or events could
// vanish. In the background, the Store then publishes events that launchers left in the
// outboxes of their records when they crashed.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Store, error) {
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("nats connection keeps writes while the server is away, and sends them later: want nats.ReconnectBufSize(-1)")
	}
	if err := checkVersion(nc.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	s := &Store{
		nc: nc, tryTime: cmp.Or(o.tryTime, tryTime), replicas: max(o.Replicas, 1), ownServer: o.OwnServer,
		leases: bucket{nonce: recordNonce},
		hosts:  bucket{nonce: presenceNonce},
		log:    o.Log.With().Str("component", "lease_store").Str("launcher", o.LauncherID).Logger(),
	}
	var errs [5]error
	s.leases.stream, errs[0] = newStream(nc, api, leasesConfig, leasesDrift)
	s.hosts.stream, errs[1] = newStream(nc, api, hostsConfig, hostsDrift)
	s.events, errs[2] = newStream(nc, api, func() jetstream.StreamConfig { return eventsConfig(o.EventBytes) }, eventsDrift)
	s.queue, errs[3] = newStream(nc, api, queueConfig, queueDrift)
	s.sites, errs[4] = newStream(nc, api, sitesConfig, sitesDrift)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("lease store: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.copier, err = startCopier(ctx, s); err != nil {
		return nil, fmt.Errorf("lease store: %w", err)
	}
	s.pub = startPublisher(s)
	if o.Metrics != nil {
		o.Metrics.MustRegister(s.pub.gauges()...)
	}
	s.settler = startSettler(s)
	return s, nil
}

// Close settles writes and publishes events for up to two seconds, and then ends the background
// work. Events of transitions that are not published by then stay in the outboxes of their records, and
// are published by the next launcher that calls Open.
func (s *Store) Close() {
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := s.Flush(ctx); err != nil {
			s.log.Warn().Err(err).Msg("left when the lease store was closed; events of transitions stay in the outboxes of their records")
		}
		s.settler.stop()
		s.pub.stop()
		s.copier.stop()
	})
}

// Ping returns nil if the leader of the bucket of records answers, and otherwise
// lease.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	if _, err := s.leases.js.Stream(ctx, s.leases.name); err != nil {
		return unavailable(err)
	}
	return nil
}

// Reached tells whether, for all that is known without asking, Ping would have returned nil within
// the last while: the leader of the bucket of records has answered, or a server of this launcher's
// own, which has all streams.
func (s *Store) Reached(while time.Duration) bool {
	at := s.leases.answered()
	if s.ownServer {
		at = slices.MaxFunc([]time.Time{at, s.leases.lastSaw(), s.hosts.lastSaw()}, time.Time.Compare)
	}
	return s.nc.IsConnected() && time.Since(at) <= while
}

// Time is part of lease.ClockStore: the clock of the leader of the bucket of records.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	info, err := s.refresh(ctx, s.leases.stream)
	if err != nil {
		return time.Time{}, unavailable(err)
	}
	return info.TimeStamp, nil
}

// withDeadline gives a context that has no deadline one after callTime.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTime)
}

func unavailable(cause error) error {
	if errors.Is(cause, lease.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, cause)
}

// pause sleeps for a random time from half of d to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
