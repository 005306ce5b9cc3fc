package natskv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

// verdict is what the answer to one attempt of a conditional write says about it.
type verdict int

const (
	stored verdict = iota
	// moved: this attempt was not stored, because the expected revision is not the last one. An
	// earlier attempt of the same write may be the one that moved it.
	moved
	// inFlight: this attempt was not stored, because another write to the key, or an earlier
	// attempt of this one, is under way. The expected revision may be right.
	inFlight
	// notSent: this attempt was not stored, because no server accepted it or had room for it.
	notSent
	// unknown: this attempt may or may not have been stored.
	unknown
	// refused: this attempt was not stored, and the same bytes never will be.
	refused
	// gone: the connection was closed for good.
	gone
)

const (
	// codeInFlight is the answer of a replicated stream while another write to the
	// subject is under way.
	codeInFlight = jetstream.JSErrCodeStreamWrongLastSequenceConstant
	// codeTwice is its answer while an earlier attempt with the same message id is under way.
	codeTwice jetstream.ErrorCode = 10158
	// codeFull is the answer of a stream that has reached its limit.
	codeFull jetstream.ErrorCode = 10077
)

// judge returns what err, the result of a conditional write, says about that write.
func judge(err error) verdict {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return stored
	case errors.As(err, &api):
		switch {
		case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			return moved
		case api.ErrorCode == codeInFlight, api.ErrorCode == codeTwice:
			return inFlight
		case api.ErrorCode == codeFull, api.ErrorCode == jetstream.JSErrCodeStreamNotFound:
			return notSent
		case api.Code >= 500:
			return unknown
		}
		return refused
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrReconnectBufExceeded):
		return notSent
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		return gone
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		return refused
	}
	return unknown
}

// wait returns how long to wait, at most, before the same bytes are sent again.
func (v verdict) wait() time.Duration {
	switch v {
	case notSent:
		return 100 * time.Millisecond
	case unknown:
		return 50 * time.Millisecond
	default:
		return 20 * time.Millisecond
	}
}

// write is one compare-and-swap under way. Each try sends the same bytes.
type write struct {
	bucket bucket
	key    string
	data   []byte
	nonce  string
	// create says that the caller expects no value at the key. expected is the revision that
	// has to be the last one of the key.
	create   bool
	expected uint64
	// number is the number of the only store in which the record may be made; zero: any.
	number uint64
	// ambiguous says that an attempt may have been stored.
	ambiguous bool
	// losses is the bucket's count of losses before the first attempt.
	losses uint64
	// before returns the value of the key at the expected revision, as the caller
	// knows it, with a new nonce.
	before func() ([]byte, error)
	// dropped is lease.Entry.Dropped; nil: nobody asks.
	dropped func()
}

// movedError says that the expected revision is not the last one.
type movedError struct {
	// now is the last message of the key; its Seq is zero if the key has no value. It is nil if
	// the message could not be read.
	now *message
}

func (*movedError) Error() string { return "another write came first" }

// newWrite returns a write of value, which contains nonce, over the expected revision.
// before returns the value that the key has at that revision, with a new nonce.
func newWrite(b bucket, key string, expected uint64, nonce string, value any, before func() any) (*write, error) {
	data, err := lease.Encode(value)
	if err != nil {
		return nil, err
	}
	return &write{
		bucket: b, key: key, data: data, nonce: nonce, create: expected == 0, expected: expected,
		before: func() ([]byte, error) { return lease.Encode(before()) },
	}, nil
}

// cas carries out the write and returns its revision. One attempt takes at most two seconds,
// and the call takes as long as ctx allows. A key whose value was deleted is treated as one
// that never had any. A write that may still be stored when cas gives up is passed to the
// settler. Errors: *movedError, lease.ErrUnavailable, and the reason why the store refuses the
// write.
func (s *Store) cas(ctx context.Context, w *write) (uint64, error) {
	w.losses = w.bucket.lossCount()
	revision, err := s.tryCAS(ctx, w)
	if err == nil {
		err = s.checkNumber(ctx, w)
	} else if w.ambiguous {
		s.settler.add(w)
	} else if errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, errUntraceable) {
		s.settler.drop(w) // no attempt of it can have been stored
	}
	return revision, err
}

func (s *Store) tryCAS(ctx context.Context, w *write) (uint64, error) {
	for {
		ack, err := s.send(ctx, w)
		v := judge(err)
		switch v {
		case stored:
			w.bucket.saw(ack.Sequence)
			return ack.Sequence, nil
		case moved:
			if revision, done, err := s.resolve(ctx, w); done {
				return revision, err
			}
		case refused:
			// An earlier attempt may have been stored all the same.
			if !w.ambiguous {
				return 0, fmt.Errorf("the store refuses the %d bytes: %w", len(w.data), err)
			}
		case gone:
			return 0, unavailable(err)
		case notSent:
			_, _ = s.refresh(ctx, w.bucket.stream)
		case unknown:
			w.ambiguous = true
		}
		if pause(ctx, v.wait()); ctx.Err() != nil {
			return 0, unavailable(err)
		}
	}
}

