package session

import (
	"testing"
	"time"

	"leasehold/launcher/api"
)

// TestTheEndIsNoLossOfTheWorker: nothing is lost with the last connection once the session ends,
// or when the worker asked for its end.
func TestTheEndIsNoLossOfTheWorker(t *testing.T) {
	t.Parallel()
	for what, state := range map[string]func(*life){
		"the end has begun":      func(l *life) { l.beginEnd(false) },
		"it begins to be left":   func(l *life) { l.beginEnd(true) },
		"the session is over":    (*life).end,
		"the worker closed it":   func(l *life) { l.update(func(f *facts) { f.closing = true }) },
		"the worker released it": func(l *life) { l.update(func(f *facts) { f.released = &api.Release{} }) },
	} {
		l := newAlone(t, task("one")).life
		if !l.mayLoseWorker() {
			t.Errorf("%s: the worker cannot be lost before that, either", what)
		}
		if state(l); l.mayLoseWorker() {
			t.Errorf("%s: the worker may still be lost", what)
		}
	}
}

// TestAWorkerWaitsNoLongerThanItsSessionMayLive for a person, and not at all once the end has begun.
func TestAWorkerWaitsNoLongerThanItsSessionMayLive(t *testing.T) {
	t.Parallel()
	l := newAlone(t, task("one", func(m *api.Manifest) { m.LockTimeoutSeconds = 60 })).life
	start := l.known().startedAt
	for wants, waits := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: time.Minute} {
		until, ok := l.asks(start.Add(wants))
		if f := l.known(); !ok || !until.Equal(start.Add(waits)) || !f.asksUntil.Equal(until) {
			t.Errorf("%v: until %v, %v; known %v", wants, until.Sub(start), ok, f.asksUntil)
		}
	}
	before := l.known()
	l.beginEnd(false)
	if _, ok := l.asks(start.Add(2 * time.Second)); ok || l.known() != before {
		t.Errorf("at the end: %+v, before %+v", l.known(), before)
	}
}

// TestWhatASessionThatIsLeftHasInTheBrowserStays: a connection that ends late closes nothing there, since the next
// launcher goes on with it.
func TestWhatASessionThatIsLeftHasInTheBrowserStays(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		l := newAlone(t, task("one")).life
		l.beginEnd(leaves)
		if l.end(); l.isOver() == leaves {
			t.Errorf("it is left: %v; what is in the browser is closed: %v", leaves, l.isOver())
		}
	}
}
