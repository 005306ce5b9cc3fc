package session

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
)

// A session whose worker is lost makes its browser stand still, unless other runs of the
// profile still work in it: runs whose own workers are not lost.

// standstill is what makes a session's browser stand still, and lets it go on.
type standstill struct {
	*terms
	life    *life
	file    *kept
	browser func() *browser.Browser
	others  func() []slots.Run // that have the browser, too

	// stopping is held while it is determined whether a connection was the last one, and while
	// its browser is made to stand still. It is taken before the mutex of life.
	stopping sync.Mutex
	losing   atomic.Int32 // connections that ended, and whose end is not stated yet
}

func newStandstill(t *terms, l *life, f *kept, b func() *browser.Browser, others func() []slots.Run) *standstill {
	return &standstill{terms: t, life: l, file: f, browser: b, others: others}
}

// begin stops the requests that the session's pages would send.
func (st *standstill) begin() {
	if b := st.browser(); !st.ephemeral && b.Driven() && !st.policy.byHand && !st.othersWork() {
		b.StandStill(st.log)
	}
}

// othersWork tells whether there is another run whose worker is not lost.
func (st *standstill) othersWork() bool {
	return slices.ContainsFunc(st.others(), func(r slots.Run) bool {
		other, ok := r.(*Session)
		if !ok {
			return true
		}
		v := other.life.ruling(time.Now()).verdict
		return v != interrupted && v != lose
	})
}

// othersLost tells whether there are other runs, and the workers of all are lost.
func (st *standstill) othersLost() bool { return len(st.others()) > 0 && !st.othersWork() }

// leftToLost makes the browser stand still when a run has ended that left it to others, if the workers of
// all of these are lost. One that comes back meanwhile lets it go on.
func (st *standstill) leftToLost() {
	b := st.browser()
	if !b.Driven() || !st.othersLost() {
		return
	}
	b.StandStill(st.log)
	for _, r := range st.others() {
		if other, ok := r.(*Session); ok {
			other.life.wake()
		}
	}
}

// end lets a browser that stands still go on. If it lost cookies meanwhile, the next launcher knows, too.
func (st *standstill) end() {
	b := st.browser()
	if !b.Driven() {
		return
	}
	b.GoOn(st.log)
	lost := b.CookiesLost()
	if lost == "" || lost == st.file.get().CookiesLost {
		return
	}
	st.file.change(func(f *sessionfile.File) { f.CookiesLost = lost })
	if err := st.file.save(); err != nil {
		st.log.Error().Err(err).Msg("session file not written")
	}
}

// mayBeLost makes the browser stand still at once if a connection that ended without a close
// handshake was the session's last one: run may be busy, and a page can send something at any
// moment. The caller states the end of the connection, and then calls the returned function:
// run decides whether the worker is lost.
func (st *standstill) mayBeLost() (stated func()) {
	st.stopping.Lock() // an end in order that begins now lets the browser go on after this
	defer st.stopping.Unlock()
	if st.ephemeral || st.policy.onDrop != api.OnDropLost || !st.losingOne() {
		return func() {}
	}
	// A worker that is killed loses all its connections: those that have ended are still counted
	// until that is stated. Those of pages that it exposed are not.
	if st.life.known().connections <= int(st.losing.Load()) {
		st.begin()
	}
	return func() {
		st.losing.Add(-1)
		st.life.wake()
	}
}

// losingOne counts one more connection whose end is about to be stated, unless the session
// is ending, or the worker asked for its end.
func (st *standstill) losingOne() bool {
	if !st.life.mayLoseWorker() {
		return false
	}
	st.losing.Add(1)
	return true
}

// isBack lets a browser go on that stood still for a moment, because a connection ended and the
// worker has another one. It asks the rules again: the last connection may have ended since.
func (st *standstill) isBack() {
	b := st.browser()
	if !b.Driven() || !b.AskedStill() {
		return
	}
	st.stopping.Lock()
	defer st.stopping.Unlock()
	if st.losing.Load() == 0 && st.life.ruling(time.Now()).verdict == stay {
		st.end()
	}
}

// endsInOrder lets the browser of a session that ends in order go on, if it stood still, but not for
// other runs whose workers are lost.
func (st *standstill) endsInOrder() {
	st.stopping.Lock()
	defer st.stopping.Unlock()
	if !st.othersLost() {
		st.end()
	}
}
