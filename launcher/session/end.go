package session

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// Bounds of the steps that end a session.
const (
	askTimeout = 10 * time.Second
	// statusTimeout bounds how long a worker is not told yet that its browser crashed, since it is not known
	// how, in time that the host gives.
	statusTimeout = 2 * time.Second
)

var errSessionOver = errors.New("the session is over")

// ending carries out the end of one session. One goroutine uses it.
type ending struct {
	s *Session
	ruling
	// bundle is what was captured when the worker was lost; nil if nothing was.
	bundle *evidence.Bundle
	// answers are what sites said about the account at an end in order.
	answers []site.Answer
}

// finish ends the session: in order, or through recovery.
func (e *ending) finish() {
	s := e.s
	if s.ephemeral {
		e.discard()
		return
	}
	// A task that resumed did things before the session that a restart would repeat.
	repeats := e.ifTouched && s.file.get().Resume != nil
	if s.people.takenBy() != nil { // the worker cannot vouch for what a person was about to do
		e.ifTouched = true
	}
	if e.verdict == lose || e.ifTouched {
		s.still.begin()
	}
	s.baselines.stop()
	if e.verdict == endInOrder && e.ifTouched && (repeats || e.leavesPages() || e.touched()) {
		e.ruling = ruling{verdict: lose, reason: api.ReasonWorkerFailed}
	}
	if e.verdict == endInOrder && !e.ifTouched { // else its pages, which nobody vouches for, send nothing any more
		s.still.endsInOrder()
	}
	s.log.Info().Str("reason", e.reason).Bool("in_order", e.verdict == endInOrder).Msg("session ends")
	s.file.change(func(f *sessionfile.File) { f.Reason = e.reason })
	if err := s.file.save(); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	if e.verdict == endInOrder {
		e.dropBundle() // it says that the worker was lost
	}
	e.settle() // before the session leaves its slot: what is reported later goes to others
	c := e.recoveryCase()
	code, reason := e.closeCode()
	cause := e.lossCause(reason)
	last := s.slot.Leave(s)
	switch {
	case !last:
		if e.verdict != endInOrder && s.browser.Driven() { // its pages go on, but their GETs are not judged for it
			s.browser.Monitor().GETs().GiveUp()
		}
		c.Goal, c.DetachClients = recovery.EndRun, s.clients.Detach
	case e.verdict == endInOrder:
		c.Goal, cause = recovery.Release, errSessionOver
	}
	if last {
		e.noteDownloads()
	}
	e.cutOff(cause, code, reason)
	ended, err := s.h.o.Recoverer.Run(c)
	how := ended.How
	if err != nil {
		s.log.Error().Err(err).Msg("the session's end is not complete: it is tried again")
		how = "ended, and its recovery goes on: " + e.reason
	}
	f := e.takeIn(ended)
	if !last {
		s.still.leftToLost()
	}
	if last {
		s.h.metrics.ends.WithLabelValues(map[bool]string{true: "released", false: "recovered"}[f.Released]).Inc()
	}
	if f.Released { // otherwise the account is compared with what it was before this session
		if e.ifTouched {
			e.answers = e.unasked()
		}
		e.count()
		if !s.signsIn() {
			e.answers = s.h.o.Answers.Own(s.profile, e.answers)
		}
		if err := s.h.o.Answers.Keep(s.profile, ended.Token, e.answers, time.Now()); err != nil {
			s.log.Warn().Err(err).Msg("the next answers are compared with older ones")
		}
	}
	if ended.Lost {
		s.slot.Lose(sessionfile.LostRun{File: f, Journal: s.recording.settled()})
	}
	s.pictures.forget(!e.picturesCount() && f.Evidence.EvidenceID != "")
	e.retire(how, last, ended.LeftOpen)
}

// picturesCount tells whether the evidence names the session's pictures: those of a worker that failed show
// what it did, also if that is found out once the evidence is sealed.
func (e *ending) picturesCount() bool { return e.verdict != endInOrder || e.ifTouched }

// leavesPages tells whether pages on which the session may have acted go on after its end, in a
// browser that other runs use: what they send later is known to those runs alone.
func (e *ending) leavesPages() bool {
	s := e.s
	return s.slot.Shared(s) && (s.life.known().connected || s.people.everDrove())
}

