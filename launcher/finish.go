package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/cgroup"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// Bounds of the steps that end a session.
const (
	captureTimeout = 15 * time.Second
	storeTimeout   = 10 * time.Second
	closeTimeout   = 30 * time.Second
	unusedTimeout  = 10 * time.Second
	askTimeout     = 10 * time.Second
	cutTimeout     = 20 * time.Second
	exitTimeout    = time.Second
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
	var how string
	var err error
	if !s.leaves() {
		how, err = s.endRun(r, bundle)
	} else if r.verdict == endInOrder {
		s.l.metrics.ends.WithLabelValues("released").Inc()
		how, err = s.endInOrder(r)
	} else {
		s.l.metrics.ends.WithLabelValues("recovered").Inc()
		how, err = s.recover(r, bundle)
	}
	if errors.Is(err, errNoEvidence) && s.open.live != nil {
		err = errors.Join(err, s.open.live.letGo())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("the session's end is not complete: it is tried again")
		how = "ended, and its recovery goes on: " + r.reason
	}
	s.mu.Lock()
	told := s.file.Evidence.EvidenceID != ""
	s.mu.Unlock()
	s.forgetPictures(r.verdict == endInOrder && told)
	s.retire(how)
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
	last := s.leaves()
	if last {
		err = errors.Join(err, s.open.live.letGo())
	}
	err = errors.Join(err, s.persist(), s.journal.Close())
	if last {
		err = errors.Join(err, s.open.lock.Unlock())
	}
	if err != nil {
		s.log.Error().Err(err).Msg("session not left cleanly")
	}
	s.gone(last)
	s.log.Info().Msg("browser left for the next launcher")
}

// gone takes a session that is over out of the living ones, and the profile with
// the last.
func (s *session) gone(last bool) {
	s.l.mu.Lock()
	delete(s.l.sessions, s.id)
	warm := last && s.open.warm
	if last && !warm {
		s.open.sessions = nil
	}
	s.l.mu.Unlock()
	switch {
	case warm:
		s.l.park(s)
	case last:
		s.l.vacate(s.profile)
	}
}

