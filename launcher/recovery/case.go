package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/tracing"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Goal is how a case is to end.
type Goal int

// The goals. Each begins with evidence.
const (
	// Recover is for a worker that was lost: quarantine, close, inspect, decide.
	Recover Goal = iota
	// Release is the proper end of a worker's session: close the browser, or leave it open for
	// the next task, and release the lease. If a step fails, the profile is recovered.
	Release
	// EndRun ends one of several runs that share a browser, which stays open for the others.
	EndRun
	// CloseOnly closes a browser whose profile is decided about already, or will be by a later
	// launcher. Only the name of the evidence is added to the record.
	CloseOnly
)

// Case is a session, or another use of a profile, that is being ended. The caller occupies the
// profile, and no message of the worker reaches the browser any more.
type Case struct {
	Goal Goal
	// File is the session file: why the session ends, what the worker said about its task, and
	// the evidence if an earlier attempt has sealed it.
	File    sessionfile.File
	Profile string
	Path    string // of its directory
	// Lock is the launcher's part of the lock. Chrome's part may be held by a process that is
	// not the browser.
	Lock    *profiledir.Lock
	Browser Browser // nil: there is no browser
	Keep    KeepCookies
	Journal func() []checkpoint.Entry
	Lost    []sessionfile.LostRun // further runs of the profile that were lost
	// Bundle captures the evidence, or returns what was captured at the loss. It returns nil
	// for a run that never served, which has no evidence.
	Bundle func() *evidence.Bundle
	// Latest brings a record up to what the journal knows.
	Latest func(lease.Record) lease.Record
	// Sealed is called with the session file once that names the evidence, before anything is
	// closed; nil: it is not called. Its error ends the case.
	Sealed func(sessionfile.File) error
	// StopRenewing ends the renewals of the lease. It is called before the first transition.
	StopRenewing func()
	// LeaveOpen decides, for Release, whether the browser stays open; nil: it is closed.
	LeaveOpen func() bool
	// Touched tells, for Release, once the browser is gone, whether the session counts as that of a
	// worker that failed after it had touched something; nil: it does not. Until then its pages may have
	// sent something, and only then it is known what they sent last.
	Touched func() bool
	// SignedIn is, for Release, what sites have said about whether the account is signed in; nil: they
	// were not asked. It comes after LeaveOpen.
	SignedIn func() lease.Checked
	// DetachClients removes, for EndRun, what the run's connections left in the browser.
	DetachClients func()
	// InOrder says, for EndRun, that the worker's session ends properly.
	InOrder bool
	// NeverServed says that no worker ever reached the browser. So nothing was done, and a
	// browser that had to be killed is no reason for a recovery, unless it had the OnlyCopy of
	// cookies of the account.
	NeverServed, OnlyCopy bool

	Log zerolog.Logger
}

// Ended is how a case ended.
type Ended struct {
	// How says in words how it ended; with an error it is empty, and the case goes on later.
	How string
	// File is the case's session file, with what was done.
	File sessionfile.File
	// LeftOpen says that the browser stays open for the next task.
	LeftOpen bool
	// Lost says that the run counts as lost.
	Lost bool
	// Token is that of the profile after a release: the last one of all its runs.
	Token lease.Token
}

// ErrNoEvidence says that nothing could be sealed. The browser is left open behind its shut
// fence, and nothing is decided until a bundle can be sealed.
var ErrNoEvidence = errors.New("no evidence can be stored: the profile waits, quarantined and its browser open; is the disk full?")

var (
	errNotKept    = errors.New("the evidence could not be noted in the session's file")
	errOtherToken = errors.New("the lease has another token by now")
	// errAlready says that an earlier attempt, or another launcher, has already made the
	// transition.
	errAlready = errors.New("already made")
)

