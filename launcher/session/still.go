package session

import "leasehold/launcher/api"

// A session whose worker is lost makes its browser stand still, unless other runs of the
// profile are still at work in it.

// standStill stops what the session's pages would send.
func (s *Session) standStill() {
	if !s.ephemeral && s.browser.Driven() && !s.policy.byHand && !s.slot.Shared(s) {
		s.browser.StandStill(s.log)
	}
}

// goOn lets a browser that stands still go on.
func (s *Session) goOn() {
	if s.browser.Driven() {
		s.browser.GoOn(s.log)
	}
}

// mayBeLost makes the browser stand still at once if a connection that ended without a
// close handshake was the session's last one: run may be busy, and a page needs no time to
// send something. The caller states the end of the connection, and then calls the function
// that is returned: run decides whether the worker is lost.
func (s *Session) mayBeLost() (stated func()) {
	s.stopping.Lock() // an end in order that begins now lets the browser go on after this
	defer s.stopping.Unlock()
	if s.ephemeral || s.policy.onDrop != api.OnDropLost || len(s.clients.connected()) > 1 || !s.losingOne() {
		return func() {}
	}
	s.standStill()
	return func() {
		s.losing.Add(-1)
		s.life.wake()
	}
}

// losingOne counts one more connection whose end is about to be stated, unless the session
// is ending, or the worker asked for its end.
func (s *Session) losingOne() bool {
	if !s.life.mayLoseWorker() {
		return false
	}
	s.losing.Add(1)
	return true
}

// isBack lets a browser go on that stood still for a moment: a connection ended, and the
// worker has another one.
func (s *Session) isBack() {
	if s.losing.Load() == 0 && s.browser.Driven() && s.browser.Still() {
		s.goOn()
	}
}

// endsInOrder lets the browser of a session that ends in order go on, if it stood still.
func (s *Session) endsInOrder() {
	s.stopping.Lock()
	defer s.stopping.Unlock()
	s.goOn()
}