// touched tells whether the task sent anything unsafe, or was on a sensitive page or step,
// since its last safe checkpoint, or whether that is unknown. The worker cannot do anything
// more by then.
func (e *ending) touched() bool {
	s := e.s
	s.Fence().Shut(errSessionOver)
	s.browser.LimitWrites(s.h.o.CutTimeout)
	s.browser.Mux().Barrier()
	ctx, cancel := s.h.o.Patience(context.Background(), askTimeout)
	defer cancel()
	if err := s.browser.Monitor().CatchUp(ctx); err != nil {
		s.log.Warn().Err(err).Msg("what the pages did last is not known")
		return true
	}
	s.browser.Monitor().GETs().GiveUp()
	return e.touchedByNow()
}

// touchedByNow is touched by what is known now.
func (e *ending) touchedByNow() bool {
	entries := e.s.recording.settled()
	return e.s.file.get().Unseen || findings.Touched(checkpoint.Summarize(entries), e.s.task())
}

// settle has everything in the journal that the pages did so far, and the account's state at the grant on the disk.
// Otherwise the file says that it is not all known.
func (e *ending) settle() {
	s := e.s
	s.opening.noting.Wait()
	if err := s.recording.settle(); err != nil {
		s.log.Warn().Err(err).Msg("what the pages did last is not all known")
		s.file.change(func(f *sessionfile.File) { f.Unseen = true })
	}
}

// takeIn puts what was done at the end into the session's file, and returns the file.
func (e *ending) takeIn(done recovery.Ended) sessionfile.File {
	return e.s.file.change(func(f *sessionfile.File) {
		f.Reason, f.Evidence, f.CloseMethod = done.File.Reason, done.File.Evidence, done.File.CloseMethod
		f.InOrder, f.Outcome, f.CookiesLost = done.File.InOrder, done.File.Outcome, done.File.CookiesLost
		f.NotStored = done.File.NotStored
		f.Released = done.File.Released
	})
}

// recoveryCase is the end of the session as it is now.
func (e *ending) recoveryCase() recovery.Case {
	s := e.s
	f := s.file.get()
	inOrder := e.verdict == endInOrder
	if f.Outcome = ""; inOrder {
		f.Outcome = e.outcome
	}
	c := recovery.Case{
		File: f, Profile: s.profile, Path: s.path, Lock: s.slot.Lock(), Browser: witness.Of(s.browser), Keep: Keeping(s.h.o.Jar, s.manifest),
		Journal: s.recording.settled, Lost: s.slot.Lost(), Latest: s.Latest, InOrder: inOrder, Log: s.log,
		Bundle: func() *evidence.Bundle {
			if s.browser.Driven() && !s.slot.Shared(s) && s.browser.TakePagesWait() {
				e.dropBundle() // pages could not be seen while the worker could come back
			}
			if e.bundle == nil {
				e.bundle = s.capture(e.reason, f.Outcome, true)
			}
			if e.picturesCount() {
				e.bundle.SetPictures(s.pictures.kept)
			}
			return e.bundle
		},
		Sealed: func(sealed sessionfile.File) error {
			s.file.change(func(f *sessionfile.File) { f.Evidence = sealed.Evidence })
			if err := s.file.save(); err != nil {
				s.log.Error().Err(err).Msg("session file not written")
			}
			return nil
		},
		StopRenewing: s.holding.Stop,
		LeaveOpen: func() bool {
			e.answers = e.askAtRest()
			return e.staysWarm()
		},
		SignedIn: e.signedIn,
	}
	if e.ifTouched { // the browser stands still: no site can be asked, and no other task may get it
		c.LeaveOpen, c.Touched = nil, e.touchedByNow
	}
	return c
}

// Keeping is how a jar keeps the session cookies of a manifest's session; nil if they are
// dropped.
func Keeping(jar sessionfile.Jar, m api.Manifest) browser.KeepCookies {
	if m.SessionCookies == api.CookiesDrop {
		return nil
	}
	return jar.Keep
}

// dropBundle drops what was captured when the worker was lost.
func (e *ending) dropBundle() {
	if e.bundle == nil {
		return
	}
	if err := e.bundle.Discard(); err != nil {
		e.s.log.Warn().Err(err).Msg("unused evidence not removed")
	}
	e.bundle = nil
}

// capture takes the evidence of the session as it is now, before anything changes. final says that
// its worker does not come back.
func (s *Session) capture(reason, outcome string, final bool) *evidence.Bundle {
	s.opening.noting.Wait()
	s.people.noteActs()
	shared := s.slot.Shared(s) // the worker of another run may come back
	bundle := s.h.o.Recoverer.Capture(recovery.Capture{
		Record: s.granted, Path: s.path, Token: s.token, Reason: reason, Outcome: outcome, SeenAt: s.life.known().seenAt, Journal: s.recording.settled(),
		Commands: s.clients.sent(), Browser: witness.Of(s.browser), Shared: shared, Final: final && !shared,
	}, s.log)
	if s.browser.Driven() {
		s.browser.Monitor().LookForSignIn(context.Background())
	}
	return bundle
}

