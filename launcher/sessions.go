package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"leasehold/cdpproxy/methods"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Sessions returns the living sessions, oldest first.
func (l *Launcher) Sessions() []api.Session {
	shown := []api.Session{}
	for _, s := range l.sessions.Living() {
		shown = append(shown, s.Show())
	}
	slices.SortFunc(shown, func(a, b api.Session) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	return shown
}

// Session returns a session, living or over.
func (l *Launcher) Session(sessionID string) (api.Session, error) { return l.sessions.Show(sessionID) }

// SessionByCapability finds a session by the secret in a path.
func (l *Launcher) SessionByCapability(capability string) (api.Session, error) {
	s, err := l.sessions.ByCapability(capability)
	if err != nil {
		return api.Session{}, err
	}
	return s.Show(), nil
}

// SessionOf finds the living session of a profile, worker and task that the principal of
// ctx opened.
func (l *Launcher) SessionOf(ctx context.Context, profileID, workerID, taskID string, ephemeral bool) (api.Session, bool) {
	s := l.sessions.Of(principal.Of(ctx), profileID, workerID, taskID, ephemeral)
	if s == nil {
		return api.Session{}, false
	}
	return s.Show(), true
}

// Connect opens a connection to a session: to its browser, or to one target.
func (l *Launcher) Connect(ctx context.Context, sessionID, targetID string, closeFrames bool) (api.Connection, error) {
	s, err := l.sessions.Lookup(sessionID)
	if err != nil {
		return nil, err
	}
	return s.Connect(ctx, targetID, closeFrames)
}

func (l *Launcher) writable(ctx context.Context, sessionID string, token lease.Token, write string) (*session.Session, error) {
	s, err := l.sessions.ForWrite(ctx, sessionID, token, write)
	return s, problem(err)
}

// Heartbeat says that the worker lives.
func (l *Launcher) Heartbeat(ctx context.Context, sessionID string, h api.Heartbeat) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, h.Token, "heartbeat")
	if err != nil {
		return api.Session{}, err
	}
	err = s.Reports().Heartbeat(h)
	return s.Show(), err
}

// Step names what the worker does now.
func (l *Launcher) Step(ctx context.Context, sessionID string, st api.Step) error {
	s, err := l.writable(ctx, sessionID, st.Token, "step")
	if err != nil {
		return err
	}
	return s.Reports().Step(st)
}

// Checkpoint marks a point of the task.
func (l *Launcher) Checkpoint(ctx context.Context, sessionID string, c api.Checkpoint) error {
	s, err := l.writable(ctx, sessionID, c.Token, "checkpoint")
	if err != nil {
		return err
	}
	if err := s.Reports().Checkpoint(c); err != nil {
		return err
	}
	if c.IsSafe() {
		s.AwaitCheckpoint(ctx)
	}
	return nil
}

// Event puts an event that the task reports into the journal.
func (l *Launcher) Event(ctx context.Context, sessionID string, e api.TaskEvent) error {
	s, err := l.writable(ctx, sessionID, e.Token, "event")
	if err != nil {
		return err
	}
	return s.Reports().Event(e)
}

// Release ends the session. It returns when the profile is free, or when it is decided about.
func (l *Launcher) Release(ctx context.Context, sessionID string, r api.Release) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, r.Token, "release")
	if err != nil {
		return api.Session{}, err
	}
	if by, opener := principal.Of(ctx), s.Manifest().Opener.Name; by.Name != opener {
		l.o.Log.Info().Str("profile", s.Profile()).Uint64("token", uint64(s.Token())).Str("session", s.ID()).
			Str("principal", by.Name).Str("opened_by", opener).Msg("session ended by another than who opened it")
	}
	return s.Release(ctx, r)
}

// Ask asks for a person on behalf of a session's worker, and waits for the answer.
func (l *Launcher) Ask(ctx context.Context, sessionID string, a api.AskPerson) (api.Answer, error) {
	s, err := l.writable(ctx, sessionID, a.Token, "ask")
	if err != nil {
		return api.Answer{}, err
	}
	return s.Asks().Ask(ctx, a)
}

