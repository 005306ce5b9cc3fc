package session

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
	cutTimeout  = 20 * time.Second
	askTimeout  = 10 * time.Second
	exitTimeout = time.Second
)

var errSessionOver = errors.New("the session is over")

// finish carries out the end of a session: in order, or through recovery.
func (s *Session) finish(r ruling, bundle *evidence.Bundle) {
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
	cause := s.lossCause(reason)
	last := s.slot.Leave(s)
	switch {
	case !last:
		c.Goal, c.DetachClients = recovery.EndRun, s.clients.Detach
	case r.verdict == endInOrder:
		s.h.metrics.ends.WithLabelValues("released").Inc()
		c.Goal, cause = recovery.Release, errSessionOver
	default:
		s.h.metrics.ends.WithLabelValues("recovered").Inc()
	}
	s.cutOff(cause, code, reason)
	ended, err := s.h.o.Recoverer.Run(c)
	how := ended.How
	if err != nil {
		s.log.Error().Err(err).Msg("the session's end is not complete: it is tried again")
		how = "ended, and its recovery goes on: " + r.reason
	}
	f := s.endedAs(ended)
	if ended.Lost {
		s.slot.Lose(sessionfile.LostRun{File: f, Journal: s.journal.Entries()})
	}
	s.pictures.forget(r.verdict == endInOrder && f.Evidence.EvidenceID != "")
	s.retire(how, last, ended.LeftOpen)
}

// endedAs takes what was done at the end into the session's file, and returns that.
func (s *Session) endedAs(e recovery.Ended) sessionfile.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file.Reason, s.file.Evidence, s.file.CloseMethod = e.File.Reason, e.File.Evidence, e.File.CloseMethod
	s.file.InOrder, s.file.Outcome = e.File.InOrder, e.File.Outcome
	return s.file
}

// caseOf is the end of the session as it is now. bundle is what was captured at the
// loss; nil: nothing was.
func (s *Session) caseOf(r ruling, bundle *evidence.Bundle) recovery.Case {
	s.mu.Lock()
	f := s.file
	s.mu.Unlock()
	inOrder := r.verdict == endInOrder
	if f.Outcome = ""; inOrder {
		f.Outcome = r.outcome
	}
	return recovery.Case{
		File: f, Profile: s.profile, Path: s.path, Lock: s.slot.Lock(), Browser: s.browser, Keep: Keeping(s.h.o.Jar, s.manifest),
		Journal: s.journal.Entries, Lost: s.slot.Lost(), Latest: s.Latest, InOrder: inOrder, Log: s.log,
		Bundle: func() *evidence.Bundle {
			if bundle == nil {
				bundle = s.capture(r.reason, f.Outcome)
			}
			if !inOrder {
				bundle.SetPictures(s.pictures.kept)
			}
			return bundle
		},
		Sealed: func(sealed sessionfile.File) error {
			s.mu.Lock()
			s.file.Evidence = sealed.Evidence
			s.mu.Unlock()
			if err := s.persist(); err != nil {
				s.log.Error().Err(err).Msg("session file not written")
			}
			return nil
		},
		StopRenewing: s.holding.Stop,
		LeaveOpen:    s.staysWarm,
	}
}

// Keeping is how a jar keeps the session cookies of a manifest's session; nil where they
// are dropped.
func Keeping(jar sessionfile.Jar, m api.Manifest) browser.KeepCookies {
	if m.SessionCookies == api.CookiesDrop {
		return nil
	}
	return jar.Keep
}

// capture takes the evidence of the session as it is now, before anything changes.
func (s *Session) capture(reason, outcome string) *evidence.Bundle {
	s.mu.Lock()
	seen := s.facts.seenAt
	s.mu.Unlock()
	return s.h.o.Recoverer.Capture(recovery.Capture{
		Record: s.granted, Path: s.path, Token: s.token, Reason: reason, Outcome: outcome, SeenAt: seen, Journal: s.journal.Entries(),
		Commands: s.clients.sent(), Browser: s.browser, Shared: s.slot.Shared(s),
	}, s.log)
}

// cutOff shuts the fence and ends every connection with the code. When it returns, no
// message of the worker can reach the browser any more.
func (s *Session) cutOff(cause error, code int, reason string) {
	s.Fence().Shut(cause)
	s.browser.LimitWrites(cutTimeout)
	for _, c := range s.clients.connected() {
		if code != cdpproxy.CloseNormal {
			c.Notify("Lease.leaseLost", map[string]any{"lease_token": s.token, "reason": reason})
		}
		c.Cut(code, reason)
		c.ClientSession().Fence()
	}
	s.browser.Mux().Barrier()
	s.clients.fence()
}

// lossCause is what the fence is shut with.
func (s *Session) lossCause(reason string) error {
	if cause := context.Cause(s.holding.Context()); cause != nil {
		return cause
	}
	return errors.New(reason)
}

