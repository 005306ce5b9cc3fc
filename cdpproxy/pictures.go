package cdpproxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// captureCommand asks for a screenshot.
const captureCommand = "Page.captureScreenshot"

// owedPictures are the screenshots that the browser was asked for, by clients and by the
// launcher, and has not answered. Chromium 156 crashes as a whole when a renderer ends that
// owes one, also where the session that asked was detached.
type owedPictures struct {
	count atomic.Int32 // of owed: so that the reader of most replies needs no lock

	mu   sync.Mutex
	owed map[inFlight]time.Time // when they were asked for
	less chan struct{}          // closed when owed has become smaller; nil: nobody waits
}

// asked is called before a picture is asked for.
func (p *owedPictures) asked(r inFlight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owed == nil || len(p.owed) >= maxNoted { // so many are of a client that asks in vain
		p.owed = map[inFlight]time.Time{}
	}
	p.owed[r] = time.Now()
	p.count.Store(int32(len(p.owed)))
}

// settled is called for each reply on a session, and for what could not be asked for.
func (p *owedPictures) settled(r inFlight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owed, r)
	p.count.Store(int32(len(p.owed)))
	if p.less != nil {
		close(p.less)
		p.less = nil
	}
}

// youngerThan returns how many pictures were asked for less than d ago, and a channel that is
// closed once one is owed no more.
func (p *owedPictures) youngerThan(d time.Duration) (n int, less <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.owed {
		if time.Since(at) < d {
			n++
		}
	}
	if p.less == nil {
		p.less = make(chan struct{})
	}
	return n, p.less
}

// await returns when no picture is owed any more that was asked for less than d ago, or when
// ctx or done ends.
func (p *owedPictures) await(ctx context.Context, d time.Duration, done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		n, less := p.youngerThan(d)
		if n == 0 {
			return
		}
		select {
		case <-less:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// AwaitPictures returns when the browser owes no screenshot any more that was asked for less
// than d ago, or when ctx ends. Older ones are those of pages that do not draw.
func (m *Mux) AwaitPictures(ctx context.Context, d time.Duration) { m.pictures.await(ctx, d, m.done) }
