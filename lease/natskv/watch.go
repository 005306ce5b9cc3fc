package natskv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

// pollTime is the shortest time between two polls of a watch, in which it compares what it saw
// with what the stream says about itself. The longest is twice that. The time is random, so
// that launchers do not all ask at the same moment.
//
// Nobody but the launcher itself can take a stream of its own server away, and a server that was
// started again has cut all connections, so that every watch has begun anew. There, and for a
// bucket on which nothing depends, it is slowPollTime, twice which is less than inactiveTime; all
// watches of a process then poll at the same moment, which wakes it once.
const (
	pollTime     = time.Second
	slowPollTime = 15 * time.Second
)

// began is about when this process began.
var began = time.Now()

func pollWait(slow bool) time.Duration {
	if slow {
		return 2*slowPollTime - time.Since(began)%slowPollTime
	}
	return pollTime + rand.N(pollTime)
}

type watch struct {
	s   *Store
	see func(lease.Sight)
	// losses is the bucket's count of losses that was reported to see.
	losses uint64
	// shown has the last write of each profile that was reported to see.
	shown map[string]version
	// at is the sequence of the bucket up to which the watch has seen everything.
	at uint64
	// missing has the profiles that were reported before the watch started again, and have not
	// been reported since.
	missing map[string]struct{}
}

// version identifies a write. The revision alone does not, since a bucket that went back uses
// revisions again.
type version struct {
	revision uint64
	nonce    string
}

