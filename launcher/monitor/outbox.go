package monitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"leasehold/checkpoint"
)

// Bounds of what waits for the sink.
const (
	maxUnreported      = 8192    // entries
	maxUnreportedBytes = 4 << 20 // of the texts in them
)

// outbox has what the parts report and the sink has not got yet. The sink may have to wait for
// a disk; those who report may not, since the pipe's reader is among them. One goroutine passes
// the entries on, in their order. What does not fit is counted, by kind: the sink gets an entry
// of KindOmitted for each kind, so that a decision does not take the journal for complete. Its
// methods may be called concurrently.
type outbox struct {
	sink     func(checkpoint.Entry)
	ready    chan struct{} // has room for one: something waits
	progress broadcast     // signalled after each entry that the sink got

	mu      sync.Mutex
	waiting []checkpoint.Entry
	bytes   int                                  // of the texts in waiting
	omitted map[checkpoint.Kind]checkpoint.Entry // what did not fit since waiting was taken last
	put     uint64                               // entries that were ever reported
	passed  uint64                               // those of them that the sink got, or that were omitted and the sink knows of it
	closed  bool                                 // nobody passes entries on any more
}

func newOutbox(sink func(checkpoint.Entry)) *outbox {
	return &outbox{sink: sink, ready: make(chan struct{}, 1), omitted: map[checkpoint.Kind]checkpoint.Entry{}}
}

// report takes in an entry of now. It never waits while passOn runs. After that has returned,
// the browser is gone or given up, and the sink gets the entry at once.
func (o *outbox) report(e checkpoint.Entry) {
	e.At = time.Now().UTC()
	if !o.queue(e) {
		o.sink(e)
	}
}

// queue is false if passOn has returned.
func (o *outbox) queue(e checkpoint.Entry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.put++
	if n := textBytes(e); len(o.waiting) < maxUnreported && o.bytes+n <= maxUnreportedBytes {
		o.waiting, o.bytes = append(o.waiting, e), o.bytes+n
	} else {
		o.omit(e)
	}
	select {
	case o.ready <- struct{}{}:
	default:
	}
	return true
}

// omit counts an entry that does not fit. The caller holds o.mu.
func (o *outbox) omit(e checkpoint.Entry) {
	mark, again := o.omitted[e.Kind]
	if !again {
		mark = checkpoint.Entry{Kind: checkpoint.KindOmitted, Name: string(e.Kind), At: e.At, First: e.At}
	}
	mark.Count += e.Times()
	mark.Text = fmt.Sprintf("%d entries of kind %s left out, the last of %s: the journal took none for too long", mark.Count, e.Kind, e.At.Format(time.RFC3339))
	o.omitted[e.Kind] = mark
}

// textBytes is about how much memory the texts of an entry take.
func textBytes(e checkpoint.Entry) int {
	return len(e.URL) + len(e.Page) + len(e.Asked) + len(e.Text) + len(e.Data) + len(e.Name) + len(e.Shape) + len(e.Declared) + len(e.KnownBy)
}

// passOn passes entries on to the sink until ended is closed and the sink has all of them.
func (o *outbox) passOn(ended <-chan struct{}) {
	for {
		entries, marks, put := o.take()
		for _, e := range entries {
			o.sink(e)
			o.progress.signal()
		}
		for _, mark := range marks {
			o.sink(mark)
		}
		o.mu.Lock()
		o.passed = put
		o.mu.Unlock()
		o.progress.signal()
		select {
		case <-o.ready:
		case <-ended:
			if o.close() {
				return
			}
		}
	}
}

// take returns everything that waits, and how many entries had been reported by then.
func (o *outbox) take() (entries []checkpoint.Entry, marks map[checkpoint.Kind]checkpoint.Entry, put uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries, marks = o.waiting, o.omitted
	o.waiting, o.bytes, o.omitted = nil, 0, map[checkpoint.Kind]checkpoint.Entry{}
	return entries, marks, o.put
}

// close takes nothing more in, and tells whether the sink has everything.
func (o *outbox) close() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = o.passed == o.put
	return o.closed
}

// await returns when the sink has everything that was reported before the call, or the context
// ends.
func (o *outbox) await(ctx context.Context) error {
	o.mu.Lock()
	all := o.put
	o.mu.Unlock()
	return o.progress.await(ctx, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.passed >= all
	})
}