// Run carries a case out. If it returns an error, the case is not complete, and a later
// attempt, by this launcher or the next one, goes on from what is stored.
func (r *Recoverer) Run(c Case) (Ended, error) {
	s := &steps{Case: c, r: r}
	s.span = r.o.Tracer.Start(context.Background(), c.Goal.span(), tracing.About{
		Profile: c.Profile, Session: c.File.SessionID, Worker: c.File.Manifest.WorkerID, Task: c.File.Manifest.TaskID, Token: uint64(c.File.Token),
	})
	how, err := s.run()
	s.span.Set("reason", s.File.Reason)
	s.span.Set("outcome", how)
	s.span.Set("evidence", s.File.Evidence.EvidenceID)
	s.span.End(err)
	if (errors.Is(err, ErrNoEvidence) || errors.Is(err, errNotKept)) && s.Browser != nil && s.Goal != EndRun { // the other runs use it
		err = errors.Join(err, s.Browser.Detach())
	}
	return Ended{How: how, File: s.File, LeftOpen: s.leftOpen, Lost: s.lost, Token: s.token}, err
}

func (g Goal) span() string {
	switch g {
	case Recover:
		return "recovery"
	case CloseOnly:
		return "close"
	}
	return "release"
}

type steps struct {
	Case
	r        *Recoverer
	span     *tracing.Span
	closed   bool
	killed   bool // the browser, when it was closed
	stored   bool // what was written into the profile is on the disk, or it is known not to be
	leftOpen bool
	lost     bool
	// answers remembers what sites said about the account; nil: they were not asked.
	answers func() error
	// token is that of the profile after a release.
	token lease.Token
	// signedIn is what they said about whether it is signed in.
	signedIn lease.Checked
	// judged is the session as it was inspected last; asked says that sites were asked about it.
	judged Closed
	asked  bool
	// distrust is why what this host keeps about the profile cannot be trusted; empty: it can
	// be. disbelief is the same for a person.
	distrust  string
	disbelief error
	// departed says that this host left the profile's directory for another home, and is now
	// the home again, but without a directory; nil: that is not so.
	departed *profiledir.DepartedError
}

// run takes the steps in their order, which is the same for every goal. Each transition is one
// compare-and-swap.
func (s *steps) run() (string, error) {
	// 0. From here on, nothing that a lost worker's pages want to send leaves the browser.
	if s.Goal == Recover || s.Goal == CloseOnly {
		s.standStill()
	}
	// 1. Evidence.
	if err := s.seal(); err != nil {
		s.lost = s.Goal == EndRun
		return "", err
	}
	switch s.Goal {
	case EndRun:
		return s.endRun()
	case CloseOnly:
		return "", s.closeOnly()
	case Release:
		if s.believed() && s.closeInOrder() {
			return s.release()
		}
	case Recover:
		s.believed()
	}
	s.standStill() // after a proper end that failed
	// 2. Quarantine: the old token is fenced for good. If the store cannot be reached, the
	// browser is closed all the same, and a later attempt goes on from there.
	s.stopRenewing()
	err := s.quarantine()
	if !s.sealed() {
		return "", errors.Join(err, ErrNoEvidence)
	}
	// 3. Close.
	closeErr := s.close()
	if errors.Is(err, errOtherToken) { // the record belongs to another session
		return "fenced: " + err.Error(), closeErr
	}
	if err != nil {
		return "", errors.Join(err, closeErr)
	}
	// 4. Inspect. 5. Decide.
	return s.inspectAndDecide(closeErr)
}

func (s *steps) sealed() bool { return s.File.Evidence.EvidenceID != "" }

