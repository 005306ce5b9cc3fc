package launcher

import (
	"bufio"
	"context"
	"net"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
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
	who := principal.Of(ctx)
	c, err := l.gallery.Open(s, who)
	if err != nil {
		return nil, err
	}
	return attended{c, s, who}, nil
}

// attended is a view that, while it is open, shows that its principal is present.
type attended struct {
	api.Connection
	session *session.Session
	who     principal.Principal
}

func (a attended) Serve(conn net.Conn, buffered *bufio.Reader) {
	defer a.session.Present(a.who)()
	a.Connection.Serve(conn, buffered)
}

// ended says how a session that is over has ended.
func (l *Launcher) ended(sessionID string) string {
	s, err := l.sessions.Show(sessionID)
	if err != nil {
		return err.Error()
	}
	return s.Ended
}
