package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Holding is one lease of a launcher: its fence, its place in the record, and
// what the record shows of the session between transitions.
type Holding struct {
	store  Store
	keeper *Keeper
	token  Token
	every  time.Duration

	fence *Fence
	ctx   context.Context
	lose  context.CancelCauseFunc
	stop  context.CancelFunc
	notes chan Progress
	done  chan struct{}

	mu    sync.Mutex
	shown Record // what See was last told, until run took it
	seen  chan struct{}
	// own is the record as this lease last wrote or saw it. It is run's.
	own Record
}

const (
	// progressDelay is how long progress waits for more of it, at the first
	// time; after that it is written once per renewal of the presence at most.
	progressDelay = 500 * time.Millisecond
	// writeTime bounds one write of a progress or of a lease that was forgotten.
	writeTime = 5 * time.Second
)

// Hold begins the holding of a lease that was just granted under the keeper's
// presence. The caller calls Stop, once, whatever happens.
func Hold(ctx context.Context, granted Record, token Token, store Store, k *Keeper) *Holding {
	h := &Holding{
		store: store, keeper: k, token: token, every: k.o.Timing.Renewal(), fence: k.Fence(token), own: granted,
		notes: make(chan Progress), done: make(chan struct{}), seen: make(chan struct{}, 1),
	}
	h.ctx, h.lose = context.WithCancelCause(ctx)
	running, stop := context.WithCancel(ctx)
	h.stop = stop
	go h.run(running)
	return h
}

// Fence is the gate for everything written under this lease.
func (h *Holding) Fence() *Fence { return h.fence }

// Context ends, with the cause, when the lease is lost: ErrExpired or a
// *FencedError.
func (h *Holding) Context() context.Context { return h.ctx }

// Note passes progress on to the record, with its next write.
func (h *Holding) Note(p Progress) {
	select {
	case h.notes <- p:
	case <-h.done:
	}
}

// See tells what the store shows of the profile now; a record without a state is
// a missing one. Where the store forgot, the holder says it again.
// It does not wait; only the last of what it is told counts.
func (h *Holding) See(r Record) {
	h.mu.Lock()
	h.shown = r
	h.mu.Unlock()
	select {
	case h.seen <- struct{}{}:
	default:
	}
}

// Stop ends the writes and waits. One that was under way may have been applied:
// transitions that follow use Change. The fence is not shut by Stop.
func (h *Holding) Stop() {
	h.stop()
	<-h.done
}

func (h *Holding) run(ctx context.Context) {
	defer close(h.done)
	var progress Progress
	var soon <-chan time.Time
	delay := progressDelay
	restate := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.keeper.Context().Done():
			h.end(context.Cause(h.keeper.Context()))
			return
		case p := <-h.notes:
			if progress = p.over(progress); soon == nil {
				soon = time.After(delay)
			}
			continue
		case <-h.seen:
			h.mu.Lock()
			r := h.shown
			h.mu.Unlock()
			switch r.standing(h.own, h.token) {
			case Over:
				h.end(&FencedError{Profile: h.own.ProfileID, Token: h.token, Current: r.Token})
				return
			case Current:
				if r.Sequence >= h.own.Sequence {
					h.own = r
				}
				continue
			}
			restate = true
		case <-soon:
		}
		soon, delay = nil, h.every
		switch done, err := h.write(ctx, progress); {
		case err != nil:
			h.end(err)
			return
		case done:
			progress, restate = Progress{}, false
		case restate || progress != (Progress{}):
			soon = time.After(progressDelay)
		}
	}
}

func (h *Holding) end(cause error) {
	h.fence.Shut(cause)
	h.lose(cause)
}

// write brings the record up to the progress, and to this lease where the store
// doubts or forgot it. Not done means later; an error, that the lease is lost.
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
	// The store refuses the record for what it holds: the lease matters more
	// than the progress.
	return true, nil
}
