package people

import (
	"bufio"
	"context"
	"net"

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
	who := principal.Of(ctx)
	c, err := p.gallery.Open(watched{s, s.People()}, who)
	if err != nil {
		return nil, err
	}
	return attended{c, s.People(), who}, nil
}

// watched is a session as its viewers see it, with those who have it by hand.
type watched struct {
	*session.Session
	*session.People
}

var _ view.Session = watched{}

// attended is a view that, while it is open, shows that its principal is present.
type attended struct {
	api.Connection
	people *session.People
	who    principal.Principal
}

func (a attended) Serve(conn net.Conn, buffered *bufio.Reader) {
	defer a.people.Present(a.who)()
	a.Connection.Serve(conn, buffered)
}

func (p *Service) ended(sessionID string) string {
	s, err := p.host.Sessions.Show(sessionID)
	if err != nil {
		return err.Error()
	}
	return s.Ended
}