// retire takes a session that is over out of the living ones.
func (s *session) retire(how string) {
	s.note(checkpoint.Entry{Kind: checkpoint.KindEnd, Text: how})
	s.holding.Stop()
	last := s.open.closing
	s.mu.Lock()
	s.over = true
	ending := s.file
	s.mu.Unlock()
	s.l.dropNoted(ending, s.log)
	s.dropPeers() // of a connection that ended late
	err := s.journal.Close()
	if last && !s.open.warm {
		err = errors.Join(err, s.open.lock.Unlock())
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
	s.gone(last)
	s.log.Info().Str("how", how).Msg("session over")
}

// endInOrder is a worker's proper goodbye: evidence, close, release. Where one of
// these fails, the profile goes through recovery. It returns how it ended.
func (s *session) endInOrder(r ruling) (string, error) {
	s.cutOff(errSessionOver, cdpproxy.CloseNormal, "the session ended: "+r.reason)
	sealed := s.save(s.capture(r.reason, r.outcome))
	if sealed.EvidenceID == "" {
		s.holding.Stop()
		return s.recovery(sealed, reasonNoEvidence).run()
	}
	if len(s.open.lost) > 0 {
		s.holding.Stop()
		return s.recovery(sealed, reasonRunLost).run()
	}
	warm := s.staysWarm()
	if !warm {
		if rung, err := s.closeBrowser(); err != nil || rung.Killed() {
			s.log.Error().Err(err).Str("rung", string(rung)).Msg("the browser did not close in order: the profile goes through recovery")
			s.holding.Stop()
			return s.recovery(sealed, reasonNotClosed).run()
		}
	}
	s.holding.Stop()
	s.mu.Lock()
	s.file.InOrder, s.file.Outcome = true, r.outcome
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	released, err := s.change(ctx, func(rec lease.Record) (lease.Record, error) {
		return rec.Release(r.reason, r.outcome, sealed, time.Now())
	})
	if err == nil {
		err = s.open.lock.Keep(released.Record)
	}
	if err != nil {
		err = fmt.Errorf("release: %w", err)
		if warm { // only who has released may leave it open
			_, closeErr := s.closeBrowser()
			err = errors.Join(err, closeErr)
		}
		return "", err
	}
	if s.open.warm = warm; warm {
		if err := s.open.lock.PrepareKeep(); err != nil {
			s.log.Warn().Err(err).Msg("the next grant takes longer")
		}
	}
	s.log.Info().Str("outcome", r.outcome).Msg("lease released")
	return "released: " + r.reason, nil
}

var errSessionOver = errors.New("the session is over")

// change makes a transition of this session's lease, whatever else was written
// to the record meanwhile, as long as the token is still the session's.
func (s *session) change(ctx context.Context, fn func(lease.Record) (lease.Record, error)) (lease.Entry, error) {
	return lease.Change(ctx, s.l.o.Store, s.profile, func(e lease.Entry) (lease.Record, error) {
		if standing := e.Record.Standing(s.token); standing != lease.Current && standing != lease.Doubted || e.Record.LauncherID != s.l.o.ID {
			return e.Record, &lease.FencedError{Profile: s.profile, Token: s.token, Current: e.Record.Token}
		}
		return fn(s.latest(e.Record))
	})
}

// latest brings the record's last URL, step and checkpoint up to the journal's.
func (s *session) latest(r lease.Record) lease.Record {
	r = latest(r, s.journal.Entries())
	r.HeartbeatAt = s.seenAt().UTC()
	return r
}

func latest(r lease.Record, entries []checkpoint.Entry) lease.Record {
	sum := checkpoint.Summarize(entries)
	if sum.LastURL != "" {
		r.LastKnownURL = sum.LastURL
	}
	if sum.LastStep != "" {
		r.LastKnownStep = sum.LastStep
	}
	if sum.LastSafe != nil {
		r.LastSafeCheckpoint = sum.LastSafe.Name
	}
	return r
}

// recover walks a lost session to its decision, and returns how it ended.
func (s *session) recover(r ruling, bundle *evidence.Bundle) (string, error) {
	code, reason := s.closeCode(r)
	s.cutOff(s.lossCause(reason), code, reason)
	if bundle == nil {
		bundle = s.capture(r.reason, "")
	}
	bundle.SetPictures(s.pictures.kept)
	sealed := s.save(bundle)
	s.holding.Stop()
	return s.recovery(sealed, r.reason).run()
}

// lossCause is what the fence is shut with.
func (s *session) lossCause(reason string) error {
	if cause := context.Cause(s.holding.Context()); cause != nil {
		return cause
	}
	return errors.New(reason)
}

// recovery is the case of a session whose browser may still be open.
func (s *session) recovery(sealed lease.Sealed, reason string) *recoveryCase {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file.Reason, s.file.Evidence = reason, sealed
	return &recoveryCase{
		l: s.l, file: s.file, profile: s.profile, path: s.path, lock: s.open.lock, log: s.log,
		entries: s.journal.Entries, lost: s.open.lost, seen: s.latest,
		close: func() (chrome.CloseMethod, error) {
			if s.open.live == nil { // it never started
				return chrome.AlreadyExited, nil
			}
			if s.file.Rung != "" {
				return chrome.CloseMethod(s.file.Rung), nil
			}
			return s.closeBrowser()
		},
	}
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
	case r.reason == reasonBrowserCrashed:
		select { // the pipe ends before the process can be asked how
		case <-s.open.live.browser.Exited():
		case <-time.After(exitTimeout):
		}
		return cdpproxy.CloseCrashed, "the browser crashed: " + s.open.live.browser.ExitStatus()
	case r.reason == reasonBrowserHangs, r.reason == reasonBrowserMemory:
		return cdpproxy.CloseCrashed, s.open.live.ailing()
	case r.reason == reasonShutdown:
		return cdpproxy.CloseShuttingDown, "the launcher is shutting down"
	default:
		return cdpproxy.CloseQuarantined, "profile quarantined: " + r.reason
	}
}

