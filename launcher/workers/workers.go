package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"leasehold/cdpproxy/methods"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Sessions returns the living sessions, oldest first.
func (w *Service) Sessions() []api.Session {
	shown := []api.Session{}
	for _, s := range w.host.Sessions.Living() {
		shown = append(shown, s.Show())
	}
	slices.SortFunc(shown, func(a, b api.Session) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	return shown
}

// Session returns a session, living or over.
func (w *Service) Session(sessionID string) (api.Session, error) {
	return w.host.Sessions.Show(sessionID)
}

// SessionByCapability finds a session by the secret in a path.
func (w *Service) SessionByCapability(capability string) (api.Session, error) {
	s, err := w.host.Sessions.ByCapability(capability)
	if err != nil {
		return api.Session{}, err
	}
	return s.Show(), nil
}

// SessionOf finds the living session of a profile, worker and task that the principal of
// ctx opened.
func (w *Service) SessionOf(ctx context.Context, profileID, workerID, taskID string, ephemeral bool) (api.Session, bool) {
	s := w.host.Sessions.Of(principal.Of(ctx), profileID, workerID, taskID, ephemeral)
	if s == nil {
		return api.Session{}, false
	}
	return s.Show(), true
}

// Connect opens a connection to a session: to its browser, or to one target.
func (w *Service) Connect(ctx context.Context, sessionID, targetID string, closeFrames bool) (api.Connection, error) {
	s, err := w.host.Sessions.Lookup(sessionID)
	if err != nil {
		return nil, err
	}
	return s.Connect(ctx, targetID, closeFrames)
}

// Writable finds the session that a write under its token is for.
func (w *Service) Writable(ctx context.Context, sessionID string, token lease.Token, write string) (*session.Session, error) {
	s, err := w.host.Sessions.ForWrite(ctx, sessionID, token, write)
	return s, host.Problem(err)
}

// Heartbeat says that the worker lives.
func (w *Service) Heartbeat(ctx context.Context, sessionID string, h api.Heartbeat) (api.Session, error) {
	s, err := w.Writable(ctx, sessionID, h.Token, "heartbeat")
	if err != nil {
		return api.Session{}, err
	}
	err = s.Reports().Heartbeat(h)
	return s.Show(), err
}

// Step names what the worker does now.
func (w *Service) Step(ctx context.Context, sessionID string, st api.Step) error {
	s, err := w.Writable(ctx, sessionID, st.Token, "step")
	if err != nil {
		return err
	}
	return s.Reports().Step(st)
}

// Checkpoint marks a point of the task.
func (w *Service) Checkpoint(ctx context.Context, sessionID string, c api.Checkpoint) error {
	s, err := w.Writable(ctx, sessionID, c.Token, "checkpoint")
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
func (w *Service) Event(ctx context.Context, sessionID string, e api.TaskEvent) error {
	s, err := w.Writable(ctx, sessionID, e.Token, "event")
	if err != nil {
		return err
	}
	return s.Reports().Event(e)
}

// Release ends the session. It returns when the profile is free, or when it is decided about.
func (w *Service) Release(ctx context.Context, sessionID string, r api.Release) (api.Session, error) {
	s, err := w.Writable(ctx, sessionID, r.Token, "release")
	if err != nil {
		return api.Session{}, err
	}
	if by, opener := principal.Of(ctx), s.Manifest().Opener.Name; by.Name != opener {
		w.host.Log.Info().Str("profile", s.Profile()).Uint64("token", uint64(s.Token())).Str("session", s.ID()).
			Str("principal", by.Name).Str("opened_by", opener).Msg("session ended by another than who opened it")
	}
	return s.Release(ctx, r)
}

// MonitorOf finds the monitor of a living session's browser.
func (w *Service) MonitorOf(sessionID string) (*session.Session, *monitor.Monitor, error) {
	s, err := w.host.Sessions.Lookup(sessionID)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Monitor()
	return s, m, err
}

// toDrive is MonitorOf for what a worker does to tabs, which has to pass the fence.
func (w *Service) toDrive(sessionID string) (*session.Session, *monitor.Monitor, *lease.Fence, error) {
	s, m, err := w.MonitorOf(sessionID)
	if err != nil {
		return nil, nil, nil, err
	}
	fence, err := s.People().Driving()
	return s, m, fence, err
}

// Targets lists what Chrome's own /json/list would.
func (w *Service) Targets(ctx context.Context, sessionID string) ([]api.Target, error) {
	_, m, err := w.MonitorOf(sessionID)
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
func (w *Service) NewTarget(ctx context.Context, sessionID, url string) (api.Target, error) {
	s, m, fence, err := w.toDrive(sessionID)
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
func (w *Service) ActivateTarget(ctx context.Context, sessionID, targetID string) error {
	s, m, fence, err := w.toDrive(sessionID)
	if err != nil {
		return err
	}
	if err := m.Tabs().Activate(ctx, fence, targetID); err != nil {
		return refusedTab(s, err, noTarget(targetID))
	}
	return nil
}

// CloseTarget closes a tab.
func (w *Service) CloseTarget(ctx context.Context, sessionID, targetID string) error {
	s, m, fence, err := w.toDrive(sessionID)
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