// closeCode is what connections that are still open are told.
func (s *Session) closeCode(r ruling) (int, string) {
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

// leave ends the session here, and leaves its browser: the next launcher finds the lease
// held, the browser alive and its lock taken, and goes on with the session, or recovers
// it.
func (s *Session) leave(bundle *evidence.Bundle) {
	s.cutOff(errSessionOver, cdpproxy.CloseShuttingDown, "the launcher is shutting down: the browser stays for the next one")
	s.holding.Stop()
	var err error
	if bundle != nil {
		err = bundle.Discard()
	}
	last := s.slot.Leave(s)
	if last {
		err = errors.Join(err, s.browser.Detach())
	}
	err = errors.Join(err, s.persist(), s.journal.Close())
	if last {
		err = errors.Join(err, s.slot.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not left cleanly")
	}
	s.gone(last, false)
	s.log.Info().Msg("browser left for the next launcher")
}

// retire closes the session's files, and takes it out of the living ones. warm says that
// the browser stays open for the next task.
func (s *Session) retire(how string, last, warm bool) {
	s.Note(checkpoint.Entry{Kind: checkpoint.KindEnd, Text: how})
	s.holding.Stop()
	s.mu.Lock()
	s.over = true
	ending := s.file
	s.mu.Unlock()
	s.h.DropNotedCookies(ending, s.log)
	s.clients.Detach() // of a connection that ended late
	err := s.journal.Close()
	if last && !warm {
		err = errors.Join(err, s.slot.Lock().Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	s.mu.Lock()
	s.file.Ended = how
	f := s.file
	f.SeenAt = s.facts.seenAt.UTC()
	s.mu.Unlock()
	if err := s.h.Remember(f); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	if last {
		if err := s.h.tidyDumps(); err != nil {
			s.log.Warn().Err(err).Msg("crash dumps are not bounded")
		}
	}
	s.gone(last, warm)
	s.log.Info().Str("how", how).Msg("session over")
}

// gone takes the session out of the living ones, and gives the profile up with the last.
func (s *Session) gone(last, warm bool) {
	s.h.leave(s)
	switch {
	case warm:
		s.slot.Park(s.id)
	case last:
		s.slot.End()
	}
}

// Abandon undoes a grant whose session could not begin to serve, because of cause: the
// session ends as any other, with what Chrome said as evidence. It returns what the
// caller is told.
func (s *Session) Abandon(cause error) error {
	s.log.Error().Err(cause).Msg("browser not started")
	p := api.Refuse(api.CodeBrowserStartFailed, "%v", cause)
	var start *chrome.StartError
	if errors.As(cause, &start) {
		p = p.With("output", start.Output)
	}
	if s.journal == nil {
		var err error
		if s.journal, err = checkpoint.Open(s.h.o.Files.Journal(s.id)); err != nil {
			s.holding.Stop()
			return errors.Join(p, err, s.slot.Lock().Unlock())
		}
	}
	s.Fence().Shut(cause)
	s.slot.HandOver() // a warm browser is the session's to close
	c := s.caseOf(ruling{verdict: endInOrder, reason: api.ReasonStartFailed}, nil)
	c.Goal, c.NeverServed, c.LeaveOpen = recovery.Release, true, nil
	c.File.Reason = api.ReasonStartFailed
	if c.Browser == nil {
		c.File.CloseMethod = string(chrome.AlreadyExited)
	}
	ended, err := s.h.o.Recoverer.Run(c)
	if err != nil {
		s.log.Error().Err(err).Msg("lease not released: it is recovered later")
	}
	if err := errors.Join(s.abandoned(ended), s.slot.Lock().Unlock()); err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	return p
}

// AbandonRun is Abandon for a run that wanted to join others, who go on.
func (s *Session) AbandonRun(cause error) {
	s.Fence().Shut(cause)
	c := s.caseOf(ruling{verdict: endInOrder}, nil)
	c.Goal, c.NeverServed, c.DetachClients = recovery.EndRun, true, s.clients.Detach
	c.File.Reason, c.Bundle, c.Sealed = api.ReasonStartFailed, nil, nil // there is nothing of it to see
	ended, err := s.h.o.Recoverer.Run(c)
	ended.How = api.ReasonStartFailed
	if err = errors.Join(err, s.abandoned(ended)); err != nil {
		s.log.Error().Err(err).Msg("a run that did not begin is not taken back: the profile is recovered when the others end")
	}
}

// abandoned closes the files of a session that never served.
func (s *Session) abandoned(e recovery.Ended) error {
	s.endedAs(e)
	s.mu.Lock()
	s.file.Reason, s.file.Ended = api.ReasonStartFailed, e.How
	f := s.file
	s.mu.Unlock()
	err := s.h.Remember(f)
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	close(s.done)
	return err
}
