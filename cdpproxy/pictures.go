package cdpproxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// captureCommand asks for a screenshot.
const captureCommand = "Page.captureScreenshot"

// owedPictures are the screenshots that clients and the launcher have requested from the
// browser, and that it has not answered. Chromium 156 crashes as a whole if a renderer ends
// that owes one, even if the session that asked was detached.
type owedPictures struct {
	count atomic.Int32 // size of owed, so that most replies can be read without a lock

	mu   sync.Mutex
	owed map[inFlight]time.Time // when they were requested
	less chan struct{}          // closed when owed has become smaller; nil: nobody waits
}

// asked is called before a screenshot is requested.
func (p *owedPictures) asked(r inFlight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owed == nil || len(p.owed) >= maxNoted { // so many belong to a client that asks in vain
		p.owed = map[inFlight]time.Time{}
	}
	p.owed[r] = time.Now()
	p.count.Store(int32(len(p.owed)))
}

// settled is called for each reply on a session, and for requests that could not be sent.
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

// youngerThan returns how many unanswered screenshots were requested less than d ago, and a
// channel that is closed when one of them is answered.
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

// await returns when no screenshot that was requested less than d ago is unanswered any more,
// or when ctx or done ends.
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

// AwaitPictures returns when no screenshot that was requested less than d ago is unanswered any
// more, or when ctx ends. Older ones belong to pages that do not draw.
func (m *Mux) AwaitPictures(ctx context.Context, d time.Duration) { m.pictures.await(ctx, d, m.done) }