// seal captures and stores the evidence, unless an earlier attempt has done so.
func (s *steps) seal() error {
	s.span.Step("evidence")
	if !s.sealed() && s.Bundle != nil {
		bundle := s.Bundle()
		if bundle != nil && s.driven() {
			s.Browser.AddWithheld(Parts{bundle, s.Log})
		}
		s.File.Evidence = s.r.Seal(bundle, s.Log)
	}
	if s.Sealed == nil || !s.sealed() {
		return nil
	}
	if err := s.Sealed(s.File); err != nil {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	return nil
}

func (s *steps) driven() bool { return s.Browser != nil && s.Browser.Driven() }

// standStill stops everything that a living browser would send.
func (s *steps) standStill() {
	if s.driven() && !s.closed {
		s.Browser.StandStill(s.Log)
	}
}

// endPages ends the pages of a lost worker's browser. From then until it is closed, the browser
// answers commands but sends nothing by itself.
func (s *steps) endPages() {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := s.Browser.EndPages(ctx, s.Log); err != nil {
		s.Log.Error().Err(err).Msg("the pages cannot be ended: the browser is closed by signals")
	}
}

func (s *steps) stopRenewing() {
	if s.StopRenewing != nil {
		s.StopRenewing()
	}
}

// close ends the browser, if it is still there.
func (s *steps) close() error {
	if s.Browser == nil || s.closed {
		return nil
	}
	s.span.Step("close")
	s.endPages()
	s.compareCookies()
	method, killed, err := s.Browser.Close(s.Profile, s.Keep, s.Log)
	s.noteCookiesLost()
	s.File.CloseMethod, s.closed, s.killed = method, method != "", killed
	s.takeStored(err)
	if err == nil || s.File.NotStored != "" {
		err = s.Lock.ClearRunning()
	}
	return err
}

// noteCookiesLost notes that the browser may have lost cookies, if it has.
func (s *steps) noteCookiesLost() {
	if lost := s.Browser.CookiesLost(); lost != "" {
		s.File.CookiesLost = lost
	}
}

// store puts what was written into the profile on the disk, unless that is done. No transition
// makes the profile available before.
func (s *steps) store() {
	if !s.stored {
		s.takeStored(s.r.o.Root.Store(s.Profile))
	}
}

// takeStored takes in how the browser's close, or Store, ended.
func (s *steps) takeStored(err error) {
	var missing *profiledir.NotStoredError
	if errors.As(err, &missing) {
		s.Log.Error().Err(err).Msg("what was written into the profile may be lost: a person decides")
		s.File.NotStored = missing.Why
		// Nobody gets the profile before a person who is told has decided, whatever becomes of this
		// launcher, and of the record meanwhile: see believe.
		if err := s.Lock.DisbelieveDirectory(missing.Why); err != nil {
			s.Log.Error().Err(err).Msg("the directory's mark cannot be changed: if this launcher is killed now, nobody is told")
		}
	}
	s.stored = err == nil || missing != nil
}

// believe makes the directory believed again, once the record says that a person decides, and the
// inspection says what may be lost.
func (s *steps) believe() {
	if s.File.NotStored == "" {
		return
	}
	if err := s.Lock.BelieveDirectory(); err != nil { // then a person is asked about it twice
		s.Log.Warn().Err(err).Msg("the directory's mark cannot be forgotten")
	}
}

// closeInOrder closes the browser at the proper end of a worker's session, or leaves it open,
// and tells whether the lease may be released. If not, the file says why.
func (s *steps) closeInOrder() bool {
	switch {
	case !s.sealed():
		s.recoverBecause(api.ReasonNoEvidence, nil)
		return false
	case len(s.Lost) > 0:
		s.recoverBecause(api.ReasonRunLost, nil)
		return false
	}
	if s.Browser != nil {
		s.noteCookiesLost()
	}
	if s.LeaveOpen != nil && s.File.CookiesLost == "" && s.LeaveOpen() {
		if s.store(); s.File.NotStored == "" {
			s.leftOpen = true
			return true
		}
	}
	return s.closedInOrder()
}

// closedInOrder closes the browser, and tells whether it ended in order with everything on the disk. If
// not, or if Touched says so, the file says that the profile has to be recovered.
func (s *steps) closedInOrder() bool {
	err := s.close()
	loses := !s.NeverServed || s.OnlyCopy
	switch {
	case err != nil || s.Browser == nil:
	case s.File.NotStored != "":
		err = errors.New(s.File.NotStored)
	case loses:
		err = s.crashed()
	}
	if err != nil || s.killed && loses {
		if !s.NeverServed && s.File.NotStored == "" {
			s.Log.Error().Err(err).Str("rung", s.File.CloseMethod).Msg("the browser did not close in order: the profile goes through recovery")
		}
		s.recoverBecause(api.ReasonNotClosed, err)
		return false
	}
	lost := s.File.CookiesLost != "" && loses
	switch {
	case s.Touched != nil && (lost || s.Touched()):
		s.Log.Warn().Str("cookies_lost", s.File.CookiesLost).Msg("the worker had failed, and its pages did something at the end, or the browser lost cookies: the profile goes through recovery")
		s.recoverBecause(api.ReasonWorkerFailed, nil)
		return false
	case lost:
		s.Log.Warn().Str("cookies_lost", s.File.CookiesLost).Msg("the browser lost cookies before its end in order: the profile goes through recovery")
		s.recoverBecause(api.ReasonNotClosed, nil)
		return false
	}
	return true
}

// crashed returns an error if the browser is gone without the note that it writes at an orderly
// end. It may have crashed after the worker had finished, with cookies that it had not written
// yet, and then no signal was needed to end it.
func (s *steps) crashed() error {
	dir, err := s.r.o.Root.Inspect(s.Profile)
	if err == nil && dir.ClosedCleanly.Answer == profiledir.No {
		err = fmt.Errorf("the browser ended by itself and not in order: %s", dir.ClosedCleanly.How)
	}
	return err
}

// recoverBecause notes why a proper end becomes a recovery. A start that failed keeps its own
// reason; problem is the error of closing the browser, if any.
func (s *steps) recoverBecause(reason string, problem error) {
	if s.NeverServed {
		s.Log.Error().Err(problem).Msg("the browser that did not start is not proved gone, or its evidence is not stored: the profile goes through recovery")
		return
	}
	s.File.Reason = reason
}

// believed tells whether what this host keeps about the profile can be trusted. If not, the
// file says so, and the profile goes to a person, however the session ended.
func (s *steps) believed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	reason, problem := s.r.distrusted(ctx, s.Profile, s.File.SessionID)
	if reason == "" {
		return true
	}
	s.Log.Error().Err(problem).Str("reason", reason).Msg("what is kept of the profile cannot be believed: it goes through recovery, to a person")
	s.distrust, s.disbelief, s.File.Reason = reason, problem, reason
	return false
}

