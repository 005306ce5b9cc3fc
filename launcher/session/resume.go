package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// A session of an earlier launcher that was killed, or that left its browsers, goes on in this
// one: with the same id, token and capability. What its clients left in the browser is fenced,
// and stays as it was until the worker is back.

// storeTimeout bounds the transition by which a lease is resumed.
const storeTimeout = 10 * time.Second

// Resumption is what a session of an earlier launcher goes on with. The caller occupies the
// profile.
type Resumption struct {
	Record  lease.Record // as it was found
	Path    string
	Slot    *slots.Slot
	Lock    *profiledir.Lock
	Browser *browser.Browser
	// StartedFor is the session that the browser was started for.
	StartedFor string
	Keeper     *lease.Keeper // of the presence to which the lease will belong
	Request    lease.Request // by which it is resumed
	// Continues tells whether the lease has not expired since the earlier launcher ended.
	Continues func() bool
	// DropCookies says that the session cookies that are kept on disk are in the browser
	// already.
	DropCookies bool
}

// Resume puts the lease under this launcher's epoch, and makes a session of what is on
// disk. Enter begins to serve it.
func (h *Registry) Resume(t Resumption) (*Session, error) {
	f, _ := h.File(t.Record.SessionID)
	f.Manifest.OneShot, f.Manifest.ByHand, f.Manifest.Opener = f.OneShot, f.ByHand, api.Opener{Name: f.Principal, UID: f.OpenerUID}
	entries, err := checkpoint.Read(h.o.Files.Journal(f.SessionID))
	if err != nil {
		return nil, err
	}
	s := h.New(f.Manifest, t.Record, t.Path, t.Slot, "")
	f.Unseen = true // nothing was watched while there was no launcher
	s.file.change(func(of *sessionfile.File) { *of = f })
	s.life.goesOn(factsLeft(f, entries, time.Now(), h.o.Clock()))
	if v := s.life.ruling(time.Now()); v.verdict != stay && v.verdict != interrupted {
		return nil, fmt.Errorf("it would end at once: %s", v.reason)
	}
	// That something was not watched has to be known before anything else can happen.
	if err := s.file.save(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(h.ctx, storeTimeout)
	defer cancel()
	held, err := lease.Change(ctx, h.o.Store, s.profile, func(e lease.Entry) (lease.Record, error) {
		if !t.Continues() {
			return e.Record, lease.ErrExpired
		}
		return e.Record.Continue(s.token, t.Request, time.Now())
	})
	if err != nil {
		return nil, err
	}
	if s.granted = held.Record; s.granted.SessionID != s.id {
		return nil, fmt.Errorf("the lease is that of session %s", s.granted.SessionID)
	}
	if t.DropCookies || s.manifest.SessionCookies == api.CookiesDrop {
		err = h.o.Jar.Drop(s.profile)
	} else { // the launcher may have been killed while it started the browser, before it had put them in
		err = h.o.Jar.Restore(ctx, t.Browser.Monitor().Observer(), s.profile)
	}
	if err != nil {
		return nil, err
	}
	s.Hold(t.Keeper)
	if err = errors.Join(s.files.open(), s.recording.open()); err == nil {
		if err = s.recording.add(checkpoint.Entry{Kind: checkpoint.KindConnection, Name: connectionsOver}); err == nil {
			err = errors.Join(t.Lock.RaiseFloor(s.granted), s.Fence().Check())
		}
		if err != nil {
			err = errors.Join(err, s.recording.close())
		}
	}
	if err != nil {
		s.Fence().Shut(err)
		s.holding.Stop()
		return nil, err
	}
	t.handBrowser(s)
	s.people.goesOnWith(f.Person)
	if err := s.enforce(ctx, s.browser); err != nil {
		s.Fence().Shut(err)
		s.holding.Stop()
		return nil, errors.Join(err, s.recording.close())
	}
	if err := s.port.open(); err != nil {
		s.log.Warn().Err(err).Msg("the session's own port is gone")
	}
	return s, nil
}

// handBrowser gives the session, and its slot, the browser of the earlier launcher.
func (t Resumption) handBrowser(s *Session) {
	s.browser = t.Browser
	t.Slot.Locked(t.Lock)
	t.Slot.Opened(t.Browser, t.StartedFor, nil)
	t.Slot.Starting(s)
	t.Browser.LimitMemory(s.granted.BrowserMemory)
	t.Browser.Monitor().Attribute(s.token, s.granted.HarmlessRequests)
	for token, left := range t.Browser.Mux().Inherited() {
		if token == s.token {
			// A person's DevTools may not come back, so nothing waits for them.
			for _, p := range left {
				p.SetDownloadDir(s.files.downloadDir())
			}
			s.clients.inherit(left)
			s.inherited = !s.policy.byHand
		}
	}
}

// Resumed ends what other sessions' clients left in the browser, and begins to serve. The
// earlier launcher paused new pages until it had seen them; from now on this one does.
func (s *Session) Resumed() {
	for token, left := range s.browser.Mux().Inherited() {
		if token != s.token {
			for _, p := range left {
				s.clients.closeOne(s.h.ctx, p)
			}
		}
	}
	asking, cancel := capture.Patience(s.h.ctx, askTimeout)
	defer cancel()
	if err := s.browser.Monitor().LearnContext(asking); err != nil {
		s.log.Warn().Err(err).Msg("it is not known which pages are the profile's own")
	}
	if err := s.files.takeDownloads(asking, s.browser); err != nil {
		s.log.Warn().Err(err).Msg("downloads may go where Chrome puts them")
	}
	s.log.Info().Int("pid", s.browser.PID()).Str("worker", s.manifest.WorkerID).Str("task", s.manifest.TaskID).Dur("grace", s.policy.grace).
		Msg("session resumed: its worker may reconnect")
	s.life.reachable()
	s.h.Enter(s)
}

// factsLeft is what is known of a session's worker after its launcher ended: the launcher, and
// not the worker, ended the connections that were open. boot is now by the boot-time clock: a
// session goes on only in the boot in which it began.
func factsLeft(f sessionfile.File, entries []checkpoint.Entry, now time.Time, boot boottime.Instant) facts {
	left := facts{startedAt: f.AcquiredAt, seenAt: now}
	if f.Begun != 0 {
		left.startedAt = now.Add(f.Begun.Sub(boot))
	}
	open, last := 0, ""
	for _, e := range entries {
		if e.Kind == checkpoint.KindOmitted && e.Name == string(checkpoint.KindConnection) {
			open = 1 // it is not known how many were open then: the worker has to come back
		}
		if e.Kind != checkpoint.KindConnection {
			continue
		}
		last = e.Name
		switch e.Name {
		case connectionOpened:
			open++
		case connectionsOver:
			open = 0
		default:
			open--
		}
	}
	if left.connected = last != ""; !left.connected {
		return left
	}
	left.endedAt, left.dropped = now, open > 0 || last != connectionClosed
	left.left = left.dropped
	return left
}