// Watch is part of lease.Store. It calls see in its caller's goroutine, however long see takes,
// and returns nil when ctx ends. After any other fault it starts again, unless the connection
// was closed for good, which is its only error. A record that was deleted, or lost with the
// bucket, is reported as one without a state.
func (s *Store) Watch(ctx context.Context, see func(lease.Sight)) error {
	w := watch{s: s, see: see, losses: s.leases.lossCount(), shown: map[string]version{}}
	backoff := minBackoff
	for {
		began := time.Now()
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the caller has ended it
		case s.nc.IsClosed():
			return fmt.Errorf("watch leases: %w", unavailable(nats.ErrConnectionClosed))
		case time.Since(began) > maxBackoff:
			backoff = minBackoff
		}
		s.log.Debug().Err(err).Msg("the watch of the leases begins anew")
		pause(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// once watches from Fresh until the watch is no longer reliable, and returns why it is not.
func (w *watch) once(ctx context.Context) error {
	info, err := w.s.refresh(ctx, w.s.leases.stream)
	if err != nil {
		return err
	}
	// What is stored from now on is among the records that follow, or comes after them.
	w.fresh(info)
	all := []string{w.s.leases.subject(">")}
	newest, err := w.s.newest(ctx, w.s.leases.stream, all)
	if err != nil {
		return err
	}
	f, err := w.s.follow(ctx, w.s.leases.stream, all, jetstream.DeliverLastPerSubjectPolicy)
	if err != nil {
		return err
	}
	defer f.stop(ctx)
	if err := w.all(ctx, f, info, newest); err != nil {
		return err
	}
	return w.changes(ctx, f)
}

// fresh says that every record follows. info is what the server said about the bucket.
func (w *watch) fresh(info *jetstream.StreamInfo) {
	w.at = 0
	losses := w.s.leases.lossCount()
	w.see(lease.Sight{Fresh: true, Stepped: losses != w.losses, Age: ageOf(info), Number: losses + 1})
	if w.missing == nil {
		w.missing = map[string]struct{}{}
	}
	for profile := range w.shown {
		w.missing[profile] = struct{}{}
	}
	if losses != w.losses {
		clear(w.shown)
	}
	w.losses = losses
}

// all reports every record. newest is the number of the last one, as the bucket's leader knows it: the
// follower may be on a replica that does not have it yet, and says that nothing remains.
func (w *watch) all(ctx context.Context, f *follower, info *jetstream.StreamInfo, newest uint64) error {
	for f.remaining > 0 || w.at < newest {
		m, err := f.next(ctx, w.s.tryTime)
		if err == nil {
			err = w.show(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	for profile := range w.missing {
		w.see(lease.Sight{Entry: lease.Entry{Record: lease.Record{ProfileID: profile}}})
		delete(w.shown, profile)
	}
	w.missing = nil
	w.at = max(w.at, info.State.LastSeq)
	w.see(lease.Sight{Complete: true})
	return nil
}

// Look is part of lease.Store.
func (s *Store) Look(ctx context.Context) (lease.Sight, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	info, err := s.refresh(ctx, s.leases.stream)
	if err != nil {
		return lease.Sight{}, unavailable(err)
	}
	return lease.Sight{Fresh: true, Age: ageOf(info), Number: s.leases.lossCount() + 1}, nil
}

// ageOf is how long a stream has existed, by the server's clock.
func ageOf(info *jetstream.StreamInfo) time.Duration {
	return max(info.TimeStamp.Sub(info.Created), 0)
}

// changes reports every change, until the watch is no longer reliable.
func (w *watch) changes(ctx context.Context, f *follower) error {
	var polled, at uint64 // the sequences of the bucket and of the watch at the last poll
	for {
		poll := time.Now().Add(pollWait(w.s.ownServer))
		for wait := time.Until(poll); wait > 0; wait = time.Until(poll) {
			m, err := f.next(ctx, wait)
			if errors.Is(err, errQuiet) {
				break
			}
			if err == nil {
				m.At = time.Time{} // it is new, whatever the server's clock says
				err = w.show(ctx, m)
			}
			if err != nil {
				return err
			}
		}
		last, err := w.poll(ctx)
		switch {
		case err != nil:
			return err
		case w.at < polled && w.at == at:
			return fmt.Errorf("%w: it saw nothing after %d, where the bucket is at %d", errBroken, w.at, last)
		}
		polled, at = last, w.at
	}
}

// poll refreshes the streams, making those that are missing, and returns the last sequence of
// the bucket.
func (w *watch) poll(ctx context.Context) (last uint64, _ error) {
	for _, st := range []*stream{w.s.hosts.stream, w.s.events} {
		if _, err := w.s.refresh(ctx, st); err != nil {
			return 0, err
		}
	}
	info, err := w.s.refresh(ctx, w.s.leases.stream)
	switch {
	case err != nil:
		return 0, err
	case w.s.leases.lossCount() != w.losses:
		return 0, fmt.Errorf("%w: the bucket was lost or went back", errBroken)
	}
	return info.State.LastSeq, nil
}

func (w *watch) show(ctx context.Context, m message) error {
	w.at = m.Seq
	key := keyOf(m)
	profile := lease.ProfileOfKey(key)
	if lease.CheckProfileID(profile) != nil || lease.Key(profile) != key {
		return nil //nolint:nilerr // it is not the key of a profile
	}
	delete(w.missing, profile)
	entry := lease.Entry{Record: lease.Record{ProfileID: profile}, Revision: m.Seq}
	if !m.deleted() {
		m, err := w.s.newestValid(ctx, w.s.leases, key, m)
		var foreign *foreignError
		switch {
		case errors.As(err, &foreign):
			w.s.log.Warn().Err(err).Str("profile", profile).Msg("not shown to the watch")
			return nil //nolint:nilerr // one key must not end the watch of all others
		case err != nil:
			return err
		}
		entry = w.s.recordEntry(m)
	}
	now, before := version{m.Seq, entry.Record.Nonce}, w.shown[profile]
	if now.revision < before.revision || now.revision == before.revision && now.nonce != before.nonce {
		if err := w.checkWentBack(ctx, key, before); err != nil {
			return err
		}
		return fmt.Errorf("%w: revision %d of %s after %d", errBroken, now.revision, profile, before.revision)
	}
	w.shown[profile] = now
	w.s.pub.remember(entry.Record.Outbox)
	w.see(lease.Sight{Entry: entry})
	return nil
}

// checkWentBack finds out whether the bucket went back, after a key was read with an older
// write than before, and counts a loss if it did. Otherwise the read came from a replica
// that lags behind.
func (w *watch) checkWentBack(ctx context.Context, key string, before version) error {
	leases := w.s.leases
	info, err := w.s.refresh(ctx, leases.stream)
	if err != nil || leases.lossCount() != w.losses || info.State.LastSeq < before.revision {
		return err // the loss is counted already, or the next polls notice it
	}
	asking, cancel := context.WithTimeout(ctx, w.s.tryTime)
	defer cancel()
	lost := false
	m, err := w.s.read(asking, leases.stream, natsget.Request{Seq: before.revision})
	if errors.Is(err, natsget.ErrNone) {
		// The bucket never drops the last message of a key, so if the bucket did not go back
		// there is a later one.
		m, err = w.s.last(asking, leases, key)
		if lost = errors.Is(err, natsget.ErrNone) || err == nil && m.Seq < before.revision; lost {
			err = nil
		}
	} else if err == nil {
		nonce, ok := leases.nonce(key, m.Data)
		lost = m.Subject != leases.subject(key) || ok && nonce != before.nonce
	}
	if lost {
		leases.wentBack()
	}
	return err
}