// cutOff shuts the fence and ends every connection with the code. When it returns, no message
// of the worker can reach the browser any more.
func (e *ending) cutOff(cause error, code int, reason string) {
	s := e.s
	s.Fence().Shut(cause)
	s.browser.LimitWrites(s.h.o.CutTimeout)
	for _, c := range s.clients.connected() {
		if code != cdpproxy.CloseNormal && !s.life.isLeft() {
			c.Notify("Lease.leaseLost", map[string]any{"lease_token": s.token, "reason": reason})
		}
		c.Cut(code, reason)
		c.ClientSession().Fence()
	}
	s.browser.Mux().Barrier()
	s.clients.fence()
}

func (e *ending) lossCause(reason string) error {
	if cause := context.Cause(e.s.holding.Context()); cause != nil {
		return cause
	}
	return errors.New(reason)
}

// closeCode is the code with which connections that are still open are closed.
func (e *ending) closeCode() (int, string) {
	s := e.s
	var fenced *lease.FencedError
	cause := context.Cause(s.holding.Context())
	switch {
	case e.verdict == endInOrder:
		return cdpproxy.CloseNormal, "the session ended: " + e.reason
	case errors.As(cause, &fenced) && fenced.Current > fenced.Token:
		return cdpproxy.CloseFenced, fenced.Error()
	case cause != nil:
		return cdpproxy.CloseExpired, cause.Error()
	case e.reason == api.ReasonBrowserCrashed:
		s.awaitExit(statusTimeout)
		return cdpproxy.CloseCrashed, "the browser crashed: " + cmp.Or(s.browser.ExitStatus(), "its process has not ended yet")
	case e.reason == api.ReasonBrowserHangs, e.reason == api.ReasonBrowserMemory:
		return cdpproxy.CloseCrashed, s.browser.Failure().Detail
	case e.reason == api.ReasonShutdown:
		return cdpproxy.CloseShuttingDown, "the launcher is shutting down"
	default:
		return cdpproxy.CloseQuarantined, "profile quarantined: " + e.reason
	}
}

// awaitExit waits for the process of a browser whose pipe ended, which comes first, and tells whether it
// has exited. patience is in time that the host gives.
func (s *Session) awaitExit(patience time.Duration) bool {
	ctx, cancel := s.h.o.Patience(context.Background(), patience)
	defer cancel()
	select {
	case <-s.browser.Exited():
		return true
	case <-ctx.Done():
		return false
	}
}

// browserStays is what clients are told of a session that is left.
const browserStays = "the launcher is shutting down: the browser stays for the next one"

