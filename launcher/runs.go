package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/lease"
)

// begin starts the session's clocks.
func (s *session) begin() {
	s.update(func(f *facts) { f.startedAt, f.seenAt = time.Now(), time.Now() })
}

// enter counts a session among the runs of its profile, and begins to serve it.
func (l *Launcher) enter(s *session) {
	s.open.Enter(s)
	l.mu.Lock()
	defer l.mu.Unlock()
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

// joinable tells whether the record is of a profile that the task may share here.
func (l *Launcher) joinable(r lease.Record, m api.Manifest) bool {
	return r.State == lease.Held && r.LauncherID == l.o.ID && r.MaxActiveRuns > 1 && r.Shut(m.Exclusive()) == ""
}

// gateTimeout bounds how long a run that wants to join waits for one that ends.
const gateTimeout = time.Second

// join grants one more run on a profile whose browser is open here.
func (l *Launcher) join(ctx context.Context, m api.Manifest, entry lease.Entry, path string) (*session, error) {
	o := l.slots.Find(m.ProfileID)
	if o == nil || !o.TryGate(gateTimeout) {
		return nil, l.conflict(entry.Record, m)
	}
	defer o.LeaveGate()
	if !o.Joinable() {
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
	err = errors.Join(o.Lock().Keep(next), s.openJournal(), s.holding.Fence().Check())
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
