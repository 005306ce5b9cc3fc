package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

const (
	// clearTimeout bounds how long a session's pages may take to close.
	clearTimeout = 5 * time.Second
	// quietTimeout bounds how long a warm browser may take to show, before a grant, that
	// it is as it was left.
	quietTimeout = 2 * time.Second
)

func (l *Launcher) headless(m api.Manifest) bool {
	if m.Headless != nil {
		return *m.Headless
	}
	return l.o.Headless
}

// fitOf is what the manifest's task wants of a browser on the record's profile.
func (l *Launcher) fitOf(m api.Manifest, r lease.Record, proxy *proxies.Proxy) slots.Fit {
	return slots.FitOf(m, r, proxy, l.headless(m), l.driver.MemoryLimit(r.BrowserMemory))
}

// staysWarm leaves the browser of a session that ends in order open, as the next
// task may have it, or tells that it is to be closed. The evidence is stored, the
// fence shut.
func (s *session) staysWarm() bool {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	keep := slots.KeepWarm{
		Manifest: s.manifest.KeepWarm, Profile: s.granted.KeepWarm, Cookies: s.manifest.SessionCookies, Started: s.open.Fit() != nil,
	}
	if now, err := s.l.o.Store.Get(ctx, s.profile); err == nil {
		keep.Profile = now.Record.KeepWarm // it may have been changed meanwhile
	}
	if why := s.l.slots.Against(keep, s.path); why != "" {
		s.log.Debug().Str("why", why).Msg("the browser does not stay warm")
		return false
	}
	begun := time.Now()
	err := s.clear(ctx)
	if err == nil {
		// A browser that crashes while nobody uses it may not cost a login.
		err = s.l.jar.KeepAll(ctx, s.browser.Monitor().Observer(), s.profile)
	}
	if err != nil {
		s.log.Warn().AnErr("problem", errors.Join(err, s.l.jar.Drop(s.profile))).Msg("the browser cannot be handed on: it is closed")
		return false
	}
	s.browser.LimitWrites(0)
	s.log.Info().Int("pid", s.browser.PID()).Dur("took", time.Since(begun)).Msg("browser stays open for the next task")
	return true
}

// clear closes everything that the session has open in the browser but one empty
// tab.
func (s *session) clear(ctx context.Context) error {
	if err := s.browser.Monitor().Clear(ctx, clients{s}); err != nil {
		return err
	}
	return os.Truncate(s.l.cases.Output(s.open.StartedFor()), 0) // it is in the evidence
}

// clients are the session's connections, for the monitor.
type clients struct{ s *session }

