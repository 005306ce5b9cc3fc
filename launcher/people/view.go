package people

import (
	"context"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/launcher/view"
)

// View lets the principal of ctx watch a living session.
func (p *Service) View(ctx context.Context, sessionID string) (api.Connection, error) {
	s, err := p.host.Sessions.Lookup(sessionID)
	if err != nil {
		return nil, err
	}
	if _, err := s.Monitor(); err != nil {
		return nil, err
	}
	return p.gallery.Open(watched{s, s.People()}, principal.Of(ctx))
}

// watched is a session as its viewers see it, with those who have it by hand.
type watched struct {
	*session.Session
	*session.People
}

var _ view.Session = watched{}

func (p *Service) ended(sessionID string) string {
	s, err := p.host.Sessions.Show(sessionID)
	if err != nil {
		return err.Error()
	}
	return s.Ended
}