// capture takes the picture of a session as it is now, before anything changes.
func (s *session) capture(reason, outcome string) *evidence.Bundle {
	now := time.Now().UTC()
	s.mu.Lock()
	seen := s.facts.seenAt.UTC()
	s.mu.Unlock()
	c := captureCase{
		l: s.l, record: s.granted, path: s.path, token: s.token, reason: reason, outcome: outcome, seen: seen, now: now, entries: s.journal.Entries(), live: s.open.live,
		shared: s.shares(), commands: s.sentCommands(),
	}
	return c.take(s.log)
}

// save seals a bundle and stores it; where the store is away it waits in the
// spool, and counts as stored.
func (s *session) save(b *evidence.Bundle) lease.Sealed {
	sealed := s.l.save(b, s.log)
	s.mu.Lock()
	s.file.Evidence = sealed
	s.mu.Unlock()
	if err := s.persist(); err != nil {
		s.log.Error().Err(err).Msg("session file not written")
	}
	return sealed
}

func (l *Launcher) save(b *evidence.Bundle, log zerolog.Logger) lease.Sealed {
	if b == nil {
		return lease.Sealed{}
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	m, sum, err := l.o.Archive.Save(ctx, b)
	if err != nil {
		log.Error().Err(err).Msg("evidence not stored")
		return lease.Sealed{}
	}
	l.metrics.evidence.Observe(time.Since(begun).Seconds())
	log.Info().Str("evidence", m.EvidenceID).Int("parts", len(m.Parts)).Str("reason", m.RecoveryReason).Msg("evidence stored")
	return lease.Sealed{EvidenceID: m.EvidenceID, SHA256: sum}
}

// closeBrowser ends the browser by the ladder, and waits until no process names
// the profile directory.
func (s *session) closeBrowser() (chrome.CloseMethod, error) {
	rung, err := s.open.live.close(s.l, s.profile, s.l.keeping(s.manifest), s.log)
	err = errors.Join(err, s.open.lock.ClearRunning())
	s.mu.Lock()
	s.file.Rung = string(rung)
	s.mu.Unlock()
	return rung, err
}

// letGo leaves the browser open, for whoever takes it over next.
func (b *live) letGo() error {
	b.stop()
	if b.mux != nil {
		b.mux.Stop()
		<-b.mux.Done()
	}
	return errors.Join(b.ledger.Close(), b.browser.Detach())
}

// bound ends writes to a browser that does not read: it must not hold up the end
// of its session. Zero takes the bound away.
func (b *live) bound(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	if commands := b.browser.Commands(); commands != nil {
		_ = commands.SetWriteDeadline(at) // pipes have deadlines
	}
}

// keepCookies keeps the session cookies of a browser that is about to close.
type keepCookies func(ctx context.Context, o *cdpproxy.Observer, profile string) error

// keeping is how the session cookies of a manifest's session are kept, nil where they
// are dropped.
func (l *Launcher) keeping(m api.Manifest) keepCookies {
	if m.SessionCookies == api.CookiesDrop {
		return nil
	}
	return l.jar.export
}

func (b *live) close(l *Launcher, profile string, keep keepCookies, log zerolog.Logger) (chrome.CloseMethod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	b.bound(askTimeout)
	if b.eyes != nil {
		b.eyes.documents.ending.Store(true)
	}
	begun := time.Now()
	ask := func(ctx context.Context) error {
		if b.eyes == nil {
			return errors.New("the browser was never driven")
		}
		if keep != nil {
			short, cancel := context.WithTimeout(ctx, cookiesTimeout)
			if err := keep(short, b.eyes.observer, profile); err != nil {
				log.Warn().Err(err).Msg("session cookies not kept")
			}
			cancel()
		}
		return b.mux.Call(ctx, "Browser.close", nil, nil)
	}
	rung, err := b.browser.Close(ctx, ask, chrome.Bounds{})
	if b.mux != nil {
		// What the pages did last is in the journal when this returns.
		for _, ended := range []<-chan struct{}{b.mux.Done(), b.recorded} {
			select {
			case <-ended:
			case <-ctx.Done():
				err = errors.Join(err, errors.New("the browser's pipe did not end"))
			}
		}
	}
	b.stop()
	err = errors.Join(err, b.ledger.Remove())
	if g := b.browser.Group(); g != nil && rung != "" {
		if err := g.Remove(groupTimeout); err != nil {
			log.Warn().Err(err).Msg("the browser's control group is left: the next launcher removes it")
		}
	}
	waiting, cancelWait := context.WithTimeout(context.Background(), unusedTimeout)
	defer cancelWait()
	err = errors.Join(err, l.o.Root.WaitUnused(waiting, profile))
	l.metrics.closes.WithLabelValues(string(rung)).Inc()
	log.Info().Str("rung", string(rung)).Dur("took", time.Since(begun)).AnErr("problem", err).Msg("browser closed")
	return rung, err
}

// browserState is the part of a bundle about the browser's process.
type browserState struct {
	PID int `json:"pid"`
	// ExitStatus is how it ended; empty while it runs.
	ExitStatus string `json:"exit_status,omitempty"`
	// Ailment is why it had to be given up while it ran.
	Ailment string       `json:"ailment,omitempty"`
	Memory  *memoryShown `json:"memory,omitempty"`
	// Group is its control group, and what happened there.
	Group *cgroup.Usage `json:"cgroup,omitempty"`
	// Dumps are the minidumps of its processes that crashed, in DumpDir on the
	// launcher's host.
	DumpDir string `json:"dump_dir,omitempty"`
	Dumps   []dump `json:"dumps,omitempty"`
	// DumpsMissing says why they could not be listed.
	DumpsMissing string `json:"dumps_missing,omitempty"`
	// DumpsSent says that Chrome may send them to its maker, as its user agreed.
	DumpsSent bool `json:"dumps_may_be_sent,omitempty"`
}

// state is of a session that began at since: dumps of an earlier one are not its own.
func (b *live) state(ctx context.Context, since time.Time) browserState {
	st := browserState{PID: b.browser.PID(), ExitStatus: b.browser.ExitStatus(), Ailment: b.ailing()}
	if b.vitals != nil {
		if b.vitals.limited() > 0 {
			m := b.vitals.seen()
			st.Memory = &m
		}
	}
	if g := b.browser.Group(); g != nil {
		u := g.Usage()
		st.Group = &u
	}
	if b.dumps == "" {
		st.DumpsMissing = "the launcher before did not say where they are"
		return st
	}
	var err error
	if st.Dumps, err = waitDumps(ctx, b.dumps); err != nil {
		st.DumpsMissing = err.Error()
	}
	st.Dumps = slices.DeleteFunc(st.Dumps, func(d dump) bool { return d.At.Before(since) })
	if len(st.Dumps) > 0 {
		st.DumpDir, st.DumpsSent = b.dumps, uploadsDumps(b.dumps)
	}
	return st
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
		if s.journal, err = checkpoint.Open(s.l.cases.journal(s.id)); err != nil {
			s.holding.Stop()
			return errors.Join(p, err, s.open.lock.Unlock())
		}
	}
	s.holding.Fence().Shut(cause)
	sealed := s.save(s.capture(reasonStartFailed, ""))
	s.holding.Stop()
	var closing error
	if s.open.live != nil {
		_, closing = s.closeBrowser()
	}
	how := reasonStartFailed
	var err error
	if closing != nil || sealed.EvidenceID == "" {
		s.log.Error().Err(closing).Msg("the browser that did not start is not proved gone, or its evidence is not stored: the profile goes through recovery")
		how, err = s.recovery(sealed, reasonStartFailed).run()
	} else {
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		var released lease.Entry
		released, err = s.change(storing, func(r lease.Record) (lease.Record, error) {
			return r.Release(reasonStartFailed, "", sealed, time.Now())
		})
		if err == nil {
			err = s.open.lock.Keep(released.Record)
		}
	}
	if err != nil {
		s.log.Error().Err(err).Msg("lease not released: it is recovered later")
	}
	s.mu.Lock()
	s.file.Reason, s.file.Ended = reasonStartFailed, how
	f := s.file
	s.mu.Unlock()
	if err := errors.Join(s.l.remember(f), s.journal.Close(), s.open.lock.Unlock()); err != nil {
		s.log.Error().Err(err).Msg("session not cleaned up")
	}
	close(s.done)
	return p
}

