package session

import (
	"time"

	"leasehold/launcher/principal"
	"leasehold/lease"
)

// A person who took a session over and went away must not keep its worker waiting for ever: the
// session is handed back. So it is when the time of one who came by a sign-in link is over.

// attendance is the evidence that a person is there.
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
// when the view is closed.
func (ps *People) Present(p principal.Principal) (left func()) {
	count := func(by int) {
		ps.mu.Lock()
		of := looker{p.Name, p.Person}
		if ps.views[of] += by; ps.views[of] == 0 {
			delete(ps.views, of)
		}
		ps.seenLocked(p)
		ps.mu.Unlock()
		ps.life.wake() // for run to look at it
	}
	count(1)
	return func() { count(-1) }
}

// seenLocked notes a sign of the principal, if it is the person who took the session over, or came by
// a sign-in link. The caller holds ps.mu.
func (ps *People) seenLocked(p principal.Principal) {
	switch {
	case ps.takeover != nil && ps.takeover.Principal == p.Name && p.ActsAs(ps.takeover.Name):
		ps.takeover.seenAt = time.Now()
	case ps.policy.byLink && ps.manifest.Opener.Name == p.Name:
		ps.life.seen()
	}
}

// handBackIfGone hands the session back if the person who took it over is gone now, or their time is
// over. It returns when to look again; zero if not before something changes. It does not wait, because
// the browser may not read what it is sent, and run has to notice that.
func (ps *People) handBackIfGone(now time.Time) (next time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := ps.takeover
	if t == nil || t.leaving {
		return time.Time{}
	}
	at := ps.leavesAtLocked(t)
	if at.IsZero() || now.Before(at) {
		return at
	}
	t.leaving = true
	ps.work.Go(func() { ps.handBackFor(t) })
	return time.Time{}
}

// leavesAtLocked is when a person counts as gone, or their time is over; zero: not while they look at
// the session. The caller holds ps.mu.
func (ps *People) leavesAtLocked(t *takeover) time.Time {
	views := ps.views[looker{t.Principal, ""}] + ps.views[looker{t.Principal, t.Name}]
	gone := attendance{views, t.seenAt}.goneAt(ps.grace)
	if !t.until.IsZero() && (gone.IsZero() || t.until.Before(gone)) {
		return t.until
	}
	return gone
}

// A person with a sign-in link may be gone for so many times the grace, and for leastLinkGrace at
// least: they look for a code in another app meanwhile, which may close the page.
const (
	linkGraces     = 5
	leastLinkGrace = 10 * time.Second
)

// lookForLink states that the person who came by a sign-in link is gone, if they are now. It returns
// when to look again; zero if not before something changes.
func (ps *People) lookForLink(now time.Time) (next time.Time) {
	if !ps.policy.byLink {
		return time.Time{}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at := attendance{ps.views[looker{ps.manifest.Opener.Name, ""}], ps.life.known().seenAt}.goneAt(max(linkGraces*ps.grace, leastLinkGrace))
	if at.IsZero() || now.Before(at) {
		return at
	}
	ps.log.Warn().Str("principal", ps.manifest.Opener.Name).Msg("the person with the sign-in link is gone")
	ps.life.update(func(f *facts) { f.personGone = true })
	return time.Time{}
}

// The journal's notes about a hand-back because the person is gone, or their time is over.
const (
	noteGone = "not there any more"
	noteOver = "the time of the sign-in link is over"
)

// handBackFor hands the session back for a person who is gone, or whose time is over. A worker that
// waits for an answer goes on waiting, for another person.
func (ps *People) handBackFor(t *takeover) {
	ps.handing.Lock()
	defer ps.handing.Unlock()
	ps.mu.Lock()
	now, at := time.Now(), ps.leavesAtLocked(t)
	back := at.IsZero() || now.Before(at)
	t.leaving = t.leaving && !back
	note, reason := noteGone, handedSinceGone
	if !t.until.IsZero() && !now.Before(t.until) {
		note, reason = noteOver, handedSinceOver
	}
	over := back || ps.takeover != t || ps.life.isEnding()
	ps.mu.Unlock()
	if over {
		ps.life.wake() // for run to look at it again, if they came back
		return
	}
	ps.log.Warn().Str("principal", t.Principal).Str("person", t.Name).Dur("grace", ps.grace).Str("reason", reason).Msg("session handed back for the person")
	ps.giveBack(t, note)
	ps.announce(lease.EventHandedBack, t, func(e *lease.Event) { e.Reason = reason })
}
