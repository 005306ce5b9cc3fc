package launcher

import (
	"context"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// View lets the principal of ctx watch a living session.
func (l *Launcher) View(ctx context.Context, sessionID string) (api.Connection, error) {
	s, err := l.sessions.Lookup(sessionID)
	if err != nil {
		return nil, err
	}
	if _, err := s.Monitor(); err != nil {
		return nil, err
	}
	return l.gallery.Open(s, principal.Of(ctx))
}

// ended says how a session ended that is over.
func (l *Launcher) ended(sessionID string) string {
	s, err := l.sessions.Show(sessionID)
	if err != nil {
		return err.Error()
	}
	return s.Ended
}
