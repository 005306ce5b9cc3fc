package slots

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence/capture"
	"leasehold/internal/procfs"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// A slot is warm while no session has its browser. The last session was released in
// order, with its evidence stored. Everything that it had open was closed, except one
// empty tab, which keeps the session cookies. The launcher keeps the kernel's lock, and
// the lease is free. The grant to the next task takes the browser under a new token.
// Everybody else who needs the profile closes the browser first.

// Why a warm browser was closed, in the words of metrics and logs.
const (
	WarmIdle      = "idle"
	WarmSurplus   = "limit"
	WarmPlace     = "place_needed"
	WarmMemory    = "memory"
	WarmMismatch  = "mismatch"
	WarmGone      = "browser_gone"
	WarmHung      = "hung"
	WarmDisturbed = "stirred"
	WarmNetwork   = "network_service"
	WarmSetting   = "setting"
	WarmWanted    = "profile_wanted"
	WarmShutdown  = "shutdown"
)

// LostNetwork is the disturbance of a browser of which NetworkEnded is true.
const LostNetwork = "its network service ended, and the session's cookies with it: those that were kept at the release stay"

const (
	// pingEvery is the time between two pings of a warm browser, and pingTimeout how
	// long its answer may take, in time that the host gives (see capture.Patience).
	pingEvery   = 10 * time.Second
	pingTimeout = 10 * time.Second
	// memoryEvery is the time between two readings of the host's memory.
	memoryEvery = 2 * time.Second
)

// warm is the state of a browser while it is warm.
type warm struct {
	session string // the last session, for the log
	since   time.Time
	// taken is closed when the browser is taken, to be used or closed.
	taken chan struct{}
	// disturbance is something that happened in the browser, although nothing should; empty:
	// nothing did. The table's mutex guards it, so it is either for the watcher, who closes the
	// browser under it, or for who takes the browser.
	disturbance string
	// stirred has an element for the watcher if there may be a disturbance.
	stirred chan struct{}
}

func newWarm(session string, since time.Time) *warm {
	return &warm{session: session, since: since, taken: make(chan struct{}), stirred: make(chan struct{}, 1)}
}

// again returns the state for a browser that was taken, and neither used nor closed. The caller
// holds the table's mutex.
func (w *warm) again() *warm {
	next := newWarm(w.session, w.since)
	if w.disturbance != "" {
		next.disturb(w.disturbance)
	}
	return next
}

// disturb says that something happened in the browser. One disturbance is enough. The caller
// holds the table's mutex.
func (w *warm) disturb(what string) {
	if w.disturbance != "" {
		return
	}
	w.disturbance = cmp.Or(what, "it is not known what")
	select {
	case w.stirred <- struct{}{}:
	default:
	}
}

// disturbed takes the disturbance, or returns "" if there was none. The caller holds the table's
// mutex.
func (w *warm) disturbed() string {
	what := w.disturbance
	w.disturbance = ""
	return what
}

// watch waits until there is a reason to close the browser, and returns it with
// details, which a disturbance has for itself. It returns "" as soon as the browser is taken.
func (w *warm) watch(bound time.Duration, gone <-chan struct{}, ping func() error) (why, detail string) {
	end := time.NewTimer(time.Until(w.since.Add(bound)))
	defer end.Stop()
	every := time.NewTicker(pingEvery)
	defer every.Stop()
	for {
		select {
		case <-w.taken:
			return "", ""
		case <-end.C:
			return WarmIdle, ""
		case <-gone:
			return WarmGone, ""
		case <-w.stirred:
			return WarmDisturbed, ""
		case <-every.C:
			if err := ping(); err != nil {
				return WarmHung, err.Error()
			}
		}
	}
}

// Park keeps the browser of a session that is over open, and makes the slot warm.
func (s *Slot) Park(sessionID string) {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	s.runs, s.starting = nil, nil
	s.warm = newWarm(sessionID, time.Now())
	s.enter(Warm)
	if t.countWarm() > t.o.KeepWarmMax {
		t.closeWarmLater(t.longestWarm(), WarmSurplus, "")
	}
}

// HandOver gives the warm browser to a session, and returns the disturbance until then.
// It returns "" if there was none, or if the browser was handed over before.
func (s *Slot) HandOver() string {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	w := s.warm
	if w == nil {
		return ""
	}
	s.placed = true
	s.warm, s.lost = nil, nil
	return w.disturbed()
}

// IsWarm tells whether the slot came with a warm browser that is still there.
func (s *Slot) IsWarm() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.warm != nil
}

// WarmSince is since when the browser has been warm; zero if it is not.
func (s *Slot) WarmSince() time.Time {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.warm == nil {
		return time.Time{}
	}
	return s.warm.since
}