// TakeOver gives a session to a person.
func (l *Launcher) TakeOver(ctx context.Context, sessionID string, t api.TakeOver) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, t.Token, "take over")
	if err != nil {
		return api.Session{}, err
	}
	err = s.People().TakeOver(principal.Of(ctx), t)
	return s.Show(), err
}

// HandBack lets the worker of a session that a person took over go on.
func (l *Launcher) HandBack(ctx context.Context, sessionID string, h api.HandBack) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, h.Token, "hand back")
	if err != nil {
		return api.Session{}, err
	}
	err = s.People().HandBack(principal.Of(ctx), h)
	return s.Show(), err
}

// monitorOf finds the monitor of a living session's browser.
func (l *Launcher) monitorOf(sessionID string) (*session.Session, *monitor.Monitor, error) {
	s, err := l.sessions.Lookup(sessionID)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Monitor()
	return s, m, err
}

// toDrive is monitorOf for what a worker does to tabs, which has to pass the fence.
func (l *Launcher) toDrive(sessionID string) (*session.Session, *monitor.Monitor, *lease.Fence, error) {
	s, m, err := l.monitorOf(sessionID)
	if err != nil {
		return nil, nil, nil, err
	}
	fence, err := s.People().Driving()
	return s, m, fence, err
}

// Targets lists what Chrome's own /json/list would.
func (l *Launcher) Targets(ctx context.Context, sessionID string) ([]api.Target, error) {
	_, m, err := l.monitorOf(sessionID)
	if err != nil {
		return nil, err
	}
	open, err := m.Tabs().ByUse(ctx)
	if err != nil {
		return nil, fmt.Errorf("targets of session %s: %w", sessionID, err)
	}
	targets := []api.Target{}
	for _, t := range open {
		targets = append(targets, api.Target{ID: string(t.TargetID), Type: t.Type, Title: t.Title, URL: t.URL})
	}
	return targets, nil
}

// NewTarget opens a tab.
func (l *Launcher) NewTarget(ctx context.Context, sessionID, url string) (api.Target, error) {
	s, m, fence, err := l.toDrive(sessionID)
	if err != nil {
		return api.Target{}, err
	}
	if refused := methods.CheckURL(url); refused != nil {
		s.Limits().Denied("/json/new", refused)
		return api.Target{}, api.Invalid("url", "%s", refused.Text)
	}
	t, err := m.Tabs().Open(ctx, fence, url)
	if err != nil {
		return api.Target{}, refusedTab(s, err, api.Invalid("url", "%v", err))
	}
	return api.Target{ID: string(t.TargetID), Type: t.Type, URL: t.URL}, nil
}

// ActivateTarget brings a tab to the front.
func (l *Launcher) ActivateTarget(ctx context.Context, sessionID, targetID string) error {
	s, m, fence, err := l.toDrive(sessionID)
	if err != nil {
		return err
	}
	if err := m.Tabs().Activate(ctx, fence, targetID); err != nil {
		return refusedTab(s, err, noTarget(targetID))
	}
	return nil
}

// CloseTarget closes a tab.
func (l *Launcher) CloseTarget(ctx context.Context, sessionID, targetID string) error {
	s, m, fence, err := l.toDrive(sessionID)
	if err != nil {
		return err
	}
	s.PageCloses(targetID)
	if err := m.Tabs().Close(ctx, fence, targetID); err != nil {
		return refusedTab(s, err, noTarget(targetID))
	}
	return nil
}

func noTarget(targetID string) *api.Problem {
	return api.Refuse(api.CodeNotFound, "no such target id: %s", targetID)
}

// refusedTab returns the refusal of an action on a tab that failed: that the session is over,
// that a person has taken it over meanwhile, or else what the browser said.
func refusedTab(s *session.Session, failed error, said *api.Problem) error {
	if _, err := s.Monitor(); err != nil {
		return err
	}
	if taken, ok := errors.AsType[*api.Problem](failed); ok {
		return taken
	}
	return said
}
