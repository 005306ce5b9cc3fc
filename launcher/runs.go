package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// openProfile is a profile that this host is at work on: opened by sessions, each
// a run with a token of its own, or in recovery.
type openProfile struct {
	// sessions are the living runs, guarded by the launcher's mutex.
	sessions []*session

	// gate has room for the one run that comes or goes.
	gate chan struct{}
	// closing says that the last run's end has begun: nobody joins any more.
	closing bool
	lock    *profiledir.Lock
	live    *browser.Browser
	// placed is since when the browser takes a place on this host; zero: it does
	// not.
	placed time.Time
	// server is the profile's proxy, if it has one, proxy what its sessions'
	// files say of it, relay the way to it that Chrome cannot go by itself.
	server *proxies.Proxy
	proxy  *sessionfile.ProxyUse
	relay  *proxies.Relay
	// lost are the runs that were lost while others went on.
	lost []recovery.LostRun

	// fit is what the browser was started with; nil: that is not known here.
	// started is the session it was started for, whose output and ledger are its.
	fit     *fit
	started string
	// first is the session whose journal has what is seen before any is entered,
	// guarded by the launcher's mutex.
	first *session
	// idle is not nil while the browser is warm, guarded by the launcher's mutex
	// as long as nobody occupies the profile. warm says that the last session,
	// whose end has begun, leaves it so.
	idle *idle
	warm bool
	// cooling is closed when a warm browser was closed and the profile is vacated;
	// nil: nobody does that. Guarded by the launcher's mutex.
	cooling chan struct{}
}

// noteAll puts what was seen in the browser into the journal of every run: which of
// them it belongs to cannot be told for sure.
func (l *Launcher) noteAll(o *openProfile, first *session) func(checkpoint.Entry) {
	l.mu.Lock()
	o.first = first
	l.mu.Unlock()
	return func(e checkpoint.Entry) {
		l.mu.Lock()
		runs, first, idle := slices.Clone(o.sessions), o.first, o.idle
		l.mu.Unlock()
		switch {
		case idle != nil:
			idle.stir(strings.TrimSpace(string(e.Kind) + " " + shownURL(e.URL)))
			return
		case len(runs) == 0 && first != nil: // it is just being started
			runs = []*session{first}
		}
		for _, s := range runs {
			s.note(e)
		}
	}
}

// shares tells whether other runs are using the browser.
func (s *session) shares() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return slices.ContainsFunc(s.open.sessions, func(o *session) bool { return o != s })
}

// begin starts the session's clocks.
func (s *session) begin() {
	s.update(func(f *facts) { f.startedAt, f.seenAt = time.Now(), time.Now() })
}

// enter counts a session among the runs of its profile, and begins to serve it.
func (l *Launcher) enter(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.open.sessions = append(s.open.sessions, s)
	l.sessions[s.id] = s
	l.hashes[s.file.CapabilityHash] = s.id
	delete(l.ended, s.id)
	if l.draining {
		s.update(func(f *facts) { f.draining, f.leaving = true, l.o.LeaveOnExit })
	}
	l.metrics.sessions.Inc()
	s.beginPictures()
	l.work.Go(s.run)
}

// leaves takes a session out of the runs, and tells whether it was the last. The
// gate is held.
func (s *session) leaves() (last bool) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(s.open.sessions), func(o *session) bool { return o == s })
	if len(others) == 0 {
		// It stays in the list: what the pages do last goes into its journal.
		s.open.closing = true
		return true
	}
	s.open.sessions = others
	return false
}

// joinable tells whether the record is of a profile that the task may share here.
func (l *Launcher) joinable(r lease.Record, m api.Manifest) bool {
	return r.State == lease.Held && r.LauncherID == l.o.ID && r.MaxActiveRuns > 1 && r.Shut(m.Exclusive()) == ""
}

// gateTimeout bounds how long a run that wants to join waits for one that ends.
const gateTimeout = time.Second

// join grants one more run on a profile whose browser is open here.
func (l *Launcher) join(ctx context.Context, m api.Manifest, entry lease.Entry, path string) (*session, error) {
	l.mu.Lock()
	o := l.profiles[m.ProfileID]
	l.mu.Unlock()
	if o == nil {
		return nil, l.conflict(entry.Record, m)
	}
	select {
	case o.gate <- struct{}{}:
		defer func() { <-o.gate }()
	case <-time.After(gateTimeout):
		return nil, l.conflict(entry.Record, m)
	}
	l.mu.Lock()
	warm := o.idle != nil || o.cooling != nil
	l.mu.Unlock()
	if warm || o.closing || o.live == nil || len(o.lost) > 0 {
		return nil, l.conflict(entry.Record, m)
	}
	k, err := l.presence.current()
	if err != nil {
		return nil, err
	}
	floor, err := l.o.Root.Floor(m.ProfileID)
	if err != nil {
		return nil, err
	}
	next, err := entry.Record.Grant(l.request(m, id.New("ses"), k, floor), time.Now())
	if err != nil {
		return nil, l.notGranted(err, entry.Record, m)
	}
	s := newSession(l, m, next, path, o, id.Secret())
	sent := boottime.Now()
	if err := l.swapGrant(ctx, s, entry, next); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	s.hold(k)
	err = errors.Join(o.lock.Keep(next), s.openJournal(), s.holding.Fence().Check())
	if err == nil {
		err = s.openDedicated()
	}
	if err != nil {
		return nil, s.joinFailed(ctx, err)
	}
	s.observed(ctx)
	s.log.Info().Dur("took", boottime.Now().Sub(sent)).Msg("joined the browser of the profile")
	s.begin()
	l.enter(s)
	return s, nil
}

// joinFailed undoes the grant of a run that never began.
func (s *session) joinFailed(ctx context.Context, cause error) error {
	s.holding.Fence().Shut(cause)
	c := s.caseOf(ruling{verdict: endInOrder}, nil)
	s.runEnds(&c)
	c.File.Reason, c.NeverServed, c.Bundle, c.Sealed = api.ReasonStartFailed, true, nil, nil
	_, err := s.l.recoverer.Run(c)
	s.file.Reason, s.file.Ended = api.ReasonStartFailed, api.ReasonStartFailed
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	close(s.done)
	if err = errors.Join(err, s.l.remember(s.file)); err != nil {
		s.log.Error().Err(err).Msg("a run that did not begin is not taken back: the profile is recovered when the others end")
	}
	return fmt.Errorf("joining profile %s: %w", s.profile, cause)
}

// runEnds makes the session's end that of one of several runs: its connections and
// what they left in the browser go, its evidence is stored, and the others do not
// notice.
func (s *session) runEnds(c *recovery.Case) {
	c.Goal, c.DetachClients = recovery.EndRun, s.dropPeers
}

// dropPeers closes what the run's connections left in the browser.
func (s *session) dropPeers() {
	s.mu.Lock()
	peers := slices.Concat(s.peers, s.kept)
	s.peers, s.kept = nil, nil
	s.mu.Unlock()
	for _, p := range peers {
		s.closePeer(context.Background(), p)
	}
}
