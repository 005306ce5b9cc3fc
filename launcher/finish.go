package launcher

import (
	"context"
	"errors"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Bounds of the steps that end a session.
const (
	storeTimeout  = 10 * time.Second
	closeTimeout  = 30 * time.Second
	unusedTimeout = 10 * time.Second
	askTimeout    = 10 * time.Second
	cutTimeout    = 20 * time.Second
	exitTimeout   = time.Second
)

// finish carries out the end of a session: in order, or through recovery.
func (s *session) finish(r ruling, bundle *evidence.Bundle) {
	s.log.Info().Str("reason", r.reason).Bool("in_order", r.verdict == endInOrder).Msg("session ends")
	s.mu.Lock()
	s.file.Reason = r.reason
	s.mu.Unlock()
	if err := s.persist(); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	if bundle != nil && r.verdict == endInOrder { // it says that the worker was lost
		if err := bundle.Discard(); err != nil {
			s.log.Warn().Err(err).Msg("unused evidence not removed")
		}
		bundle = nil
	}
	c := s.caseOf(r, bundle)
	code, reason := s.closeCode(r)
	cause := errSessionOver
	last := s.open.Leave(s)
	if !last {
		s.runEnds(&c)
		cause = s.lossCause(reason)
	} else if r.verdict == endInOrder {
		s.l.metrics.ends.WithLabelValues("released").Inc()
		c.Goal = recovery.Release
	} else {
		s.l.metrics.ends.WithLabelValues("recovered").Inc()
		cause = s.lossCause(reason)
	}
	s.cutOff(cause, code, reason)
	ended, err := s.l.recoverer.Run(c)
	how := ended.How
	if err != nil {
		s.log.Error().Err(err).Msg("the session's end is not complete: it is tried again")
		how = "ended, and its recovery goes on: " + r.reason
	}
	s.mu.Lock()
	s.file.Reason, s.file.Evidence, s.file.CloseMethod = ended.File.Reason, ended.File.Evidence, ended.File.CloseMethod
	s.file.InOrder, s.file.Outcome = ended.File.InOrder, ended.File.Outcome
	f := s.file
	s.mu.Unlock()
	told := f.Evidence.EvidenceID != ""
	if ended.Lost {
		s.open.Lose(sessionfile.LostRun{File: f, Journal: s.journal.Entries()})
	}
	s.forgetPictures(r.verdict == endInOrder && told)
	s.retire(how, last, ended.LeftOpen)
}

// caseOf is the end of the session as it is now. The bundle is what was captured at
// the loss, if anything was.
func (s *session) caseOf(r ruling, bundle *evidence.Bundle) recovery.Case {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.file
	if f.Outcome = ""; r.verdict == endInOrder {
		f.Outcome = r.outcome
	}
	return recovery.Case{
		File: f, Profile: s.profile, Path: s.path, Lock: s.open.Lock(), Browser: s.browser, Keep: s.l.keeping(s.manifest),
		Journal: s.journal.Entries, Lost: s.open.Lost(), Latest: s.latest, Log: s.log,
		InOrder: r.verdict == endInOrder,
		Bundle: func() *evidence.Bundle {
			if bundle == nil {
				bundle = s.capture(r.reason, f.Outcome)
			}
			if r.verdict != endInOrder {
				bundle.SetPictures(s.pictures.kept)
			}
			return bundle
		},
		Sealed:       s.sealed,
		StopRenewing: s.holding.Stop,
		LeaveOpen:    s.staysWarm,
	}
}

// sealed keeps the name of the session's evidence.
func (s *session) sealed(f sessionfile.File) error {
	s.mu.Lock()
	s.file.Evidence = f.Evidence
	s.mu.Unlock()
	if err := s.persist(); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	return nil
}

// leave lets go of a session whose browser stays: the next launcher finds the
// lease held, the browser alive and its lock taken, and goes on with the session, or
// recovers it.
func (s *session) leave(bundle *evidence.Bundle) {
	s.cutOff(errSessionOver, cdpproxy.CloseShuttingDown, "the launcher is shutting down: the browser stays for the next one")
	s.holding.Stop()
	var err error
	if bundle != nil {
		err = bundle.Discard()
	}
	last := s.open.Leave(s)
	if last {
		err = errors.Join(err, s.browser.Detach())
	}
	err = errors.Join(err, s.persist(), s.journal.Close())
	if last {
		err = errors.Join(err, s.open.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not left cleanly")
	}
	s.gone(last, false)
	s.log.Info().Msg("browser left for the next launcher")
}

// gone takes a session that is over out of the living ones, and the profile with
// the last.
func (s *session) gone(last, warm bool) {
	s.l.mu.Lock()
	delete(s.l.sessions, s.id)
	s.l.mu.Unlock()
	switch {
	case warm:
		s.open.Park(s.id)
	case last:
		s.open.End()
	}
}

// retire takes a session that is over out of the living ones.
func (s *session) retire(how string, last, warm bool) {
	s.Note(checkpoint.Entry{Kind: checkpoint.KindEnd, Text: how})
	s.holding.Stop()
	s.mu.Lock()
	s.over = true
	ending := s.file
	s.mu.Unlock()
	s.l.dropNoted(ending, s.log)
	s.dropPeers() // of a connection that ended late
	err := s.journal.Close()
	if last && !warm {
		err = errors.Join(err, s.open.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	s.mu.Lock()
	s.file.Ended = how
	f := s.file
	f.SeenAt = s.facts.seenAt.UTC()
	s.mu.Unlock()
	if err := s.l.remember(f); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	if last {
		if err := s.l.tidyDumps(); err != nil {
			s.log.Warn().Err(err).Msg("crash dumps are not bounded")
		}
	}
	s.gone(last, warm)
	s.log.Info().Str("how", how).Msg("session over")
}

var errSessionOver = errors.New("the session is over")

// latest brings the record's last URL, step and checkpoint up to the journal's.
func (s *session) latest(r lease.Record) lease.Record {
	if s.journal != nil { // it began
		r = recovery.Latest(r, s.journal.Entries())
	}
	r.HeartbeatAt = s.seenAt().UTC()
	return r
}

// lossCause is what the fence is shut with.
func (s *session) lossCause(reason string) error {
	if cause := context.Cause(s.holding.Context()); cause != nil {
		return cause
	}
	return errors.New(reason)
}

// closeCode is what connections that are still there are told.
func (s *session) closeCode(r ruling) (int, string) {
	var fenced *lease.FencedError
	cause := context.Cause(s.holding.Context())
	switch {
	case r.verdict == endInOrder:
		return cdpproxy.CloseNormal, "the session ended: " + r.reason
	case errors.As(cause, &fenced) && fenced.Current > fenced.Token:
		return cdpproxy.CloseFenced, fenced.Error()
	case cause != nil:
		return cdpproxy.CloseExpired, cause.Error()
	case r.reason == api.ReasonBrowserCrashed:
		select { // the pipe ends before the process can be asked how
		case <-s.browser.Exited():
		case <-time.After(exitTimeout):
		}
		return cdpproxy.CloseCrashed, "the browser crashed: " + s.browser.ExitStatus()
	case r.reason == api.ReasonBrowserHangs, r.reason == api.ReasonBrowserMemory:
		return cdpproxy.CloseCrashed, s.browser.Failure().Detail
	case r.reason == api.ReasonShutdown:
		return cdpproxy.CloseShuttingDown, "the launcher is shutting down"
	default:
		return cdpproxy.CloseQuarantined, "profile quarantined: " + r.reason
	}
}

// capture takes the evidence of a session as it is now, before anything changes.
func (s *session) capture(reason, outcome string) *evidence.Bundle {
	s.mu.Lock()
	seen := s.facts.seenAt
	s.mu.Unlock()
	return s.l.recoverer.Capture(recovery.Capture{
		Record: s.granted, Path: s.path, Token: s.token, Reason: reason, Outcome: outcome, SeenAt: seen, Journal: s.journal.Entries(),
		Commands: s.sentCommands(), Browser: s.browser, Shared: s.open.Shared(s),
	}, s.log)
}

// keeping is how the session cookies of a manifest's session are kept, nil where they
// are dropped.
func (l *Launcher) keeping(m api.Manifest) browser.KeepCookies {
	if m.SessionCookies == api.CookiesDrop {
		return nil
	}
	return l.jar.Keep
}

// startFailed undoes a grant whose browser did not start: nothing was done on
// the profile, and the evidence says what the browser said.
func (s *session) startFailed(ctx context.Context, cause error) error {
	s.log.Error().Err(cause).Msg("browser not started")
	p := api.Refuse(api.CodeBrowserStartFailed, "%v", cause)
	var start *chrome.StartError
	if errors.As(cause, &start) {
		p = p.With("output", start.Output)
	}
	if s.journal == nil {
		var err error
		if s.journal, err = checkpoint.Open(s.l.cases.Journal(s.id)); err != nil {
			s.holding.Stop()
			return errors.Join(p, err, s.open.Lock().Unlock())
		}
	}
	s.holding.Fence().Shut(cause)
	c := s.caseOf(ruling{verdict: endInOrder, reason: api.ReasonStartFailed}, nil)
	c.Goal, c.NeverServed, c.LeaveOpen = recovery.Release, true, nil
	c.File.Reason = api.ReasonStartFailed
	if c.Browser == nil {
		c.File.CloseMethod = string(chrome.RungAlreadyExited)
	}
	ended, err := s.l.recoverer.Run(c)
	if err != nil {
		s.log.Error().Err(err).Msg("lease not released: it is recovered later")
	}
	s.mu.Lock()
	s.file.Reason, s.file.Ended, s.file.Evidence, s.file.CloseMethod = api.ReasonStartFailed, ended.How, ended.File.Evidence, ended.File.CloseMethod
	f := s.file
	s.mu.Unlock()
	if err := errors.Join(s.l.remember(f), s.journal.Close(), s.open.Lock().Unlock()); err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	close(s.done)
	return p
}