// release makes the transition of a worker's proper end.
func (s *steps) release() (string, error) {
	s.span.Step("give back")
	s.stopRenewing()
	s.File.InOrder = !s.NeverServed
	if s.SignedIn != nil && !s.NeverServed {
		s.signedIn = s.SignedIn()
	}
	released, err := s.change(func(r lease.Record) (lease.Record, error) {
		if s.NeverServed {
			return r.Unserved(s.File.Reason, s.File.Evidence, s.r.o.Cooldown, time.Now())
		}
		r, err := r.Release(s.File.Reason, s.File.Outcome, s.File.Evidence, time.Now())
		return r.Checked(s.signedIn, time.Now()), err
	})
	if err == nil {
		err = s.Lock.RaiseFloor(released)
	}
	if err != nil {
		err = fmt.Errorf("release: %w", err)
		if s.leftOpen { // the browser may stay open only after a release
			s.leftOpen = false
			s.File.InOrder = s.closedInOrder() && s.File.InOrder // else a later attempt recovers the profile
		}
		return "", err
	}
	if s.leftOpen {
		if err := s.Lock.PrepareFloor(); err != nil {
			s.Log.Warn().Err(err).Msg("the next grant takes longer")
		}
	}
	s.File.Released, s.token = true, released.Token
	if s.NeverServed {
		return s.File.Reason, nil
	}
	s.Log.Info().Str("outcome", s.File.Outcome).Msg("lease released")
	return "released: " + s.File.Reason, nil
}

// endRun makes the transition of one of several runs.
func (s *steps) endRun() (string, error) {
	s.stopRenewing()
	if s.DetachClients != nil {
		s.DetachClients()
	}
	s.Browser.LimitWrites(0)
	s.lost = !s.InOrder || !s.sealed() && !s.NeverServed
	_, err := s.change(func(r lease.Record) (lease.Record, error) {
		return r.EndRun(s.File.Token, s.lost, s.File.Reason, s.File.Outcome, s.File.Evidence, time.Now())
	})
	if s.lost {
		return "lost (" + s.File.Reason + "): inspected when the other runs of the profile end", err
	}
	// If the record still names it, the run that ends last has it inspected too.
	s.lost = err != nil
	s.File.Released = !s.lost
	return "released: " + s.File.Reason, err
}

