package session

import (
	"context"
	"slices"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/lease"
)

// ForWrite finds the session for a write that carries a token. It refuses and reports a write
// with another token than the session's, and one to a session whose profile has moved on.
func (h *Registry) ForWrite(ctx context.Context, sessionID string, token lease.Token, write string) (*Session, error) {
	s, err := h.Lookup(sessionID)
	if err != nil {
		return nil, h.lateOrEnded(ctx, sessionID, token, write, err)
	}
	if err := s.writable(ctx, token, write); err != nil {
		return nil, err
	}
	return s, nil
}

// writable refuses a write with another token than the session's, and one to a session
// that is ending.
func (s *Session) writable(ctx context.Context, token lease.Token, write string) error {
	if token != s.token && s.ephemeral {
		return api.Refuse(api.CodeStaleToken, "session %s is ephemeral, and its writes carry %d, the token of its snapshot, not %d", s.id, s.token, token).
			With("session_id", s.id).With("current_token", s.token)
	}
	if token != s.token {
		return s.h.o.Announcer.Stale(ctx, s.profile, s.id, token, s.token, write)
	}
	if err := s.Fence().Check(); err == nil && !s.life.isEnding() {
		return nil
	}
	return s.h.lateOrEnded(ctx, s.id, s.token, write, s.life.endingProblem())
}

// lateOrEnded tells a write to a session that is over what happened: its token is stale if the
// profile has a higher one; otherwise the session just ended.
func (h *Registry) lateOrEnded(ctx context.Context, sessionID string, token lease.Token, write string, ended error) error {
	f, known := h.Identify(sessionID)
	if !known || f.Manifest.Ephemeral {
		return ended
	}
	entry, err := h.o.Store.Get(ctx, f.Manifest.ProfileID)
	if err == nil && entry.Record.Token > token {
		return h.o.Announcer.Stale(ctx, f.Manifest.ProfileID, sessionID, token, entry.Record.Token, write)
	}
	return ended
}

// Reports are what the worker of a session reports about itself and its task. The caller has
// made sure that the session is writable. Each report is a sign of life.
type Reports struct {
	*terms
	life    *life
	limits  *Limits
	people  *People
	browser func() *browser.Browser
	add     func(checkpoint.Entry) error // into the journal
	ctx     context.Context
}

func newReports(h *Registry, t *terms, l *life, limits *Limits, people *People, b func() *browser.Browser, add func(checkpoint.Entry) error) *Reports {
	return &Reports{terms: t, life: l, limits: limits, people: people, browser: b, add: add, ctx: h.ctx}
}

// Heartbeat reports that the worker lives.
func (r *Reports) Heartbeat(h api.Heartbeat) error {
	r.life.beat()
	if h.Step == "" {
		return nil
	}
	return r.add(checkpoint.Entry{Kind: checkpoint.KindStep, Name: h.Step})
}

// Step names what the worker does now.
func (r *Reports) Step(st api.Step) error {
	if st.Name == "" {
		return api.Invalid("name", "want the step's name")
	}
	if err := r.limits.checkAction(st); err != nil {
		return err
	}
	r.life.beat()
	return r.add(checkpoint.Entry{Kind: checkpoint.KindStep, Name: st.Name, Action: st.Action, Sensitive: st.Sensitive})
}

// Checkpoint names a point of the task.
func (r *Reports) Checkpoint(c api.Checkpoint) error {
	if c.Name == "" {
		return api.Invalid("name", "want the checkpoint's name")
	}
	if r.ephemeral {
		return notForReaders(r.id, "no checkpoint of it is kept")
	}
	if err := c.Idempotent.Check(); err != nil {
		return err
	}
	safe := c.IsSafe()
	r.life.beat()
	// Requests that were sent and answered before are in the journal before the checkpoint,
	// too.
	if m := r.browser().Monitor(); m != nil {
		m.HearAnswers(r.ctx)
	}
	// This comes after the wait, in which a person may take over.
	if t := r.people.takenBy(); t != nil && safe { // the worker cannot vouch for what the person is doing
		refused := takenOver(r.id, t.Person)
		refused.Detail += ": no checkpoint is safe until they hand it back; name it then, or with safe set to false"
		return refused
	}
	return r.add(checkpoint.Entry{
		Kind: checkpoint.KindCheckpoint, Name: c.Name, Safe: safe, Idempotent: c.Idempotent.Declared, IdempotentShapes: c.Idempotent.Shapes, Data: c.Data,
	})
}

// Event puts what the task reports into the journal.
func (r *Reports) Event(e api.TaskEvent) error {
	if e.Type == "" {
		return api.Invalid("type", "want the event's type")
	}
	r.life.beat()
	return r.add(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: e.Type, Data: e.Data})
}

// Release ends the session, and returns when the profile is free or decided about. It is refused if it came too
// late for a launcher that leaves the session to the next one.
func (s *Session) Release(ctx context.Context, r api.Release) (api.Session, error) {
	if err := r.Check(); err != nil {
		return api.Session{}, err
	}
	shown := s.Show()
	s.release(r)
	select {
	case <-s.life.done:
	case <-ctx.Done():
		return api.Session{}, ctx.Err()
	}
	if s.life.isLeft() {
		return api.Session{}, s.life.endingProblem()
	}
	f := s.file.get()
	shown.State, shown.Ended, shown.Released, shown.Connections = api.SessionEnded, f.Ended, f.Released, 0
	shown.UnfinishedDownloads = f.UnfinishedDownloads
	return shown, nil
}

// releaseEvent is the name of the journal's entry for an end that may need a recovery.
const releaseEvent = "ended_by_worker"

// release states that the worker asked for the end. Of several who do, before the session looks, the one counts
// who vouches least for the worker; of equals, the first.
func (s *Session) release(r api.Release) {
	r.Outcome, r.Reason = checkpoint.Clip(r.Outcome), checkpoint.Clip(r.Reason)
	if r.Recover != "" { // the record's reason says less
		s.Note(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: releaseEvent, Text: r.Outcome + ": " + r.Reason})
	}
	s.life.update(func(f *facts) {
		if f.released == nil || doubts(r) > doubts(*f.released) {
			f.released = &r
		}
	})
}

// doubts is how little a release vouches for its worker.
func doubts(r api.Release) int {
	return slices.Index([]string{"", api.RecoverTouched, api.RecoverAlways}, r.Recover)
}
