package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Holding is one lease that a launcher holds: its fence, and the writes that keep the record up
// to date between transitions. It writes the session's progress, and writes the lease again if
// another launcher suspected it or the store forgot it.
type Holding struct {
	store  Store
	keeper *Keeper
	token  Token
	every  time.Duration

	fence *Fence
	ctx   context.Context
	lose  context.CancelCauseFunc
	stop  context.CancelFunc
	done  chan struct{}

	mu       sync.Mutex
	seen     Record        // the argument of the last Observe
	progress Progress      // that was reported and is not written yet
	wake     chan struct{} // has an element if run has not looked at seen yet
	reported chan struct{} // has an element if run has not noticed the progress yet
	// own is the record as this lease last wrote or saw it. Only run uses it.
	own Record
}

const (
	// progressDelay is how long the first progress waits for more before it is
	// written. Later progress is written at most once per Timing.Renewal.
	progressDelay = 500 * time.Millisecond
	// writeTime limits one write of the record.
	writeTime = 5 * time.Second
)

// Hold returns the holding of a lease that was just granted under the presence of the keeper k.
// The caller has to call Stop once, even after the lease was lost.
func Hold(ctx context.Context, granted Record, token Token, store Store, k *Keeper) *Holding {
	h := &Holding{
		store: store, keeper: k, token: token, every: k.o.Timing.Renewal(), fence: k.Fence(token), own: granted,
		done: make(chan struct{}), wake: make(chan struct{}, 1), reported: make(chan struct{}, 1),
	}
	h.ctx, h.lose = context.WithCancelCause(ctx)
	running, stop := context.WithCancel(ctx)
	h.stop = stop
	go h.run(running)
	return h
}

// Fence returns the fence that everything written under this lease has to pass.
func (h *Holding) Fence() *Fence { return h.fence }

// Context ends when the lease is lost. Its cause is then ErrExpired or a *FencedError.
func (h *Holding) Context() context.Context { return h.ctx }

// Report puts progress into the next write of the record. It does not block.
func (h *Holding) Report(p Progress) {
	h.mu.Lock()
	h.progress = p.or(h.progress)
	h.mu.Unlock()
	signal(h.reported)
}

// Observe passes on what the store now shows of the profile; a record without a state means
// that there is none. If the lease is over according to that record, it is lost; if it is
// suspected or forgotten, it is written again. Observe does not block, and a later call
// replaces one that was not looked at yet.
func (h *Holding) Observe(r Record) {
	h.mu.Lock()
	h.seen = r
	h.mu.Unlock()
	signal(h.wake)
}

// signal leaves one element in a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// takeProgress returns the progress that is not written yet. The caller writes it, or gives
// it back with untakeProgress.
func (h *Holding) takeProgress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.progress
	h.progress = Progress{}
	return p
}

// untakeProgress gives back progress that could not be written.
func (h *Holding) untakeProgress(p Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = h.progress.or(p)
}

// Stop ends the writes and waits until they have ended. A write that was under way may have
// been stored, so the caller makes later transitions by Change. Stop does not shut the fence.
func (h *Holding) Stop() {
	h.stop()
	<-h.done
}

func (h *Holding) run(ctx context.Context) {
	defer close(h.done)
	var soon <-chan time.Time
	delay := progressDelay
	rewrite := false // the lease has to be written again
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.keeper.Context().Done():
			h.end(context.Cause(h.keeper.Context()))
			return
		case <-h.reported:
			if soon == nil {
				soon = time.After(delay)
			}
			continue
		case <-h.wake:
			h.mu.Lock()
			r := h.seen
			h.mu.Unlock()
			switch r.standingFor(h.own, h.token) {
			case Over:
				h.end(&FencedError{Profile: h.own.ProfileID, Token: h.token, Current: r.Token})
				return
			case Current:
				if r.Sequence >= h.own.Sequence {
					h.own = r
					continue
				} // the store went back to earlier in this lease, or the watch is late
			}
			rewrite = true
		case <-soon:
		}
		soon, delay = nil, h.every
		progress := h.takeProgress()
		if !rewrite && progress == (Progress{}) {
			continue // it went with an earlier write
		}
		switch done, err := h.write(ctx, progress); {
		case err != nil:
			h.end(err)
			return
		case done:
			rewrite = false
		default:
			h.untakeProgress(progress)
			soon = time.After(progressDelay)
		}
	}
}

func (h *Holding) end(cause error) {
	h.fence.Shut(cause)
	h.lose(cause)
}

// write stores the progress, and the lease itself if it is suspected or forgotten. done is
// false if the write has to be tried again; lost is why the lease is lost, if it is.
func (h *Holding) write(ctx context.Context, p Progress) (done bool, lost error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	stored, err := Change(ctx, h.store, h.own.ProfileID, func(e Entry) (Record, error) {
		r := e.Record
		if err := h.fence.Check(); err != nil {
			return r, err
		}
		return r.Uphold(h.own, h.token, p, time.Now())
	})
	var fenced *FencedError
	switch {
	case err == nil:
		h.own = stored.Record
		return true, nil
	case errors.As(err, &fenced), errors.Is(err, ErrExpired):
		return false, err
	case errors.Is(err, ErrUnavailable):
		return false, nil
	}
	// The store refuses the record because of its content. The progress is dropped, since the
	// lease matters more.
	return true, nil
}
