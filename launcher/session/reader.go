package session

import (
	"context"
	"errors"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// An ephemeral session has no lease: it is on a copy of a snapshot of its profile, which is
// removed with the session. It is served like any other session, and ends by the same rules.
// But there is no evidence and no recovery, and nothing about it is written for its profile. No
// other launcher goes on with it.

// tenure is what allows a session to go on: a held lease or, if it is ephemeral and may send
// something, the launcher's presence; if it only reads, nothing.
type tenure interface {
	Fence() *lease.Fence
	// Context ends when the session may not go on.
	Context() context.Context
	Report(lease.Progress)
	Observe(lease.Record)
	Stop()
}

var _ tenure = (*lease.Holding)(nil)

// noLease is the tenure of an ephemeral session.
type noLease struct {
	ctx   context.Context
	fence *lease.Fence
	stop  func()
}

// noLeaseOf is the tenure of an ephemeral session. A launcher that has lost its presence does not
// hear that the account has to stand still: a session that may send something depends on it.
func (h *Registry) noLeaseOf(t *terms, presence *lease.Keeper) noLease {
	if t.rules().ReadOnly {
		return noLease{h.ctx, lease.Open(t.token), func() {}}
	}
	ctx, end := context.WithCancelCause(h.ctx)
	lost := presence.Context()
	stop := context.AfterFunc(lost, func() { end(context.Cause(lost)) })
	return noLease{ctx, presence.Fence(t.token), func() {
		stop()
		end(nil)
	}}
}

func (n noLease) Fence() *lease.Fence      { return n.fence }
func (n noLease) Context() context.Context { return n.ctx }
func (noLease) Report(lease.Progress)      {}
func (noLease) Observe(lease.Record)       {}
func (n noLease) Stop()                    { n.stop() }

// Copy is the copy of a profile that an ephemeral session is on.
type Copy struct {
	Path string
	Lock *profiledir.Lock
	// Root is where the copy is, under the session's id.
	Root *profiledir.Root
	// Jar has the session cookies of the snapshot, under the session's id.
	Jar sessionfile.Jar
	// Discard removes the copy, once no process uses it. Leave gives up one that could not be removed.
	Discard, Leave func() error
	// SnapshotID and SnapshotToken are those of the snapshot from which the copy was made.
	SnapshotID    string
	SnapshotToken lease.Token
}

// Reader is what only an ephemeral session has: its copy of the profile.
type Reader struct {
	*terms
	of        Copy
	life      *life
	files     *hostFiles
	recording *recording
	dir       sessionfile.Dir
}

func newReader(h *Registry, t *terms, c Copy, l *life, files *hostFiles, r *recording) *Reader {
	return &Reader{terms: t, of: c, life: l, files: files, recording: r, dir: h.o.Files}
}

// NewReader makes an ephemeral session on a copy of the record's profile. OpenReader starts
// its browser. If it is not read-only, it ends with the presence.
func (h *Registry) NewReader(m api.Manifest, sessionID string, r lease.Record, c Copy, slot *slots.Slot, capability string, presence *lease.Keeper) *Session {
	r = r.Clone()
	r.SessionID, r.Token, r.OwnerWorkerID, r.TaskID, r.Principal = sessionID, c.SnapshotToken, m.WorkerID, m.TaskID, m.Opener.Name
	slot.Locked(c.Lock)
	t := newTerms(h, m, r, c.Path)
	t.ephemeral = true
	if !t.rules().ReadOnly { // requests that it may still send must not wait for its worker
		t.policy.grace = 0
	}
	s := newSession(h, t, slot, capability, c.Jar)
	s.reader = newReader(h, t, c, s.life, s.files, s.recording)
	s.holding = h.noLeaseOf(t, presence)
	return s
}

// OpenReader starts the browser of an ephemeral session. After an error the caller calls
// UndoReader.
func (s *Session) OpenReader(ctx context.Context) error {
	begun := time.Now()
	if err := errors.Join(s.files.open(), s.recording.begin()); err != nil {
		return notRecorded(err)
	}
	if err := s.startBrowser(ctx, nil); err != nil {
		return err
	}
	s.log.Info().Str("worker", s.manifest.WorkerID).Str("task", s.manifest.TaskID).Str("principal", s.manifest.Opener.Name).Str("snapshot", s.reader.of.SnapshotID).
		Bool("read_only", s.rules().ReadOnly).Int("pid", s.browser.PID()).Dur("took", time.Since(begun)).Msg("ephemeral session begins")
	return nil
}

// UndoReader ends an ephemeral session whose browser did not start because of cause, and
// vacates its slot. It returns the error for the caller.
func (s *Session) UndoReader(cause error) error {
	var p *api.Problem
	if notStarted := s.notStarted(cause); !errors.As(cause, &p) {
		p = notStarted
	}
	s.Fence().Shut(cause)
	s.holding.Stop()
	s.life.end()
	if err := s.reader.remove(s.browser); err != nil {
		s.log.Error().Err(err).Msg("the copy of an ephemeral session is left: it is removed later")
	}
	close(s.life.done)
	s.slot.Vacate()
	return p
}

// expires is when the session ends according to its facts if its worker shows no sign of life.
func (r *Reader) expires(f facts) time.Time {
	expires := r.policy.lastSeen(f, time.Now()).Add(r.policy.silence)
	if end := f.startedAt.Add(r.policy.lockTimeout); r.policy.lockTimeout > 0 && end.Before(expires) {
		expires = end
	}
	return expires
}

// Reader is the session's copy; nil if it is not ephemeral.
func (s *Session) Reader() *Reader { return s.reader }

// Writes tells whether the session's pages may send anything.
func (r *Reader) Writes() bool { return !r.rules().ReadOnly }

// Dismiss ends the session, and says why.
func (r *Reader) Dismiss(reason string) {
	r.life.update(func(f *facts) {
		if f.released == nil {
			f.released = &api.Release{Reason: reason}
		}
	})
}

// discard ends an ephemeral session: its browser is killed, and its copy removed.
func (e *ending) discard() {
	s := e.s
	s.log.Info().Str("reason", e.reason).Msg("session ends")
	code, reason := e.readerCode()
	s.slot.Leave(s) // no other session has its browser
	e.noteDownloads()
	e.cutOff(errSessionOver, code, reason)
	s.holding.Stop()
	s.Note(checkpoint.Entry{Kind: checkpoint.KindEnd, Text: e.reason})
	how := "ended: " + e.reason
	s.life.end()
	seen := s.life.known().seenAt.UTC()
	f := s.file.change(func(f *sessionfile.File) {
		f.Reason, f.Ended, f.SeenAt = e.reason, how, seen
		f.Released = e.verdict == endInOrder
	})
	if err := s.reader.remove(s.browser); err != nil {
		s.log.Error().Err(err).Msg("the copy of an ephemeral session is left: it is removed later")
	}
	s.clients.Detach()
	s.h.metrics.readers.Dec()
	s.h.metrics.ends.WithLabelValues("discarded").Inc()
	if err := s.h.keep(f); err != nil {
		s.log.Warn().Err(err).Msg("files of older sessions are left")
	}
	s.h.leave(s)
	s.slot.End()
	s.log.Info().Str("how", how).Msg("session over")
}

// readerCode is the code with which open connections of an ephemeral session are closed.
func (e *ending) readerCode() (int, string) {
	switch {
	case e.verdict == leave || e.reason == api.ReasonShutdown:
		return cdpproxy.CloseShuttingDown, "the launcher is shutting down"
	case e.verdict == endInOrder, e.reason == api.ReasonBrowserCrashed, e.reason == api.ReasonBrowserHangs, e.reason == api.ReasonBrowserMemory:
		return e.closeCode()
	}
	return cdpproxy.CloseExpired, "the session ended: " + e.reason
}

// remove kills the session's browser, if it has one, and removes everything that the session
// had. If a process may use it still, it is tried again; what else cannot be removed, the next launcher
// removes.
func (r *Reader) remove(b *browser.Browser) error {
	var err error
	if b != nil {
		err = b.Discard(r.of.Root, r.id, r.log)
	}
	closed := r.recording.close()
	if err != nil { // a process may use it
		return errors.Join(err, closed, r.of.Leave())
	}
	return errors.Join(closed, r.of.Discard(), r.dir.Remove(r.id), r.files.forget())
}

// notForReaders refuses an operation that has no meaning in an ephemeral session.
func notForReaders(sessionID, why string) error {
	return api.Refuse(api.CodeEphemeral, "session %s is ephemeral: %s", sessionID, why).With("session_id", sessionID)
}
