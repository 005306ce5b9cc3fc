package session

import (
	"context"
	"time"

	"leasehold/evidence"
)

// run serves until the rules say that the session is over, and ends it.
func (s *Session) run() {
	defer close(s.life.done)
	defer s.h.metrics.sessions.Dec()
	e := (&serving{s: s, inherited: s.inherited}).untilEnd()
	leaves := e.verdict == leave && !s.ephemeral
	s.life.beginEnd(leaves)
	s.asks.sessionEnds()
	s.pictures.end()
	s.watchers.end()
	s.slot.LockRuns()
	defer s.slot.UnlockRuns()
	if leaves {
		e.leave()
		return
	}
	e.finish()
}

// serving manages a session from its grant to its end. Only the goroutine of run uses it.
type serving struct {
	s *Session
	// lost says that the worker was lost, and is not known to be back; lostAt is when the connection ended.
	lost   bool
	lostAt time.Time
	// bundle is what was captured then; nil if nothing was, or nothing could be.
	bundle *evidence.Bundle
	// inherited is the session's, until the worker is back.
	inherited bool
}

// untilEnd returns the session's end once the rules say that it has come.
func (v *serving) untilEnd() *ending {
	s := v.s
	var cookies <-chan time.Time
	if s.policy.byHand {
		v.noteCookies() // the person may close it at any time
		ticker := time.NewTicker(cookiesEvery)
		defer ticker.Stop()
		cookies = ticker.C
	}
	for {
		var f facts
		now := time.Now()
		ended := s.clients.snapshot(func() { f = s.life.known() })
		r, next := s.policy.rule(f, now)
		switch r.verdict {
		case endInOrder, lose, leave:
			return &ending{s: s, ruling: r, bundle: v.bundle}
		case interrupted:
			v.workerIsGone(r.reason)
		case stay:
			switch {
			case v.lost || v.inherited && f.connections > 0:
				v.workerIsBack()
			case !v.inherited:
				s.still.isBack()
				s.clients.close(s.h.ctx, ended)
			default:
				s.still.isBack()
			}
		}
		for _, look := range []time.Time{s.people.handBackIfGone(now), s.people.lookForLink(now)} {
			if !look.IsZero() && (next.IsZero() || look.Before(next)) {
				next = look
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-s.life.woken:
		case <-timer:
		case <-s.holding.Context().Done():
			cause := context.Cause(s.holding.Context())
			s.life.update(func(f *facts) { f.leaseLost = cause })
		case <-cookies:
			v.noteCookies()
		case <-s.browser.Exited():
			v.browserIsGone()
		case <-s.browser.Mux().Done():
			v.browserIsGone()
		case <-s.browser.Failed():
			s.life.update(func(f *facts) { f.failure = s.browser.Failure() })
		}
	}
}

// workerIsGone fails the requests that the worker's client had paused, and captures the
// evidence, once for each loss. A worker that came back while the loss before was captured, and is gone
// again, is lost anew: nothing of that connection is failed yet, and the bundle does not show what it did.
// workerIsGone captures nothing of a worker that is back by then: a capture stops pages from loading, and
// what it finds would be dropped.
func (v *serving) workerIsGone(reason string) {
	s := v.s
	lostAt := s.life.known().endedAt
	if v.lost && lostAt.Equal(v.lostAt) {
		return
	}
	v.lost, v.lostAt = true, lostAt
	v.dropBundle()
	s.log.Warn().Str("worker", s.manifest.WorkerID).Dur("grace", s.policy.grace).Msg("connection lost without a close handshake")
	s.still.begin()
	s.baselines.interrupt()
	if !s.still.othersWork() { // their large commands wait for room as ever
		s.browser.LimitWrites(s.h.o.CutTimeout)
	}
	s.clients.fence()
	if !s.ephemeral && s.life.known().connections == 0 {
		v.bundle = s.capture(reason, "", false)
	}
}

// workerIsBack goes on with a worker that had been lost, and drops what was captured then.
func (v *serving) workerIsBack() {
	s := v.s
	s.log.Info().Msg("the worker came back")
	v.inherited, v.lost = false, false
	s.browser.LimitWrites(0)
	s.still.isBack()
	s.clients.release()
	v.dropBundle()
}

// dropBundle drops what was captured of a loss that was none, or not the last one.
func (v *serving) dropBundle() {
	bundle := v.bundle
	if v.bundle = nil; bundle == nil {
		return
	}
	if err := bundle.Discard(); err != nil {
		v.s.log.Warn().Err(err).Msg("unused evidence not removed")
	}
}

func (v *serving) browserIsGone() {
	quit := v.quitInOrder()
	v.s.life.update(func(f *facts) { f.browserGone, f.browserQuit = true, quit })
}
