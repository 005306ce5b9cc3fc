package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// verdict is what an answer to a conditional write says of it.
type verdict int

const (
	stored verdict = iota
	// moved: not stored, the expected revision is not the last one. Or it was
	// stored by an earlier try.
	moved
	// inFlight: not stored, another write to the key, or an earlier try of this
	// one, is under way; the expected revision may well be right.
	inFlight
	// notSent: not stored: nobody was there to take it, or had room for it.
	notSent
	// unknown: stored or not.
	unknown
	// refused: not stored, and the same bytes never will be.
	refused
	// gone: the connection was closed for good.
	gone
)

const (
	// codeInFlight is what replicated streams answer while another write to the
	// subject is under way.
	codeInFlight = jetstream.JSErrCodeStreamWrongLastSequenceConstant
	// codeTwice is the same for an earlier try with the same message id.
	codeTwice jetstream.ErrorCode = 10158
	// codeFull is the answer of a stream that is at its limit.
	codeFull jetstream.ErrorCode = 10077
)

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

// wait is how long at most to wait before the same bytes are sent again.
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

// write is one compare-and-swap under way: bytes that do not change from try to
// try.
type write struct {
	bucket bucket
	key    string
	data   []byte
	nonce  string
	// created: the caller knows of nothing at the key.
	created  bool
	expected uint64
	// ambiguous: an earlier try may have been stored.
	ambiguous bool
	// losses of the bucket before the first try.
	losses uint64
	// before returns the bytes of what the caller knows to stand at expected,
	// under a nonce of their own.
	before func() ([]byte, error)
}

// movedError says that the expected revision is not the last one.
type movedError struct {
	// now is what stands at the key, its Seq zero where nothing does; nil where
	// it could not be read.
	now *message
}

func (*movedError) Error() string { return "another write came first" }

// newWrite makes the write of value, which carries nonce.
func newWrite(b bucket, key string, expected uint64, nonce string, value any, before func() any) (*write, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &write{
		bucket: b, key: key, data: data, nonce: nonce, created: expected == 0, expected: expected,
		before: func() ([]byte, error) { return json.Marshal(before()) },
	}, nil
}

// cas carries the write out and returns its revision. One try takes at most two
// seconds, and the call as long as ctx allows. A key whose value was deleted is
// treated as one that never had any. A write that may still be applied when cas
// gives up goes to the settler. *movedError, lease.ErrUnavailable.
func (s *Store) cas(ctx context.Context, w *write) (uint64, error) {
	w.losses = w.bucket.lossCount()
	revision, err := s.tryCAS(ctx, w)
	if err != nil && w.ambiguous {
		s.settler.add(w)
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
			// A try before this one may have been stored all the same.
			if !w.ambiguous {
				return 0, fmt.Errorf("the store refuses the %d bytes: %w", len(w.data), err)
			}
		case gone:
			return 0, unavailable(err)
		case notSent:
			_, _ = s.look(ctx, w.bucket.stream)
		case unknown:
			w.ambiguous = true
		}
		if pause(ctx, v.wait()); ctx.Err() != nil {
			return 0, unavailable(err)
		}
	}
}

func (s *Store) send(ctx context.Context, w *write) (*jetstream.PubAck, error) {
	return s.sendIf(ctx, w.bucket, &nats.Msg{Subject: w.bucket.subject(w.key), Data: w.data}, w.expected)
}

// sendIf publishes on condition that the last message of the subject is expected.
func (s *Store) sendIf(ctx context.Context, b bucket, m *nats.Msg, expected uint64) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	return b.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithRetryAttempts(0))
}

// resolve finds out what a refusal because of the revision means. done says that
// the write is over; otherwise the same bytes are to be sent again.
func (s *Store) resolve(ctx context.Context, w *write) (revision uint64, done bool, _ error) {
	if w.ambiguous {
		m, err := s.successor(ctx, w)
		switch {
		case errors.Is(err, errForgotten):
			w.ambiguous = false // it cannot be stored any more
			return 0, true, unavailable(err)
		case errors.Is(err, errNoMessage) && s.wasLost(ctx, w):
			// Whatever was stored went with the bucket.
		case err != nil:
			// The reader may lag behind the server that refused.
			return 0, false, nil //nolint:nilerr // asked again
		case w.isIn(m):
			return m.Seq, true, nil
		}
		w.ambiguous = false // it was not stored, and cannot be any more
	}
	m, err := s.last(ctx, w.bucket, w.key)
	switch {
	case errors.Is(err, errNoMessage) && w.expected == 0, err == nil && m.Seq == w.expected:
		// The reader lags behind the server that refused.
		return 0, false, nil
	case errors.Is(err, errNoMessage):
		return 0, true, &movedError{now: &message{}}
	case err != nil:
		return 0, true, &movedError{}
	case m.deleted() && w.created:
		w.expected = m.Seq
		return 0, false, nil
	case m.deleted():
		return 0, true, &movedError{now: &message{}}
	}
	if m, err = s.sound(ctx, w.bucket, w.key, m); err != nil {
		return 0, true, &movedError{}
	}
	return 0, true, &movedError{now: &m}
}

func (s *Store) wasLost(ctx context.Context, w *write) bool {
	_, _ = s.look(ctx, w.bucket.stream)
	return w.bucket.lossCount() != w.losses
}

// errForgotten says that a write can no longer be found because of those that
// followed it.
var errForgotten = errors.New("too many writes came after one that was not answered: it cannot be known whether it was stored")

// successor returns what followed the expected revision. If a try of the write was
// stored, it is that one, whatever was written later: unless the bucket, which
// keeps a number of writes of each key, has dropped it.
func (s *Store) successor(ctx context.Context, w *write) (message, error) {
	m, err := s.read(ctx, w.bucket.stream, getRequest{Seq: w.expected + 1, NextFor: w.bucket.subject(w.key)})
	if err != nil || w.isIn(m) || m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == strconv.FormatUint(w.expected, 10) {
		return m, err
	}
	// A write without a condition. The oldest are dropped first, so nothing is
	// missing after a revision that is still there.
	if w.expected > 0 {
		_, err = s.read(ctx, w.bucket.stream, getRequest{Seq: w.expected})
	}
	if w.expected == 0 || errors.Is(err, errNoMessage) {
		return message{}, errForgotten
	}
	return m, err
}

func (w *write) isIn(m message) bool {
	nonce, ok := w.bucket.nonce(w.key, m.Data)
	return ok && nonce == w.nonce
}
