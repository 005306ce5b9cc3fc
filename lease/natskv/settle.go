package natskv

import (
	"context"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// maxUnsettled is how many writes the settler may have before Swap refuses further ones.
const maxUnsettled = 1000

// settler decides what becomes of writes whose senders gave up while the write might still be
// stored. Its goroutine writes the key's former value once more, on the condition of the same
// revision. Only one of the two writes can be stored: as soon as one is, the other never can
// be.
type settler struct {
	s      *Store
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	pending []*write
	// same are the writes of which one in pending settles the revision, too.
	same []*write
	// drops are those that are known not to be stored, and whose senders have to be told.
	drops []func()
	// idle is closed while nothing is pending. A new one is made when something is.
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
	if n, _ := t.unsettled(); n > 0 {
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
		t.tell()
		for backoff := minBackoff; !t.pass(ctx) && ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
			pause(ctx, backoff)
		}
	}
}

// drop has the sender of a write told that it was not stored, and never will be.
func (t *settler) drop(w *write) {
	if w.dropped == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drops = append(t.drops, w.dropped)
	t.wakeUp()
}

func (t *settler) tell() {
	t.mu.Lock()
	drops := t.drops
	t.drops = nil
	t.mu.Unlock()
	for _, dropped := range drops {
		dropped()
	}
}

// pass tries to settle each pending write once, and tells whether all are settled.
func (t *settler) pass(ctx context.Context) bool {
	t.mu.Lock()
	writes := t.pending
	t.mu.Unlock()
	for _, w := range writes {
		if ctx.Err() != nil {
			return false
		}
		t.tell()
		if t.settle(ctx, w) {
			t.remove(w)
			t.tell()
		}
	}
	n, _ := t.unsettled()
	return n == 0
}

// settle tries to use up the revision that the write expects, and tells whether the revision is
// now used up.
func (t *settler) settle(ctx context.Context, w *write) bool {
	m, err := w.replacement()
	if err != nil {
		t.s.log.Error().Err(err).Msg("a write that was not answered cannot be settled")
		return true
	}
	ack, err := t.s.sendIf(ctx, w.bucket, m, w.expected)
	switch judge(err) {
	case stored:
		w.bucket.saw(ack.Sequence)
		t.s.log.Info().Str("key", w.key).Uint64("revision", ack.Sequence).Msg("a write that was not answered was not applied, and never will be")
		for _, w := range t.sharing(w) {
			t.drop(w)
		}
		return true
	case moved:
		// The revision was used by the write itself, by an earlier attempt to settle it, or by
		// another write.
		if w.bucket.stream == t.s.leases.stream {
			t.s.pub.sweep()
		}
		for _, w := range t.sharing(w) {
			if t.isNotStored(ctx, w) {
				t.drop(w)
			}
		}
		return true
	case refused:
		// The server will never take these bytes. If the write itself was stored, its events
		// have to be published.
		t.s.log.Error().Err(err).Str("key", w.key).Msg("a write that was not answered cannot be settled: the store refuses the value that was there before")
		t.s.pub.sweep()
		return true
	case notSent:
		_, _ = t.s.refresh(ctx, w.bucket.stream)
	}
	return false
}

// isNotStored tells whether it is known that a write whose revision is used up was not stored.
func (t *settler) isNotStored(ctx context.Context, w *write) bool {
	if w.dropped == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, t.s.tryTime)
	defer cancel()
	m, err := t.s.successor(ctx, w)
	return err == nil && !w.isIn(m)
}

// replacement returns the message that uses up the revision which the write expects: the former
// value of the key, or a marker that it has none.
func (w *write) replacement() (*nats.Msg, error) {
	m := nats.NewMsg(w.bucket.subject(w.key))
	if w.create {
		m.Header.Set(operationHeader, "DEL")
		return m, nil
	}
	var err error
	m.Data, err = w.before()
	return m, err
}

// add gives the settler a write that may still be stored.
func (t *settler) add(w *write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.pending, w.shares) {
		if w.dropped != nil {
			t.same = append(t.same, w)
		}
		return // settling one of them settles both
	}
	if len(t.pending) == 0 {
		t.idle = make(chan struct{})
	}
	t.pending = append(t.pending, w)
	t.wakeUp()
}

// wakeUp wakes the goroutine. The caller holds mu.
func (t *settler) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// shares tells whether settling one of the two writes settles both.
func (w *write) shares(p *write) bool {
	return p.bucket.stream == w.bucket.stream && p.key == w.key && p.expected == w.expected
}

func (t *settler) sharing(w *write) []*write {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []*write{w}
	for _, o := range t.same {
		if w.shares(o) {
			all = append(all, o)
		}
	}
	return all
}

func (t *settler) remove(w *write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// It has to be a new slice, since pass goes through the old one.
	t.pending = slices.DeleteFunc(slices.Clone(t.pending), func(p *write) bool { return p == w })
	t.same = slices.DeleteFunc(t.same, w.shares)
	if len(t.pending) == 0 {
		close(t.idle)
	}
}

func (t *settler) full() bool {
	n, _ := t.unsettled()
	return n >= maxUnsettled
}

// unsettled returns how many writes are pending, and a channel that is closed when there are
// none.
func (t *settler) unsettled() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending), t.idle
}
