// Package outlet passes on what a process prints without making it wait for whoever reads that.
package outlet

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaiting bounds the bytes that wait for the reader.
const maxWaiting = 1 << 20

// Outlet is a writer whose Write never waits and never fails. A goroutine of its own writes what
// it takes to the destination. A reader there may stall or go away: what does not fit meanwhile
// is dropped and counted, and as soon as the reader takes something again it is told how much it
// missed. Its methods may be called concurrently.
type Outlet struct {
	to      io.Writer
	note    func(dropped uint64) []byte
	dropped atomic.Uint64
	ready   chan struct{} // has room for one: something waits, or Close was called
	ended   chan struct{}

	mu      sync.Mutex
	waiting [][]byte
	bytes   int    // in waiting
	missed  uint64 // what was dropped after the last one of waiting
	closed  bool
}

// New returns an outlet to a writer. note is what the reader gets for that many dropped writes.
// The caller ends it with Close.
func New(to io.Writer, note func(dropped uint64) []byte) *Outlet {
	o := &Outlet{to: to, note: note, ready: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		o.run()
	}()
	return o
}

// Write takes in a line, or several. It is dropped as a whole if it does not fit.
func (o *Outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	if o.closed || o.bytes+len(p) > maxWaiting {
		o.missed++
		o.dropped.Add(1)
	} else {
		o.waiting = append(o.waiting, append([]byte(nil), p...))
		o.bytes += len(p)
	}
	o.mu.Unlock()
	o.wake()
	return len(p), nil
}

// Dropped counts the writes that the destination did not get.
func (o *Outlet) Dropped() uint64 { return o.dropped.Load() }

// Close passes on what waits, for at most that long: a reader that stalls gets no more.
func (o *Outlet) Close(patience time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.wake()
	select {
	case <-o.ended:
	case <-time.After(patience):
	}
}

func (o *Outlet) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// run writes until Close was called and nothing waits.
func (o *Outlet) run() {
	var missed uint64 // what the reader is to be told of
	for {
		lines, dropped, closed := o.take()
		for _, line := range lines {
			if missed = o.tell(missed); missed == 0 && o.pass(line) {
				continue
			}
			missed++
			o.dropped.Add(1)
		}
		missed = o.tell(missed + dropped)
		switch {
		case len(lines) > 0 || dropped > 0:
		case closed:
			return
		default:
			<-o.ready
		}
	}
}

// take returns what waits, and how much was dropped after that.
func (o *Outlet) take() (lines [][]byte, missed uint64, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, missed = o.waiting, o.missed
	o.waiting, o.bytes, o.missed = nil, 0, 0
	return lines, missed, o.closed
}

// tell tells the reader what it missed, and returns what it still has to be told of.
func (o *Outlet) tell(missed uint64) uint64 {
	if missed > 0 && o.pass(o.note(missed)) {
		return 0
	}
	return missed
}

// pass writes a line, and tells whether the destination took it.
func (o *Outlet) pass(line []byte) bool {
	_, err := o.to.Write(line)
	return err == nil
}