// checkNumber finds out whether a record was made in the store for which it was meant. This is
// asked after the write: if it were asked before, the store could be lost between the answer
// and the write.
func (s *Store) checkNumber(ctx context.Context, w *write) error {
	if w.number == 0 {
		return nil
	}
	now, err := s.Look(ctx)
	if err == nil && now.Number != w.number {
		err = errReplaced
	}
	if err != nil {
		return unavailable(fmt.Errorf("%w: %w", errMade, err))
	}
	return nil
}

var (
	errMade = errors.New("the record was made, and may not be used")
	// errReplaced says that the store is not the one in which a record was to be made.
	errReplaced = errors.New("the lease store was lost meanwhile, and others may know of the profile what the new one does not")
)

func (s *Store) send(ctx context.Context, w *write) (*jetstream.PubAck, error) {
	return s.sendIf(ctx, w.bucket, &nats.Msg{Subject: w.bucket.subject(w.key), Data: w.data}, w.expected)
}

// sendIf publishes m on the condition that the last message of its subject has the sequence
// expected.
func (s *Store) sendIf(ctx context.Context, b bucket, m *nats.Msg, expected uint64) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	return b.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithRetryAttempts(0))
}

// resolve finds out what it means that the write was refused because of its revision. done says
// that the write has ended with this result; otherwise the same bytes have to be sent again.
func (s *Store) resolve(ctx context.Context, w *write) (revision uint64, done bool, _ error) {
	if w.ambiguous {
		m, err := s.successor(ctx, w)
		switch {
		case errors.Is(err, errUntraceable):
			w.ambiguous = false // it can no longer be stored
			return 0, true, unavailable(err)
		case errors.Is(err, natsget.ErrNone) && s.wasLost(ctx, w):
			// If it was stored, it was lost with the bucket.
		case err != nil:
			// The server that answered the read may lag behind the one that refused.
			return 0, false, nil //nolint:nilerr // the caller asks again
		case w.isIn(m):
			return m.Seq, true, nil
		}
		w.ambiguous = false // it was not stored, and no longer can be
	}
	m, err := s.last(ctx, w.bucket, w.key)
	switch {
	case errors.Is(err, natsget.ErrNone) && w.expected == 0, err == nil && m.Seq == w.expected:
		// The server that answered the read lags behind the one that refused.
		return 0, false, nil
	case errors.Is(err, natsget.ErrNone):
		return 0, true, &movedError{now: &message{}}
	case err != nil:
		return 0, true, &movedError{}
	case m.deleted() && w.create:
		w.expected = m.Seq
		return 0, false, nil
	case m.deleted():
		return 0, true, &movedError{now: &message{}}
	}
	if m, err = s.newestValid(ctx, w.bucket, w.key, m); err != nil {
		return 0, true, &movedError{}
	}
	return 0, true, &movedError{now: &m}
}

// wasLost tells whether the bucket was lost or went back since the first attempt of the write.
func (s *Store) wasLost(ctx context.Context, w *write) bool {
	_, _ = s.refresh(ctx, w.bucket.stream)
	return w.bucket.lossCount() != w.losses
}

// errUntraceable says that it can no longer be found out whether a write was stored, because
// the bucket has dropped the older writes of its key.
var errUntraceable = errors.New("too many writes came after one that was not answered: it cannot be known whether it was stored")

// successor returns the message of the key that followed the expected revision. If an attempt
// of the write was stored, it is that message, whatever was written later. The error is
// errUntraceable if the bucket, which keeps only some writes of each key, may have dropped it.
func (s *Store) successor(ctx context.Context, w *write) (message, error) {
	m, err := s.read(ctx, w.bucket.stream, natsget.Request{Seq: w.expected + 1, NextFor: w.bucket.subject(w.key)})
	if err != nil || w.isIn(m) || m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == strconv.FormatUint(w.expected, 10) {
		return m, err
	}
	// Either m was written without a condition, or the successor was dropped and m is a later
	// one. The bucket drops the oldest messages first, so none was dropped as long as the
	// expected revision is still there.
	if w.expected > 0 {
		_, err = s.read(ctx, w.bucket.stream, natsget.Request{Seq: w.expected})
	}
	if w.expected == 0 || errors.Is(err, natsget.ErrNone) {
		return message{}, errUntraceable
	}
	return m, err
}

func (w *write) isIn(m message) bool {
	nonce, ok := w.bucket.nonce(w.key, m.Data)
	return ok && nonce == w.nonce
}
