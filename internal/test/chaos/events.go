package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/boottime"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// subscriber reads the events through a durable consumer, as a user's program would. At
// times it is away, and goes on later where it was.
type subscriber struct {
	store   *store
	history *History

	mu     sync.Mutex
	seen   map[uint64]bool // stream sequences that were read in this epoch
	ever   map[string]bool // the messages that were read, in whatever epoch
	epoch  int
	cancel context.CancelFunc // nil while it is away
	done   chan struct{}
}

const consumer = "chaos"

func newSubscriber(s *store, h *History) *subscriber {
	return &subscriber{store: s, history: h, seen: map[uint64]bool{}, ever: map[string]bool{}}
}

// subscribe begins to read. unsubscribe ends that without telling the server.
func (s *subscriber) subscribe() {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch, _ := s.store.generation(); epoch != s.epoch {
		s.epoch, s.seen = epoch, map[uint64]bool{}
	}
	done := make(chan struct{})
	s.cancel, s.done = cancel, done
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := s.read(ctx); err != nil {
				sleep(ctx, 300*time.Millisecond) // whatever failed, it is tried again
			}
		}
	}()
}

func (s *subscriber) unsubscribe() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.cancel = nil
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// read fetches messages until something fails.
func (s *subscriber) read(ctx context.Context) error {
	nc, js, err := s.store.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	cons, err := js.CreateOrUpdateConsumer(ctx, natskv.Stream, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return err
	}
	for {
		batch, err := cons.Fetch(200, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := s.take(m); err != nil {
				return err
			}
			if err := m.Ack(); err != nil {
				return err
			}
		}
		if err := errors.Join(ctx.Err(), batch.Error()); err != nil {
			return err
		}
	}
}

func (s *subscriber) take(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	e, err := s.entry(meta.Sequence.Stream, m.Data())
	if err != nil {
		return err
	}
	s.mu.Lock()
	again := s.seen[e.StreamSeq]
	s.seen[e.StreamSeq], s.ever[string(m.Data())] = true, true
	s.mu.Unlock()
	if !again { // otherwise it was delivered again, because the acknowledgement was lost
		s.history.Add(e)
	}
	return nil
}

func (s *subscriber) entry(seq uint64, data []byte) (Entry, error) {
	var e lease.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return Entry{}, fmt.Errorf("message %d of the event stream: %w", seq, err)
	}
	epoch, wall := s.store.generation()
	now := boottime.Now()
	return Entry{At: now, Kind: Published, Profile: e.ProfileID, Epoch: epoch, Wall: wall, StreamSeq: seq, Event: &e, Made: s.history.made(e, now)}, nil
}

// catchUp waits until the subscriber has read everything on the stream, and adds an
// entry for each message that was never delivered. A store that was set back has the
// subscriber's place in it, too: what was delivered before need not come again.
func (s *subscriber) catchUp(ctx context.Context) error {
	nc, js, err := s.store.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	stream, err := js.Stream(ctx, natskv.Stream)
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	missing := func() []uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		var left []uint64
		for seq := uint64(1); seq <= last; seq++ {
			if !s.seen[seq] {
				left = append(left, seq)
			}
		}
		return left
	}
	for deadline := time.Now().Add(30 * time.Second); len(missing()) > 0 && time.Now().Before(deadline); {
		sleep(ctx, 100*time.Millisecond)
	}
	for _, seq := range missing() {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		e, err := s.entry(seq, m.Data)
		if err != nil {
			return err
		}
		s.history.Add(e)
		s.mu.Lock()
		delivered := s.ever[string(m.Data)]
		s.mu.Unlock()
		if !delivered {
			e.Kind = Missed
			s.history.Add(e)
		}
	}
	return nil
}
