package session

import (
	"sync"
	"time"

	"leasehold/launcher/api"
)

// life is the state of a session: the facts that are known of its worker and its browser, and
// whether its end has begun. Any code may state facts; only run decides by them. Its mutex is
// taken after all others of a session: while it is held, no other one is taken except that of
// the session's file.
type life struct {
	*terms
	woken chan struct{} // one place: the facts changed
	done  chan struct{} // closed when the session is over

	mu     sync.Mutex
	facts  facts
	ending bool // the end has begun
	leaves bool // it is an end here only: the next launcher may go on with the session
	over   bool // the journal is closed: what connections say now is too late
}

func newLife(t *terms) *life {
	now := time.Now()
	return &life{terms: t, woken: make(chan struct{}, 1), done: make(chan struct{}), facts: facts{startedAt: now, seenAt: now}}
}

// begin starts the clocks of a session that is about to serve.
func (l *life) begin() {
	l.update(func(f *facts) { f.startedAt, f.seenAt = time.Now(), time.Now() })
}

// goesOn begins the session of an earlier launcher with the facts that are left of it.
func (l *life) goesOn(left facts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = left
}

// reachable begins the time that the worker of an earlier launcher's session has to come back.
func (l *life) reachable() {
	l.update(func(f *facts) {
		f.seenAt = time.Now()
		if f.dropped {
			f.endedAt = f.seenAt
		}
	})
}

// seen is beat for a sign that changes only when to look again, later than run will.
func (l *life) seen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts.seenAt = time.Now()
}

// beat notes a sign of life.
func (l *life) beat() { l.update(func(f *facts) { f.seenAt = time.Now() }) }

// update states facts, and has run look at them.
func (l *life) update(change func(*facts)) {
	l.mu.Lock()
	change(&l.facts)
	l.mu.Unlock()
	l.wake()
}

// wake has run look at the facts.
func (l *life) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

func (l *life) known() facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.facts
}

// look is known, and whether the session is about to be over for everybody.
func (l *life) look() (f facts, ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.facts, l.ending && !l.leaves
}

func (l *life) ruling(now time.Time) ruling {
	r, _ := l.policy.rule(l.known(), now)
	return r
}

// lastSeen is when the worker was last known to live.
func (l *life) lastSeen(now time.Time) time.Time { return l.policy.lastSeen(l.known(), now) }

// asks states that the worker waits for a person from now on. It returns the end of the wait:
// as long as the worker wants to wait, but no longer than its session may live. It is refused
// once the end has begun.
func (l *life) asks(until time.Time) (_ time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.facts.startedAt.Add(l.policy.lockTimeout); l.policy.lockTimeout > 0 && end.Before(until) {
		until = end.UTC()
	}
	if l.ending {
		return until, false
	}
	l.facts.asksUntil = until
	return until, true
}

func (l *life) isEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// isOver tells whether nobody closes any more what a connection that ends now has in the browser. Of a session
// that is left, the next launcher does.
func (l *life) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over && !l.leaves
}

// mayLoseWorker tells whether the end of the last connection may be the loss of the worker. It
// is not while the session is ending, or if the worker asked for its end.
func (l *life) mayLoseWorker() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.over && !l.ending && !l.facts.closing && l.facts.released == nil
}

// unlessOver calls do, unless the session is over. The session does not become over while do
// runs.
func (l *life) unlessOver(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		do()
	}
}

// beginEnd states that the end has begun. leaves says that the session is left to the next launcher.
func (l *life) beginEnd(leaves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending, l.leaves = true, leaves
}

// isLeft tells whether the end has begun, and leaves the session to the next launcher.
func (l *life) isLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaves
}

// endingProblem refuses what comes once the end has begun. It does not say of a session that is left to the next
// launcher that it has ended: workers would take that as final, and give the session up.
func (l *life) endingProblem() *api.Problem {
	if l.isLeft() {
		return leftProblem(l.id)
	}
	return api.Refuse(api.CodeSessionEnded, "session %s is ending", l.id).With("session_id", l.id)
}

// end states that the session is over, or over here.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
