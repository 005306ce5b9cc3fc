package natskv

import (
	"context"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// maxUnsettled is how many writes may be left to the settler before the store
// takes no more.
const maxUnsettled = 1000

// settler makes an end of writes that their senders gave up while they might still
// be applied: one goroutine, which writes what stood there before once more, on
// condition of the same revision. Whichever of the two is applied, the other never
// can be.
type settler struct {
	s      *Store
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	pending []*write
	// idle is closed when nothing is pending, and made anew when something is.
	idle chan struct{}
}

func startSettler(s *Store) *settler {
	ctx, cancel := context.WithCancel(context.Background())
	t := &settler{s: s, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1), idle: make(chan struct{})}
	close(t.idle)
	go t.run(ctx)
	return t
}

func (t *settler) stop() {
	t.cancel()
	<-t.done
	if n, _ := t.left(); n > 0 {
		t.s.log.Warn().Int("writes", n).Msg("given up before it was known whether they are applied")
	}
}

func (t *settler) run(ctx context.Context) {
	defer close(t.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		for backoff := minBackoff; !t.pass(ctx) && ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
			pause(ctx, backoff)
		}
	}
}

// pass tries each pending write once, and tells whether none is left.
func (t *settler) pass(ctx context.Context) bool {
	t.mu.Lock()
	writes := t.pending
	t.mu.Unlock()
	for _, w := range writes {
		if ctx.Err() != nil {
			return false
		}
		if t.settle(ctx, w) {
			t.remove(w)
		}
	}
	n, _ := t.left()
	return n == 0
}

// settle tries to use up the revision that the write expects, and tells whether it
// is.
func (t *settler) settle(ctx context.Context, w *write) bool {
	m, err := w.burning()
	if err != nil {
		t.s.log.Error().Err(err).Msg("a write that was not answered cannot be settled")
		return true
	}
	ack, err := t.s.sendIf(ctx, w.bucket, m, w.expected)
	switch judge(err) {
	case stored:
		w.bucket.saw(ack.Sequence)
		t.s.log.Info().Str("key", w.key).Uint64("revision", ack.Sequence).Msg("a write that was not answered was not applied, and never will be")
		return true
	case moved:
		// By the write itself, this one's earlier try, or another.
		if w.bucket.stream == t.s.leases.stream {
			t.s.pub.sweep()
		}
		return true
	case notSent:
		_, _ = t.s.look(ctx, w.bucket.stream)
	}
	return false
}

// burning is the message that takes the place of the write: what stood at the key
// before, or that nothing does.
func (w *write) burning() (*nats.Msg, error) {
	m := nats.NewMsg(w.bucket.subject(w.key))
	if w.created {
		m.Header.Set(operationHeader, "DEL")
		return m, nil
	}
	var err error
	m.Data, err = w.before()
	return m, err
}

func (t *settler) add(w *write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.pending, func(p *write) bool {
		return p.bucket.stream == w.bucket.stream && p.key == w.key && p.expected == w.expected
	}) {
		return // the same revision is used up for both
	}
	if len(t.pending) == 0 {
		t.idle = make(chan struct{})
	}
	t.pending = append(t.pending, w)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *settler) remove(w *write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A new slice: pass goes through the old one.
	t.pending = slices.DeleteFunc(slices.Clone(t.pending), func(p *write) bool { return p == w })
	if len(t.pending) == 0 {
		close(t.idle)
	}
}

func (t *settler) full() bool {
	n, _ := t.left()
	return n >= maxUnsettled
}

// left returns how many writes are pending, and a channel that is closed when none
// is.
func (t *settler) left() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending), t.idle
}