// manifest begins the manifest of a new bundle with what the lease says of it.
func (l *Launcher) manifest(r lease.Record, now time.Time) evidence.Manifest {
	return evidence.Manifest{
		EvidenceID: id.New("ev"), ProfileID: r.ProfileID, SessionID: r.SessionID, AccountID: r.AccountID, LauncherID: l.o.ID, At: now,
		OldWorkerID: r.OwnerWorkerID, OldTaskID: r.TaskID, ProxyID: r.ProxyID,
		PreviousEvidenceID: r.EvidenceID, PreviousManifestSHA256: r.EvidenceSHA256,
	}
}

// captureCase is everything that a bundle is made from.
type captureCase struct {
	l *Launcher
	// record is the lease as it was granted, or is found: it names the bundle
	// before this one.
	record    lease.Record
	path      string
	token     lease.Token // the lost worker's
	reason    string
	outcome   string // what the worker said of its task, if it did
	seen, now time.Time
	entries   []checkpoint.Entry
	commands  []byte // the part; nil: nobody kept them
	live      *live  // nil: no browser to ask
	shared    bool   // other runs are using the browser
}

// take fills a bundle. What cannot be had is named in it; a bundle that cannot be
// written at all is nil, and logged.
func (c captureCase) take(log zerolog.Logger) *evidence.Bundle {
	sum := checkpoint.Summarize(c.entries)
	m := c.l.manifest(c.record, c.now)
	m.LeaseToken, m.LastHeartbeatAt, m.DetectedStaleAt = uint64(c.token), c.seen, c.now
	m.LastKnownStep, m.LastKnownURL = sum.LastStep, sum.LastURL
	m.ProfileDir, m.RecoveryReason, m.Outcome = c.path, c.reason, c.outcome
	ctx, cancel := context.WithTimeout(context.Background(), captureTimeout)
	defer cancel()
	b, err := c.l.o.Archive.New(m)
	if err != nil {
		log.Error().Err(err).Msg("evidence cannot be written")
		return nil
	}
	add := func(name, kind, mediaType string, content []byte, err error) {
		if err == nil && len(content) > 0 {
			err = b.Add(name, kind, mediaType, content)
		} else {
			why := "empty"
			if err != nil {
				why = err.Error()
			}
			b.AddMissing(name, kind, why)
		}
		if err != nil {
			log.Warn().Err(err).Str("part", name).Msg("evidence part missing")
		}
	}
	if c.live != nil && c.live.eyes != nil {
		limits := evidence.Limits{LeaveBusy: c.shared}
		if c.reason == reasonBrowserHangs {
			limits.Silent = c.live.ailing()
		}
		evidence.Capture(ctx, c.live.eyes.observer, c.live.eyes.open(), b, limits)
	} else {
		b.AddMissing("screenshot-1.jpg", "screenshot", "there was no browser left to ask")
	}
	c.recorded(ctx, add)
	add("journal.jsonl", "journal", "application/x-ndjson", checkpoint.Encode(c.entries), nil)
	users, err := profiledir.Processes(c.path)
	processes, marshalErr := json.Marshal(users)
	add("processes.json", "processes", "application/json", processes, errors.Join(err, marshalErr))
	inspection, err := c.l.o.Root.Inspect(c.record.ProfileID)
	lock, marshalErr := json.Marshal(inspection)
	add("lock.json", "lock", "application/json", lock, errors.Join(err, marshalErr))
	if c.live != nil {
		state, err := json.Marshal(c.live.state(ctx, c.record.AcquiredAt))
		add("browser.json", evidence.KindBrowser, "application/json", state, err)
		add("chrome-output.txt", "output", "text/plain", []byte(c.live.browser.OutputTail(64<<10)), nil)
	}
	return b
}
