package natskv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stream is one of the JetStream streams, with what is remembered about it in order to notice
// when it was lost or went back to an old copy.
type stream struct {
	name string
	// js is the JetStream that has the stream, api the prefix of its API.
	js  jetstream.JetStream
	api string
	// config returns the configuration with which the stream is made; drift returns a
	// *DriftError for a configuration with which it could not keep what it has to.
	config func() jetstream.StreamConfig
	drift  func(jetstream.StreamConfig) error

	// asking is full while the server is asked about the stream, so that an answer
	// cannot overtake an earlier one.
	asking chan struct{}

	mu      sync.Mutex
	created time.Time
	highest uint64 // the highest sequence seen since the last loss
	largest int    // the largest message that it takes, in bytes, by its configuration; zero: any
	losses  uint64 // how often the stream was lost or went back
	// told is what the server's clock said when it last told about the stream, and heard is when
	// that was by this host's.
	told, heard time.Time
	// sawAt is when the server last showed or acknowledged a message of the stream.
	sawAt time.Time
	// lowerSince is since when the stream has ended below highest; zero if it does not.
	lowerSince time.Time
}

// doubtTime is how long a replicated stream has to end below what was seen before it counts as
// having gone back. A new leader ends below that until it has applied everything; a leader that
// was cut off did so for up to 13 s (measured).
const doubtTime = 15 * time.Second

func newStream(nc *nats.Conn, api string, config func() jetstream.StreamConfig, drift func(jetstream.StreamConfig) error) (*stream, error) {
	js, err := jetstream.NewWithAPIPrefix(nc, api)
	if err != nil {
		return nil, err
	}
	return &stream{name: config().Name, js: js, api: api, config: config, drift: drift, asking: make(chan struct{}, 1)}, nil
}

// saw remembers the sequence of a message of the stream.
func (st *stream) saw(seq uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.highest, st.sawAt = max(st.highest, seq), time.Now()
}

func (st *stream) highestSeen() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.highest
}

// answered is when the leader of the stream last told about it.
func (st *stream) answered() time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.heard
}

// lastSaw is when the server last showed or acknowledged a message of the stream.
func (st *stream) lastSaw() time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sawAt
}

// lossCount returns how often the stream was lost or went back, as far as is known.
func (st *stream) lossCount() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.losses
}

// wentBack counts a loss that the messages of the stream have shown.
func (st *stream) wentBack() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.highest, st.lowerSince = 0, time.Time{}
	st.losses++
}

// age returns how long ago the server stored what it stored at that time, by its own clock; zero
// if it is not known.
func (st *stream) age(at time.Time) time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	if at.IsZero() || st.told.IsZero() {
		return 0
	}
	return max(st.told.Add(time.Since(st.heard)).Sub(at), 0)
}

// clock is what the server's clock says now; zero if it is not known.
func (st *stream) clock() time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.told.IsZero() {
		return time.Time{}
	}
	return st.told.Add(time.Since(st.heard))
}

// room returns how many bytes of data a message may have: what the stream and the server take,
// without the headers.
func (st *stream) room(nc *nats.Conn) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	room := int(nc.MaxPayload())
	if st.largest > 0 {
		room = min(room, st.largest)
	}
	return room - headerRoom
}

// compare compares the information about the stream with what is remembered of it, and
// tells whether the stream was lost or went back. seen is the highest sequence that was
// known before the server was asked.
func (st *stream) compare(info *jetstream.StreamInfo, seen uint64, now time.Time) (lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	last := info.State.LastSeq
	st.largest = int(info.Config.MaxMsgSize)
	st.told, st.heard = info.TimeStamp, now
	switch {
	case st.created.IsZero():
	case !st.created.Equal(info.Created):
		lost = true
	case last < seen && info.Config.Replicas <= 1:
		lost = true
	case last < seen && st.lowerSince.IsZero():
		st.lowerSince = now
		return false
	case last < seen && now.Sub(st.lowerSince) < doubtTime:
		return false
	case last < seen:
		lost = true
	}
	st.created, st.lowerSince, st.highest = info.Created, time.Time{}, max(st.highest, last)
	if lost {
		st.highest = last
		st.losses++
	}
	return lost
}

// refresh asks the server about the stream, and makes the stream if it is missing. It counts a
// loss if the stream was lost or went back; the publisher and the watches then start again.
func (s *Store) refresh(ctx context.Context, st *stream) (*jetstream.StreamInfo, error) {
	select {
	case st.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("stream %s: %w", st.name, ctx.Err())
	}
	defer func() { <-st.asking }()
	seen := st.highestSeen()
	info, err := s.infoOf(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.name, err)
	}
	if st.compare(info, seen, time.Now()) {
		s.log.Warn().Str("stream", st.name).Uint64("last_sequence", info.State.LastSeq).Uint64("seen", seen).
			Msg("the stream is not the one that was there before, or went back to an old copy")
		if st == s.events {
			s.pub.restart()
			s.copier.look()
		}
	}
	return info, nil
}

// infoOf returns what the server says about the stream. If the stream is missing, it is made.
func (s *Store) infoOf(ctx context.Context, st *stream) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	have, err := st.js.Stream(ctx, st.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want := st.config()
		want.Replicas = s.replicas
		have, err = st.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another launcher was first, and has made it with another configuration.
			have, err = st.js.Stream(ctx, st.name)
		}
	}
	if err != nil {
		return nil, err
	}
	return have.CachedInfo(), nil
}

// isMissing tells whether the error says, or could mean, that the stream is missing.
func isMissing(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound || judge(err) == notSent
}
