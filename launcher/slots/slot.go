package slots

import (
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence/redact"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
)

// Profile returns the id of the slot's profile.
func (s *Slot) Profile() string { return s.profile }

// LockRuns waits until no other run is being added or removed. Until UnlockRuns, no
// other can be.
func (s *Slot) LockRuns() { s.runsLock <- struct{}{} }

// TryLockRuns is LockRuns with a time limit. It is false if the limit passed.
func (s *Slot) TryLockRuns(bound time.Duration) bool {
	select {
	case s.runsLock <- struct{}{}:
		return true
	case <-time.After(bound):
		return false
	}
}

// UnlockRuns ends LockRuns.
func (s *Slot) UnlockRuns() { <-s.runsLock }

// Lock is the launcher's part of the profile's lock; nil if it has none.
func (s *Slot) Lock() *profiledir.Lock {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.lock
}

// Browser is the profile's browser; nil if there is none.
func (s *Slot) Browser() *browser.Browser {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.browser
}

// Locked sets the launcher's part of the profile's lock.
func (s *Slot) Locked(lock *profiledir.Lock) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.lock = lock
}

// Opened sets the slot's browser and the session that it was started for. fit is nil if
// it is not known what the browser was started with.
func (s *Slot) Opened(b *browser.Browser, sessionID string, fit *Fit) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.browser, s.startedFor, s.fit = b, sessionID, fit
}

// StartedFor is the session that the browser was started for.
func (s *Slot) StartedFor() string {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.startedFor
}

// Fit is what the browser was started with; nil if that is not known.
func (s *Slot) Fit() *Fit {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.fit
}

// Place gives the slot's browser a place without regard to the limit, because it exists
// already: it was found, or handed over.
func (s *Slot) Place() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.placed = true
}

// Starting names the run whose journal gets the entries until a run is entered.
func (s *Slot) Starting(run Run) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.starting = run
}

// Enter adds a run to the slot.
func (s *Slot) Enter(run Run) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.runs = append(s.runs, run)
	s.enter(Serving)
}

// Leave removes a run from the slot, and tells whether it was the last. The last one
// stays listed until the slot is vacated or parked, so that its journal gets what the
// pages do at the end. The caller has called LockRuns.
func (s *Slot) Leave(run Run) (last bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(s.runs), func(r Run) bool { return r == run })
	if len(others) == 0 {
		s.enter(Ending)
		return true
	}
	s.runs = others
	return false
}

// End removes the last run, and vacates the slot.
func (s *Slot) End() {
	s.t.mu.Lock()
	s.runs = nil
	s.t.mu.Unlock()
	s.Vacate()
}

// Shared tells whether any run other than this one is using the browser.
func (s *Slot) Shared(run Run) bool { return len(s.Others(run)) > 0 }

// Others are the runs other than this one that are using the browser.
func (s *Slot) Others(run Run) []Run {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.runs), func(r Run) bool { return r == run })
}

// Joinable tells whether one more run may use the browser.
func (s *Slot) Joinable() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.state == Serving && s.browser != nil && len(s.lost) == 0
}

// Lose keeps a run that was lost while others went on. After that no run can join.
func (s *Slot) Lose(run sessionfile.LostRun) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.lost = append(s.lost, run)
}

// Lost are the runs that were lost while others went on.
func (s *Slot) Lost() []sessionfile.LostRun {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return slices.Clone(s.lost)
}

// Note writes an entry about the browser into the journal of every run, since it is not
// certain which run it belongs to. In a warm browser nothing should happen, so there
// the entry is a disturbance.
func (s *Slot) Note(e checkpoint.Entry) {
	for _, run := range s.runsOrDisturb(e) {
		run.Note(e)
	}
}

// runsOrDisturb are the runs into whose journals the entry belongs. There is none while the browser
// is warm: then the entry is its disturbance.
func (s *Slot) runsOrDisturb(e checkpoint.Entry) []Run {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	switch {
	case s.warm != nil:
		s.warm.disturb(strings.TrimSpace(string(e.Kind) + " " + checkpoint.Clip(redact.URL(e.URL))))
		return nil
	case len(s.runs) == 0 && s.starting != nil:
		return []Run{s.starting}
	}
	return slices.Clone(s.runs)
}

// UseProxy sets the proxy of the profile's next browser; nil for none.
func (s *Slot) UseProxy(p *proxies.Proxy) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.proxy = p
}

// Proxy is the proxy of the profile's browser; nil for none.
func (s *Slot) Proxy() *proxies.Proxy {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.proxy
}
