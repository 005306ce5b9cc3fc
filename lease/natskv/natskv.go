// Package natskv keeps leases in NATS: the records in the JetStream KV bucket
// leasehold_leases, one key per profile; the presences in the bucket
// leasehold_hosts, one key per launcher; the events in the stream
// leasehold_events.
//
// What is promised. A record or presence changes by compare-and-swap only, and an
// unanswered write is settled by sending the same bytes again and comparing a
// nonce. A write whose sender gave up before it was settled is settled in the
// background, by using up the revision that it expects: it was applied, or it
// never is. The event of a transition lies in the outbox of the record that made
// it, so neither can be had without the other; it reaches the stream exactly once,
// and the events of one profile in the order of their transitions, whichever
// launchers publish them and whenever they crash. A bucket or stream that was
// deleted is made again by whoever notices.
//
// What is not. No read is proof: a server that was cut off from its cluster goes
// on answering old values for seconds. Servers that do not sync every write lose
// acknowledged records at a power cut; JetStream has no way to ask a server that
// is not embedded whether it does. A bucket that was lost or restored from an old
// copy is seen as it is (a watch says so): token floors beside the profiles guard
// against that. The background ends with Close and with the process: a write that
// is still held up in the network then may be applied later, if nothing else is
// written to the key before.
package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
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
	// tryTime bounds one request, callTime a call whose context has no
	// deadline.
	tryTime  = 2 * time.Second
	callTime = 5 * time.Second
	// retryWait is about how long a read waits before it asks again.
	retryWait = 100 * time.Millisecond
	// api is the API prefix of JetStream.
	api = "$JS.API"
	// closeTime bounds what Close still settles and publishes.
	closeTime = 2 * time.Second
)

// Options of a Store.
type Options struct {
	// Replicas of the buckets and the stream when they are made: 1 (also if
	// zero) for a single server, 3 or 5 for a cluster.
	Replicas int
	Log      zerolog.Logger
	// LauncherID names this launcher in the log.
	LauncherID string

	// tryTime replaces the constant in tests, which lose many answers.
	tryTime time.Duration
}

// Store is a lease.Store on JetStream. It may be used by several goroutines.
type Store struct {
	nc  *nats.Conn
	log zerolog.Logger

	leases, hosts bucket
	events        *stream
	replicas      int

	pub     *publisher
	settler *settler
	// tryTime bounds one request.
	tryTime time.Duration

	closing sync.Once
}

var _ lease.Store = (*Store)(nil)

// Open returns a Store on the connection, which has to have ReconnectBufSize(-1)
// (natsd.Connect and natsd.Dial make such) and stays the caller's. It makes the
// buckets and the stream if they are missing, and refuses ones that were
// configured so that records or events would vanish. Events that a crashed
// launcher left unpublished are published in the background from then on.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Store, error) {
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("nats connection keeps writes while the server is away, and sends them later: want nats.ReconnectBufSize(-1)")
	}
	if err := checkVersion(nc.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	s := &Store{
		nc: nc, tryTime: cmp.Or(o.tryTime, tryTime), replicas: max(o.Replicas, 1),
		leases: bucket{nonce: recordNonce},
		hosts:  bucket{nonce: presenceNonce},
		log:    o.Log.With().Str("component", "lease_store").Str("launcher", o.LauncherID).Logger(),
	}
	var errs [3]error
	s.leases.stream, errs[0] = newStream(nc, api, leasesConfig, leasesDrift)
	s.hosts.stream, errs[1] = newStream(nc, api, hostsConfig, hostsDrift)
	s.events, errs[2] = newStream(nc, natsd.EventsAPI(nc), eventsConfig, eventsDrift)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("lease store: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.pub = startPublisher(s)
	s.settler = startSettler(s)
	return s, nil
}

// Close settles and publishes what can still be within two seconds, and stops.
// Events that are left stay in the records' outboxes, for the next Open by anybody.
func (s *Store) Close() {
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := s.Flush(ctx); err != nil {
			s.log.Warn().Err(err).Msg("left when the lease store was closed; events stay in the outboxes of their records")
		}
		s.settler.stop()
		s.pub.stop()
	})
}

// Ping asks the leader of the bucket for a sign of life. lease.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	if _, err := s.leases.js.Stream(ctx, s.leases.name); err != nil {
		return unavailable(err)
	}
	return nil
}

// bounded gives a context without a deadline one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
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