// Disturbed returns the disturbance of the warm browser since the last call, or "" if
// there was none. That the browser has to be given up is a disturbance, too.
func (s *Slot) Disturbed() string {
	lost := s.Browser().NetworkEnded()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	w, b := s.warm, s.browser
	if w == nil {
		return ""
	}
	if lost {
		w.disturb(LostNetwork)
	}
	select {
	case <-b.Failed():
		w.disturb(b.Failure().Detail)
	default:
	}
	return w.disturbed()
}

// watchWarm closes a warm browser as soon as there is a reason to. The caller holds
// t.mu.
func (t *Table) watchWarm(s *Slot) {
	w, b := s.warm, s.browser
	t.work.Go(func() {
		gone := make(chan struct{})
		t.work.Go(func() {
			select {
			case <-b.Exited():
				close(gone)
			case <-b.Mux().Done():
				close(gone)
			case <-b.Failed():
				t.mu.Lock()
				defer t.mu.Unlock()
				w.disturb(b.Failure().Detail)
			case <-b.NetworkEnds():
				t.mu.Lock()
				defer t.mu.Unlock()
				w.disturb(LostNetwork)
			case <-w.taken:
			}
		})
		why, detail := w.watch(t.o.KeepWarmIdle, gone, func() error {
			return capture.Patiently(context.Background(), pingTimeout, b.Ping)
		})
		if why == "" {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.warm != w || s.state != Warm { // who took it is told of the disturbance
			return
		}
		if why == WarmDisturbed {
			detail = w.disturbed()
		}
		t.closeWarmLater(s, why, detail)
	})
}

// closeWarmLater takes a warm browser and closes it in the background. The caller holds
// t.mu.
func (t *Table) closeWarmLater(s *Slot, why, detail string) {
	close(s.warm.taken)
	s.enter(Closing)
	t.work.Go(func() {
		s.CloseWarm(why, detail)
		s.Vacate()
	})
}

// CloseWarm closes the warm browser of an occupied profile in order, if it has one, and
// gives up the lock. Its last session has its evidence. What came after is captured before
// a browser is closed that did something by itself, and before one is killed. Where no
// evidence can be stored the browser stays open, and the patrol tries again.
func (s *Slot) CloseWarm(why, detail string) {
	s.t.mu.Lock()
	w, b, lock := s.warm, s.browser, s.lock
	s.t.mu.Unlock()
	if w == nil {
		return
	}
	if why != WarmGone && b.NetworkEnded() {
		why, detail = WarmNetwork, cmp.Or(detail, LostNetwork)
	}
	log := s.t.o.Log.With().Str("profile", s.profile).Str("session", w.session).Str("why", why).Logger()
	event := log.Info()
	if detail != "" {
		event = log.Warn().Str("detail", detail)
	}
	event.Dur("idle", time.Since(w.since)).Int("pid", b.PID()).Msg("warm browser is closed")
	if err := errors.Join(s.closeWarm(b, lock, why, detail, log), lock.Unlock()); err != nil {
		log.Error().Err(err).Msg("warm browser not closed cleanly")
	}
	s.t.warmCloses.WithLabelValues(why).Inc()
	s.closeRelay()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.warm, s.browser, s.lock, s.fit, s.startedFor, s.proxy = nil, nil, nil, nil, "", nil
}

// Preserve stores evidence of a profile's browser that no session has. why and detail say
// for what it is closed.
type Preserve func(profile, why, detail string, b *browser.Browser) error

// byItself tells whether a warm browser is closed for what it did.
func byItself(why string) bool {
	return why == WarmGone || why == WarmHung || why == WarmDisturbed || why == WarmNetwork
}

func (s *Slot) closeWarm(b *browser.Browser, lock *profiledir.Lock, why, detail string, log zerolog.Logger) error {
	preserve := func() error { return s.t.preserve(s.profile, why, detail, b) }
	if s.t.preserve == nil {
		preserve = nil
	}
	if preserve != nil && byItself(why) {
		unsaid := lock.OweEvidence(why) // to whoever closes it, if that fails here
		if err := preserve(); err != nil {
			return errors.Join(err, unsaid, b.Detach())
		}
		preserve = nil
	}
	return CloseWarm(b, lock, s.t.o.Root, s.t.o.Jar, why, preserve, log)
}

// CloseWarm closes a browser that no session has, and that has all cookies of its account unless why is
// WarmNetwork. preserve stores evidence before it is closed by force, and is nil where there is some.
func CloseWarm(b *browser.Browser, lock *profiledir.Lock, root *profiledir.Root, jar sessionfile.Jar, why string, preserve func() error, log zerolog.Logger) error {
	keeps := &jar
	if why == WarmNetwork {
		keeps = nil
	}
	_, err := CloseUnused(b, lock, root, keeps, preserve, nil, log)
	return err
}

// CloseUnused is CloseWarm for a browser that may lack some of the cookies: jar is nil then, and what it
// keeps stays, as it does if the browser's network service has ended. Only if the browser ended cleanly has it
// written all its persistent cookies, so only then the jar's copy of them is dropped. The method is empty if the
// browser may still run, and then its note stays, too. judge says whether the directory has all that the browser
// wrote, which has ended by the method. If not, the directory is disbelieved before the note is removed. judge is
// nil for a browser of which the jar has the cookies, and the rest was on the disk before.
func CloseUnused(b *browser.Browser, lock *profiledir.Lock, root *profiledir.Root, jar *sessionfile.Jar, preserve func() error, judge func(chrome.CloseMethod) error, log zerolog.Logger) (chrome.CloseMethod, error) {
	profile := lock.Profile()
	var keep browser.KeepCookies
	if jar != nil {
		keep = KeepOfWarm(b, *jar)
	}
	method, err := b.ClosePreserved(profile, keep, preserve, log)
	if _, lost := errors.AsType[*profiledir.NotStoredError](err); err != nil && !lost {
		return "", err
	}
	if judge != nil {
		if err == nil {
			err = judge(method)
		}
		if unsaid := lock.DisbelieveLost(err); unsaid != nil { // whoever finds the browser's note says it
			return method, errors.Join(err, unsaid)
		}
	}
	if err != nil {
		return method, errors.Join(err, lock.ClearRunning())
	}
	if err = lock.ClearRunning(); err == nil && jar != nil {
		err = DropLasting(b, profile, root, *jar)
	}
	return method, err
}

// KeepOfWarm is how the jar keeps the session cookies of a browser while it has those that the browser had before: they
// are replaced, unless the browser lost some since.
func KeepOfWarm(b *browser.Browser, jar sessionfile.Jar) browser.KeepCookies {
	return func(ctx context.Context, caller sessionfile.Caller, profile string) error {
		return jar.KeepOfWarm(ctx, caller, profile, b.NetworkEnded)
	}
}

// DropLasting drops the jar's copy of the persistent cookies of a warm browser that has ended, if it did so cleanly
// and with the network service that had them.
func DropLasting(b *browser.Browser, profile string, root *profiledir.Root, jar sessionfile.Jar) error {
	if dir, err := root.Inspect(profile); err != nil || dir.ClosedCleanly.Answer != profiledir.Yes || b.NetworkEnded() {
		return nil // it may have to be set again
	}
	return jar.ClosedInOrder(profile)
}

// CoolProfile closes the profile's warm browser, if it has one.
func (t *Table) CoolProfile(profile, why string) {
	t.mu.Lock()
	s := t.slots[profile]
	if s == nil || s.state != Warm {
		t.mu.Unlock()
		return
	}
	close(s.warm.taken)
	s.enter(Closing)
	t.mu.Unlock()
	s.CloseWarm(why, "")
	s.Vacate()
}

// WarmSince is since when the profile's browser has been warm; zero if it is not.
func (t *Table) WarmSince(profile string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.slots[profile]; s != nil && s.state == Warm {
		return s.warm.since.UTC()
	}
	return time.Time{}
}

// longestWarm is the slot that has been warm for the longest time, or nil. The caller
// holds t.mu.
func (t *Table) longestWarm() *Slot {
	var longest *Slot
	for _, s := range t.slots {
		if s.state == Warm && (longest == nil || s.warm.since.Before(longest.warm.since)) {
			longest = s
		}
	}
	return longest
}

// countWarm counts the warm slots. The caller holds t.mu.
func (t *Table) countWarm() int {
	n := 0
	for _, s := range t.slots {
		if s.state == Warm {
			n++
		}
	}
	return n
}

// WatchMemory closes warm browsers, the one that has been warm the longest first, while
// the host is short of memory. It returns when the table's context ends.
func (t *Table) WatchMemory() {
	every := time.NewTicker(memoryEvery)
	defer every.Stop()
	logged := false
	for {
		select {
		case <-every.C:
		case <-t.ctx.Done():
			return
		}
		t.mu.Lock()
		none, changed := t.countWarm() == 0, t.changed
		t.mu.Unlock()
		if none { // an idle launcher is not woken up for nothing
			every.Stop()
			select {
			case <-changed:
			case <-t.ctx.Done():
				return
			}
			every.Reset(memoryEvery)
			continue
		}
		m, err := procfs.ReadHostMemory()
		if err != nil {
			if !logged {
				logged = true
				t.o.Log.Error().Err(err).Msg("memory is not watched: warm browsers stay")
			}
			continue
		}
		why := shortage(m, t.o.KeepWarmMinMemory)
		t.mu.Lock()
		if s := t.longestWarm(); s != nil && why != "" {
			t.closeWarmLater(s, WarmMemory, why)
		}
		t.mu.Unlock()
	}
}