// AwaitEnd waits on the facts, which run does not look at any more.
func (c clients) AwaitEnd(ctx context.Context) error {
	for c.s.connected() {
		select {
		case <-c.s.woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Detach ends the browser sessions of the connections.
func (c clients) Detach() { c.s.dropPeers() }

// connected tells whether a connection's end is still to be told.
func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) > 0
}

// handOver gives the warm browser of an occupied profile to the manifest's task.
// Without a session and an error, it was not one for the task, or not fit any
// more, and is closed.
func (l *Launcher) handOver(ctx context.Context, m api.Manifest, entry lease.Entry, path string, o *slots.Slot, k *lease.Keeper, proxy *proxies.Proxy) (*session, error) {
	begun := time.Now()
	if wanted := l.fitOf(m, entry.Record, proxy); wanted != *o.Fit() || m.SessionCookies == api.CookiesDrop || forbids(entry.Record.KeepWarm) || entry.Record.State != lease.Available {
		o.Cool(slots.WarmMismatch, "")
		return nil, nil
	}
	// The session before may not have let go of it, and nobody joins meanwhile.
	o.EnterGate()
	defer o.LeaveGate()
	floor, err := l.o.Root.Floor(m.ProfileID)
	if err != nil {
		return nil, err
	}
	next, err := entry.Record.Grant(l.request(m, id.New("ses"), k, floor), time.Now())
	if err != nil {
		return nil, l.notGranted(err, entry.Record, m)
	}
	s := newSession(l, m, next, path, o, id.Secret())
	// While the session's files are begun, the browser shows that it is fit, and
	// what state the account is in: as long as it is quiet, that stays so.
	var unfit, opened, unknown error
	var cookies json.RawMessage
	var before, asked sync.WaitGroup
	defer asked.Wait()
	looking, cancelLook := context.WithTimeout(context.WithoutCancel(ctx), quietTimeout)
	defer cancelLook()
	before.Go(func() { unfit = s.browser.Monitor().Quiet(looking) })
	before.Go(func() { opened = s.openJournal() })
	asked.Go(func() { cookies, unknown = s.browser.Cookies(looking) })
	persisted := l.cases.Begin(s.file)
	before.Wait()
	persisted = errors.Join(persisted, opened)
	if unfit != nil {
		s.unmade()
		o.Cool(whyUnfit(unfit), unfit.Error())
		return nil, nil
	}
	if persisted != nil {
		s.unmade()
		return nil, notRecorded(persisted)
	}
	if what := o.Disturbed(); what != "" {
		s.unmade()
		o.Cool(slots.WarmDisturbed, what)
		return nil, nil
	}
	idle := begun.Sub(o.WarmSince())
	// Where it is not granted, the browser stays warm as it is.
	if err := l.storeGrant(ctx, s, entry, next); err != nil {
		return nil, errors.Join(err, s.journal.Close())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	s.hold(k)
	o.Starting(s)
	if what := o.HandOver(); what != "" {
		err = fmt.Errorf("something happened in the warm browser during the grant (%s): ask again, for another browser", what)
	}
	// Before the floor: it tells the next launcher that this was done.
	err = errors.Join(err, l.jar.Drop(s.profile))
	// Nobody is served before all of this is on disk; it goes there side by side.
	var rest sync.WaitGroup
	rest.Go(func() { persisted = l.cases.Sync(s.id) })
	rest.Go(func() {
		asked.Wait()
		s.observedWith(cookies, unknown)
	})
	err = errors.Join(err, o.Lock().Keep(next))
	rest.Wait()
	if err = errors.Join(err, persisted); err == nil {
		err = s.openDedicated() // it writes the file again
	}
	if p := l.presence.sharedReady(path); p != nil { // the store may have been lost meanwhile
		err = errors.Join(err, p)
	}
	if err = errors.Join(err, s.holding.Fence().Check()); err != nil {
		return nil, s.startFailed(ctx, err)
	}
	l.metrics.handovers.Observe(time.Since(begun).Seconds())
	s.log.Info().Int("pid", s.browser.PID()).Dur("idle", idle).Dur("took", time.Since(begun)).Msg("took over the warm browser")
	s.begin()
	l.enter(s)
	return s, nil
}

// forbids tells whether a profile's keep_warm says no.
func forbids(keepWarm *bool) bool { return keepWarm != nil && !*keepWarm }

// whyUnfit is the reason to close a browser that is not as it was left.
func whyUnfit(err error) string {
	switch {
	case errors.Is(err, cdpproxy.ErrBrowserGone):
		return slots.WarmGone
	case errors.Is(err, context.DeadlineExceeded):
		return slots.WarmHung
	}
	return slots.WarmDisturbed
}

// unmade forgets a session that was not granted.
func (s *session) unmade() {
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			s.log.Warn().Err(err).Msg("journal not closed")
		}
	}
	s.forget()
}

// leftWarm tells whether the browser that was left on a profile is a warm one, of
// a launcher that ended: what this host kept of the profile last is a release, and
// that comes after the evidence, and after all but an empty tab was closed.
func leftWarm(kept lease.Record) bool {
	return kept.State == lease.Available && kept.EvidenceID != "" && len(kept.Runs) == 0
}

// closeLeftWarm closes the warm browser of a launcher that ended. Its evidence is
// that of the release.
func (l *Launcher) closeLeftWarm(r lease.Record, b *browser.Browser, lock *profiledir.Lock, log zerolog.Logger) error {
	log.Info().Msg("a launcher left a warm browser: it is closed")
	return errors.Join(slots.CloseWarm(b, lock, l.o.Root, l.jar, log), lock.Unlock())
}
