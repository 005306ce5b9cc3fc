package session

import (
	"time"

	"leasehold/launcher/principal"
	"leasehold/lease"
)

// A person who took a session over and is not there any more may not keep its worker waiting
// for ever: the session is handed back.

// attendance is what shows that a person is there.
type attendance struct {
	views  int       // of theirs that are open
	seenAt time.Time // the last sign of them
}

// goneAt is when the person counts as gone; zero: not while a view of theirs is open.
func (a attendance) goneAt(grace time.Duration) time.Time {
	if a.views > 0 {
		return time.Time{}
	}
	return a.seenAt.Add(grace)
}

// Present counts a view of the session that a principal opened. The caller calls left once,
// when it is closed.
func (s *Session) Present(p principal.Principal) (left func()) {
	count := func(by int) {
		s.mu.Lock()
		if s.views[p.Name] += by; s.views[p.Name] == 0 {
			delete(s.views, p.Name)
		}
		s.seenLocked(p.Name)
		s.mu.Unlock()
		s.life.wake() // for run to look at it
	}
	count(1)
	return func() { count(-1) }
}

// seenLocked notes a sign of the principal, if it is the person who took the session over.
// The caller holds s.mu.
func (s *Session) seenLocked(name string) {
	if s.takeover != nil && s.takeover.Principal == name {
		s.takeover.seenAt = time.Now()
	}
}

// handBackIfGone hands the session back if the person who took it over is gone now, and
// returns when to look again; zero: not before something changes. It does not wait: the
// browser may not read what it is sent, and run has to see that.
func (s *Session) handBackIfGone(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.takeover
	if t == nil || t.leaving {
		return time.Time{}
	}
	at := s.goneAtLocked(t)
	if at.IsZero() || now.Before(at) {
		return at
	}
	t.leaving = true
	s.h.work.Go(func() { s.handBackFor(t) })
	return time.Time{}
}

// goneAtLocked is when a person counts as gone; zero: not while they look at the session. The
// caller holds s.mu.
func (s *Session) goneAtLocked(t *takeover) time.Time {
	return attendance{s.views[t.Principal], t.seenAt}.goneAt(s.h.o.PersonGrace)
}

// noteGone is the journal's note of a hand-back that nobody made.
const noteGone = "not there any more"

// handBackFor hands the session back in the place of a person who is gone. A worker that
// waits for an answer goes on waiting, for somebody else.
func (s *Session) handBackFor(t *takeover) {
	s.handing.Lock()
	defer s.handing.Unlock()
	s.mu.Lock()
	at := s.goneAtLocked(t)
	back := at.IsZero() || time.Now().Before(at)
	t.leaving = t.leaving && !back
	over := back || s.takeover != t || s.life.isEnding()
	s.mu.Unlock()
	if over {
		s.life.wake() // for run to look at it again, if they came back
		return
	}
	s.log.Warn().Str("principal", t.Principal).Str("person", t.Name).Dur("grace", s.h.o.PersonGrace).Msg("the person is gone")
	s.giveBack(t, noteGone)
	s.announce(lease.EventHandedBack, t, func(e *lease.Event) { e.Reason = handedSinceGone })
}