// leave ends the session here and leaves its browser open. The next launcher finds the lease
// held, the browser alive and its lock taken, and resumes or recovers the session.
func (e *ending) leave() {
	s := e.s
	s.baselines.stop()
	e.cutOff(s.life.endingProblem(), cdpproxy.CloseShuttingDown, browserStays)
	s.holding.Stop()
	s.people.noteActs()
	var err error
	if e.bundle != nil {
		err = e.bundle.Discard()
	}
	last := s.slot.Leave(s)
	if last {
		err = errors.Join(err, s.browser.Detach())
	}
	err = errors.Join(err, s.file.save())
	s.life.end() // what a connection that ends late would note, the next launcher notes of all of them
	err = errors.Join(err, s.recording.close())
	if last {
		err = errors.Join(err, s.slot.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not left cleanly")
	}
	e.gone(last, false)
	s.log.Info().Msg("browser left for the next launcher")
}

// retire closes the session's files, and takes it out of the living sessions. warm says that
// the browser stays open for the next task.
func (e *ending) retire(how string, last, warm bool) {
	s := e.s
	e.settle() // an end that is not complete goes on from the files
	s.Note(checkpoint.Entry{Kind: checkpoint.KindEnd, Text: how})
	s.holding.Stop()
	s.life.end()
	s.h.DropNotedCookies(s.file.get(), s.log)
	s.clients.Detach() // those of a connection that ended late
	if !last {
		e.leaveDownloads()
	}
	err := s.recording.close()
	if last && !warm {
		err = errors.Join(err, s.slot.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	sum := checkpoint.Sum(s.recording.entries())
	f := s.file.change(func(f *sessionfile.File) { f.Ended, f.JournalSum = how, sum })
	f.SeenAt = s.life.known().seenAt.UTC()
	if err := s.h.Remember(f); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	if last {
		if err := s.h.tidyDumps(); err != nil {
			s.log.Warn().Err(err).Msg("crash dumps are not bounded")
		}
	}
	e.gone(last, warm)
	s.log.Info().Str("how", how).Msg("session over")
}

// gone takes the session out of the living ones, and gives the profile up with the last one.
func (e *ending) gone(last, warm bool) {
	s := e.s
	s.h.leave(s)
	switch {
	case warm:
		s.slot.Park(s.id)
	case last:
		s.slot.End()
	}
}

// askAtRest asks the sites of the session what the account is now, in the browser that nobody uses
// any more: the next answers are compared with these.
func (e *ending) askAtRest() []site.Answer {
	s := e.s
	if !s.browser.Driven() {
		return nil
	}
	questions := findings.Questions(s.did())
	if len(questions) == 0 {
		return nil
	}
	begun := time.Now()
	answers := accountcheck.Ask(context.Background(), s.browser.Mux(), questions)
	s.log.Info().Int("questions", len(answers)).Dur("took", time.Since(begun)).Msg("sites were asked about the account")
	return answers
}

// unasked are the answers of sites that could not be asked, since the browser stood still. If the session did
// anything by a safe checkpoint, the next one is not compared with what they said before that.
func (e *ending) unasked() (answers []site.Answer) {
	did, task := e.s.did()
	if did.LastSafe == nil {
		return nil
	}
	for _, q := range findings.Questions(did, task) {
		answers = append(answers, site.Answer{Question: q, State: site.NotHad})
	}
	return answers
}

// signedIn is what the sites said at the end about whether the account is signed in. Where the profile
// has a session check, that is made later, when nobody waits for the end of the session.
func (e *ending) signedIn() lease.Checked {
	if e.s.granted.SessionCheck != nil {
		return lease.Checked{}
	}
	return e.s.h.o.Answers.SignedIn(e.s.granted, e.s.h.o.Sites.Book(), accountcheck.Result{}, e.answers, e.s.signsIn())
}

// signsIn tells whether whoever has the session is to sign in, and is trusted with which account it
// is then. Who came by a sign-in link is not: the link may have gone to another person.
func (s *Session) signsIn() bool {
	return s.manifest.SignIn || s.manifest.ByHand != nil && s.manifest.ByHand.SignInLink == ""
}

// count counts the shapes of which nothing was known, beside what sites say now of the account.
func (e *ending) count() {
	s := e.s
	if s.h.o.Count == nil {
		return
	}
	before, err := s.h.o.Answers.Load(s.profile)
	if err != nil {
		s.log.Warn().Err(err).Msg("what sites say now is compared with nothing")
	}
	baselines, err := s.h.o.Files.ReadBaselines(s.id)
	if err != nil {
		s.log.Warn().Err(err).Msg("what sites say now is compared with what they said at rest")
	}
	answers := s.h.o.Answers.Compare(s.profile, s.token, e.answers, before, baselines, 0)
	did, task := s.did()
	s.h.o.Count(findings.Unknown(did, task, answers, s.profile, time.Now()))
}

// staysWarm leaves the browser of a session that ends in order open, cleared for the next task,
// or tells that the browser has to be closed. The evidence is stored and the fence shut by
// then.
func (e *ending) staysWarm() bool {
	s := e.s
	keep := slots.KeepWarm{
		Manifest: s.manifest.KeepWarm, Profile: s.granted.KeepWarm, Cookies: s.manifest.SessionCookies, Started: s.slot.Fit() != nil,
	}
	asking, asked := context.WithTimeout(context.Background(), askTimeout)
	defer asked()
	if now, err := s.h.o.Store.Get(asking, s.profile); err == nil {
		keep.Profile = now.Record.KeepWarm // it may have been changed meanwhile
	}
	if why := s.h.o.Slots.Against(keep, s.path); why != "" {
		s.log.Debug().Str("why", why).Msg("the browser does not stay warm")
		return false
	}
	if s.browser.Mux().KeptPrivate() != nil { // a sign-in is not cleared away yet: its next clients would be refused
		s.log.Debug().Msg("the browser does not stay warm: it is shut to clients")
		return false
	}
	begun := time.Now()
	m := s.browser.Monitor()
	if n := len(m.Downloads().Unfinished()); n > 0 { // the next task would get them
		s.log.Debug().Int("downloads", n).Msg("the browser does not stay warm")
		return false
	}
	ctx, cancel := s.h.o.Patience(context.Background(), s.h.o.ClearTimeout)
	defer cancel()
	err := m.Clear(ctx, s.clients, s.browser.AwaitStored)
	if err == nil {
		err = os.Truncate(s.h.o.Files.Output(s.slot.StartedFor()), 0) // it is in the evidence
	}
	if err == nil {
		// If the browser crashes while nobody uses it, or its network service ends, the login must not be lost.
		s.browser.WatchNetwork()
		err = s.h.o.Jar.KeepAll(ctx, m.Observer(), s.profile)
	}
	if err != nil {
		s.log.Warn().AnErr("problem", errors.Join(err, s.h.o.Jar.Drop(s.profile))).Msg("the browser cannot be handed on: it is closed")
		return false
	}
	s.browser.LimitWrites(0)
	s.log.Info().Int("pid", s.browser.PID()).Dur("took", time.Since(begun)).Msg("browser stays open for the next task")
	return true
}

// notStarted is the error that the session's browser did not start because of cause, with
// Chrome's output. If the cause is a refusal itself, as when a store was lost meanwhile,
// notStarted returns that.
func (t *terms) notStarted(cause error) *api.Problem {
	t.log.Error().Err(cause).Msg("browser not started")
	if refused, ok := errors.AsType[*api.Problem](cause); ok {
		return refused
	}
	p := api.Refuse(api.CodeBrowserStartFailed, "%v", cause)
	if start, ok := errors.AsType[*chrome.StartError](cause); ok {
		p = p.With("output", start.Output)
	}
	return p
}

// UndoGrant undoes a grant whose session could not begin to serve because of cause: the session
// ends like any other, with Chrome's output as evidence. It returns the error for the caller.
func (s *Session) UndoGrant(cause error) error {
	e := &ending{s: s, ruling: ruling{verdict: endInOrder, reason: api.ReasonStartFailed}}
	p := s.notStarted(cause)
	if err := s.recording.open(); err != nil {
		s.holding.Stop()
		return errors.Join(p, err, s.slot.Lock().Unlock())
	}
	s.Fence().Shut(cause)
	s.slot.HandOver() // the session has to close a warm browser
	c := e.recoveryCase()
	c.Goal, c.NeverServed, c.LeaveOpen = recovery.Release, true, nil
	c.File.Reason = api.ReasonStartFailed
	c.OnlyCopy = s.opening.cookies == inBrowser
	if s.opening.cookies == inBoth {
		c.Keep = slots.KeepOfWarm(s.browser, s.h.o.Jar)
	}
	if c.Browser == nil {
		c.File.CloseMethod = string(chrome.AlreadyExited)
		if _, ok := errors.AsType[*chrome.KilledAtStartError](cause); ok {
			c.File.CloseMethod = string(chrome.ClosedByKill)
		}
		captured := c.Bundle
		c.Bundle = func() *evidence.Bundle {
			b := captured()
			if b != nil {
				b.AddMissing("browser.json", evidence.KindBrowser, cause.Error())
			}
			return b
		}
	}
	ended, err := s.h.o.Recoverer.Run(c)
	if err != nil {
		s.log.Error().Err(err).Msg("lease not released: it is recovered later")
	}
	if err = e.neverServed(ended); s.opening.cookies == inBoth {
		err = errors.Join(err, slots.DropLasting(s.browser, s.profile, s.h.o.Root, s.h.o.Jar))
	}
	if err = errors.Join(err, s.slot.Lock().Unlock()); err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	return p
}

// UndoRun is UndoGrant for a run that was to join other runs, which go on.
func (s *Session) UndoRun(cause error) {
	e := &ending{s: s, ruling: ruling{verdict: endInOrder}}
	s.Fence().Shut(cause)
	c := e.recoveryCase()
	c.Goal, c.NeverServed, c.DetachClients = recovery.EndRun, true, s.clients.Detach
	c.File.Reason, c.Bundle, c.Sealed = api.ReasonStartFailed, nil, nil // there is nothing of the run to see
	ended, err := s.h.o.Recoverer.Run(c)
	ended.How = api.ReasonStartFailed
	if err = errors.Join(err, e.neverServed(ended)); err != nil {
		s.log.Error().Err(err).Msg("a run that did not begin is not taken back: the profile is recovered when the others end")
	}
}

// neverServed closes the files of a session that never served.
func (e *ending) neverServed(done recovery.Ended) error {
	s := e.s
	e.takeIn(done)
	sum := s.recording.sum()
	f := s.file.change(func(f *sessionfile.File) { f.Reason, f.Ended, f.JournalSum = api.ReasonStartFailed, done.How, sum })
	err := errors.Join(s.h.Remember(f), s.recording.close())
	close(s.life.done)
	return err
}