// closeOnly closes the browser, and names its evidence in the record.
func (s *steps) closeOnly() error {
	if !s.sealed() {
		return fmt.Errorf("a browser that outlived its lease stays open: %w", ErrNoEvidence)
	}
	if err := s.close(); err != nil || s.r.o.Store == nil {
		return err
	}
	return s.r.Name(s.Profile, []lease.Sealed{s.File.Evidence}, s.Log)
}

// raiseFloor raises the floor, but not that of a directory that was left for another home:
// nobody opens that one, and its floor stays. A person then decides about the profile.
func (s *steps) raiseFloor(r lease.Record) error {
	err := s.Lock.RaiseFloor(r)
	if departed, ok := errors.AsType[*profiledir.DepartedError](err); ok && !departed.Pending {
		s.departed = departed
		return nil
	}
	return err
}

// unless returns the error, or nil if it is uncounted.
func unless(uncounted, err error) error {
	if errors.Is(err, uncounted) {
		return nil
	}
	return err
}

// change makes a transition of the session's lease as long as the token is still the session's,
// whatever else was written to the record meanwhile.
func (s *steps) change(fn func(lease.Record) (lease.Record, error)) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	entry, err := lease.Change(ctx, s.r.o.Store, s.Profile, func(e lease.Entry) (lease.Record, error) {
		if standing := e.Record.Standing(s.File.Token); standing != lease.Current && standing != lease.Doubted || e.Record.LauncherID != s.r.o.LauncherID {
			return e.Record, &lease.FencedError{Profile: s.Profile, Token: s.File.Token, Current: e.Record.Token}
		}
		next, err := fn(s.Latest(e.Record))
		if err != nil {
			return next, err
		}
		return s.r.chained(e.Record, next, s.Log), nil
	})
	if err == nil {
		s.r.o.Roster.See(entry.Record)
	}
	return entry.Record, err
}

// swap makes one transition of a recovery. The record has to be the case's own: still of the
// same session, with its token or with the one to which the quarantine raised it.
func (s *steps) swap(fn func(lease.Record) (lease.Record, error)) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	entry, err := lease.Change(ctx, s.r.o.Store, s.Profile, func(e lease.Entry) (lease.Record, error) {
		if e.Record.SessionID != s.File.SessionID {
			return e.Record, fmt.Errorf("%w: session %s has the profile", errOtherToken, e.Record.SessionID)
		}
		if s.r.Elsewhere(e.Record) { // the home was contested: see Restate
			return e.Record, fmt.Errorf("%w: launcher %s is the profile's home", errOtherToken, e.Record.Home)
		}
		next, err := fn(e.Record)
		if err != nil {
			return next, err
		}
		return s.r.chained(e.Record, next, s.Log), nil
	})
	if err == nil {
		s.r.o.Roster.See(entry.Record) // the store may forget it before its watch shows it
		s.Log.Info().Str("state", string(entry.Record.State)).Str("reason", entry.Record.Reason).Msg("recovery")
	}
	return entry.Record, err
}

// quarantine fences the old token for good: held, suspected_stale, quarantined. The floor is
// raised at once, so that a store that forgets the record now does not grant that token again.
func (s *steps) quarantine() error {
	s.span.Step("quarantine")
	_, err := s.swap(func(r lease.Record) (lease.Record, error) {
		if r.State != lease.Held {
			return r, errAlready
		}
		return s.Latest(r).Suspect(s.File.Reason, s.File.Evidence, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return err
	}
	r, err := s.swap(func(r lease.Record) (lease.Record, error) {
		if r.State != lease.SuspectedStale {
			return r, errAlready
		}
		k, _, err := s.r.kept(r)
		if err != nil {
			return r, err
		}
		return r.Quarantine(k.floor, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return err
	}
	if s.distrust == "" {
		return s.raiseFloor(r)
	}
	if !lease.Distrusted(r.Reason) { // it was suspected before this was known
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if r, err = s.r.Heal(ctx, s.Profile); err != nil {
			return err
		}
	}
	return errors.Join(s.Lock.Renew(r), s.r.o.Jar.SetAside(s.Profile))
}
