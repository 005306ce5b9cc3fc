package cdpproxy

import (
	"sync"
	"sync/atomic"
)

// maxNoted is the most that is noted of one kind: what is more than that begins anew.
const maxNoted = 4096

const captureCommand = "Page.captureScreenshot"

// owedPictures are the screenshots that clients and the launcher have requested from the
// browser, and that it has not answered. Chromium 156 crashes as a whole if a renderer ends
// that owes one, even if the session that asked was detached, but not if its page was closed.
type owedPictures struct {
	count atomic.Int32 // size of owed, so that most replies can be read without a lock

	mu   sync.Mutex
	owed map[inFlight]bool
}

// asked is called before a screenshot is requested.
func (p *owedPictures) asked(r inFlight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owed == nil || len(p.owed) >= maxNoted { // so many belong to a client that asks in vain
		p.owed = map[inFlight]bool{}
	}
	p.owed[r] = true
	p.count.Store(int32(len(p.owed)))
}

// settled is called for each reply on a session, and for requests that could not be sent.
func (p *owedPictures) settled(r inFlight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owed, r)
	p.count.Store(int32(len(p.owed)))
}

// OwesPictures tells whether a screenshot that was requested has no answer yet. Some pages never
// draw theirs: one that waits for its first document, or that shows a dialog.
func (m *Mux) OwesPictures() bool { return m.pictures.count.Load() > 0 }
