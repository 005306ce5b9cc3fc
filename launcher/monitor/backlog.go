package monitor

import (
	"context"
	"sync/atomic"

	"leasehold/cdpproxy"
)

// trafficBacklog is how many requests of pages may wait to be processed.
const trafficBacklog = 1024

// heard is something that waits to be processed: what a page sent, or an answer. Both wait in
// one queue, so that a request is reported before its answer, and everything that was answered
// before a call of CatchUp is reported when that call returns.
type heard struct {
	traffic cdpproxy.Traffic
	answer  *answer
	told    *told
}

// backlog has what was heard and is not processed yet, and wakes the goroutines that wait until
// it is. Several goroutines add to it, among them the pipe's reader, and one processes it. It
// has no lock.
type backlog struct {
	waiting  chan heard
	pending  atomic.Int64  // number of things that wait or are being processed
	events   atomic.Uint64 // number of the observer's events that were processed
	progress broadcast     // signalled after each event and each request
}

func newBacklog() *backlog { return &backlog{waiting: make(chan heard, trafficBacklog)} }

// queue puts something into the queue, and tells whether there was room. It never blocks.
func (b *backlog) queue(h heard) bool {
	b.pending.Add(1)
	select {
	case b.waiting <- h:
		return true
	default:
		b.pending.Add(-1)
		return false
	}
}

// workOff processes what waits, one thing after the other, until gone is closed and everything
// is processed.
func (b *backlog) workOff(gone <-chan struct{}, process func(heard)) {
	one := func(h heard) {
		process(h)
		b.pending.Add(-1)
		b.progress.signal()
	}
	for {
		select {
		case h := <-b.waiting:
			one(h)
		case <-gone:
			for {
				select {
				case h := <-b.waiting:
					one(h)
				default:
					return
				}
			}
		}
	}
}

// processed says that one of the observer's events was processed.
func (b *backlog) processed() {
	b.events.Add(1)
	b.progress.signal()
}

// empty tells whether nothing that was heard waits.
func (b *backlog) empty() bool { return b.pending.Load() == 0 }

// caughtUp tells whether that many of the observer's events, and all that was heard, are
// processed.
func (b *backlog) caughtUp(events uint64) bool { return b.events.Load() >= events && b.empty() }

// broadcast wakes every goroutine that waits for the next signal. The zero value is
// ready for use.
type broadcast struct{ waiting atomic.Pointer[chan struct{}] }

// next returns a channel that the next signal closes.
func (b *broadcast) next() <-chan struct{} {
	for {
		if c := b.waiting.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if b.waiting.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// signal wakes all goroutines that wait. It costs almost nothing if there are none.
func (b *broadcast) signal() {
	if b.waiting.Load() == nil {
		return
	}
	if c := b.waiting.Swap(nil); c != nil {
		close(*c)
	}
}

// await returns when reached returns true, or the context ends. It calls reached again
// after each signal.
func (b *broadcast) await(ctx context.Context, reached func() bool) error {
	for {
		changed := b.next()
		if reached() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
