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

// stream is one of the three JetStream streams, and what is remembered of it to
// notice that it was lost or went back to an old copy.
type stream struct {
	name string
	// js is the JetStream that has it, api its prefix.
	js     jetstream.JetStream
	api    string
	config func() jetstream.StreamConfig
	drift  func(jetstream.StreamConfig) error

	// asking is full while the server is asked, so that answers do not overtake
	// each other.
	asking chan struct{}

	mu      sync.Mutex
	created time.Time
	highest uint64 // sequence ever seen
	losses  uint64 // how often it was lost or went back
	// lower is since when it says that it ends below the highest; zero is not.
	lower time.Time
}

// doubtTime is how long a replicated stream has to end below what was seen before it
// counts as gone back: a new leader says so until it has applied everything, and one
// that was cut off for up to 13 s (measured).
const doubtTime = 15 * time.Second

func newStream(nc *nats.Conn, api string, config func() jetstream.StreamConfig, drift func(jetstream.StreamConfig) error) (*stream, error) {
	js, err := jetstream.NewWithAPIPrefix(nc, api)
	if err != nil {
		return nil, err
	}
	return &stream{name: config().Name, js: js, api: api, config: config, drift: drift, asking: make(chan struct{}, 1)}, nil
}

// saw notes a sequence that a message of the stream has.
func (st *stream) saw(seq uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.highest = max(st.highest, seq)
}

func (st *stream) seen() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.highest
}

func (st *stream) lossCount() uint64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.losses
}

// wentBack notes that messages of the stream show that it went back.
func (st *stream) wentBack() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.highest, st.lower = 0, time.Time{}
	st.losses++
}

// compare holds what the stream says of itself against what is remembered; seen is
// the highest sequence that was known before it was asked.
func (st *stream) compare(info *jetstream.StreamInfo, seen uint64, now time.Time) (lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	last := info.State.LastSeq
	switch {
	case st.created.IsZero():
	case !st.created.Equal(info.Created):
		lost = true
	case last < seen && info.Config.Replicas <= 1:
		lost = true
	case last < seen && st.lower.IsZero():
		st.lower = now
		return false
	case last < seen && now.Sub(st.lower) < doubtTime:
		return false
	case last < seen:
		lost = true
	}
	st.created, st.lower, st.highest = info.Created, time.Time{}, max(st.highest, last)
	if lost {
		st.highest = last
		st.losses++
	}
	return lost
}

// look asks for the stream, and makes it where it is missing. A stream that was
// lost, or went back, is one that publishes and watches have to begin anew with.
func (s *Store) look(ctx context.Context, st *stream) (*jetstream.StreamInfo, error) {
	select {
	case st.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("stream %s: %w", st.name, ctx.Err())
	}
	defer func() { <-st.asking }()
	seen := st.seen()
	info, err := s.infoOf(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.name, err)
	}
	if st.compare(info, seen, time.Now()) {
		s.log.Warn().Str("stream", st.name).Uint64("last_sequence", info.State.LastSeq).Uint64("seen", seen).
			Msg("the stream is not the one that was there before, or went back to an old copy")
		if st == s.events {
			s.pub.restart()
		}
	}
	return info, nil
}

func (s *Store) infoOf(ctx context.Context, st *stream) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	have, err := st.js.Stream(ctx, st.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want := st.config()
		want.Replicas = s.replicas
		have, err = st.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another launcher was first, with other settings.
			have, err = st.js.Stream(ctx, st.name)
		}
	}
	if err != nil {
		return nil, err
	}
	return have.CachedInfo(), nil
}

// isMissing tells whether an answer says, or may say, that the stream is gone.
func isMissing(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound || judge(err) == notSent
}
