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

// Profile is the slot's profile.
func (s *Slot) Profile() string { return s.profile }

// EnterGate waits until no other run comes or goes, and keeps it so until LeaveGate.
func (s *Slot) EnterGate() { s.gate <- struct{}{} }

// TryGate is EnterGate with a bound. It is false where that ran out.
func (s *Slot) TryGate(bound time.Duration) bool {
	select {
	case s.gate <- struct{}{}:
		return true
	case <-time.After(bound):
		return false
	}
}

// LeaveGate lets the next run come or go.
func (s *Slot) LeaveGate() { <-s.gate }

// Lock is the launcher's part of the profile's lock; nil: it has none.
func (s *Slot) Lock() *profiledir.Lock {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.lock
}

// Browser is the profile's browser; nil: there is none.
func (s *Slot) Browser() *browser.Browser {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.browser
}

// Locked gives the slot the launcher's part of the profile's lock.
func (s *Slot) Locked(lock *profiledir.Lock) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.lock = lock
}

// Opened gives the slot its browser, and the session that it was started for; fit is
// nil where it is not known what it was started with.
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

// Fit is what the browser was started with; nil: that is not known here.
func (s *Slot) Fit() *Fit {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.fit
}

// Place counts the slot's browser among those of the host, although nobody asked for a
// place: it was found, or handed over.
func (s *Slot) Place() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.placed = time.Now()
}

// Starting has what is seen in the browser noted by a run that is not entered yet.
func (s *Slot) Starting(run Run) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.starting = run
}

// Enter counts a run among those of the slot.
func (s *Slot) Enter(run Run) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.runs = append(s.runs, run)
	s.enter(Serving)
}

// Leave takes a run out of the slot, and tells whether it was the last. The last one
// stays in the list until the slot is vacated or parked: what the pages do at the end
// goes into its journal. The caller holds the gate.
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

// End takes the last run out, and vacates the slot.
func (s *Slot) End() {
	s.t.mu.Lock()
	s.runs = nil
	s.t.mu.Unlock()
	s.Vacate()
}

// Shared tells whether other runs than this one are using the browser.
func (s *Slot) Shared(run Run) bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return slices.ContainsFunc(s.runs, func(r Run) bool { return r != run })
}

// Joinable tells whether one more run may use the browser.
func (s *Slot) Joinable() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.state == Serving && s.browser != nil && len(s.lost) == 0
}

// Lose keeps what is to be known of a run that was lost while others went on. After
// that nobody joins.
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

// Note puts what was seen in the browser into the journal of every run: which of them
// it belongs to cannot be told for sure. In a warm browser nothing should be seen, so
// there it is a disturbance.
func (s *Slot) Note(e checkpoint.Entry) {
	s.t.mu.Lock()
	runs, starting, warm := slices.Clone(s.runs), s.starting, s.warm
	s.t.mu.Unlock()
	switch {
	case warm != nil:
		warm.disturb(strings.TrimSpace(string(e.Kind) + " " + checkpoint.Clip(redact.URL(e.URL))))
		return
	case len(runs) == 0 && starting != nil:
		runs = []Run{starting}
	}
	for _, run := range runs {
		run.Note(e)
	}
}

// UseProxy sets the proxy of the profile's next browser; nil: none.
func (s *Slot) UseProxy(p *proxies.Proxy) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.proxy = p
}

// Proxy is the proxy of the profile's browser; nil: none.
func (s *Slot) Proxy() *proxies.Proxy {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.proxy
}
