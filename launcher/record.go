package launcher

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"leasehold/cdpproxy"
	"leasehold/evidence"
)

// observed says that from now on what is seen of the browser is of this run, too,
// and keeps digests of the account's state, for the bundle.
func (s *session) observed(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cookies, err := s.browser.Cookies(asking)
	s.observedWith(cookies, err)
}

// observedWith is observed, with the cookies at the grant or why there are none.
func (s *session) observedWith(cookies json.RawMessage, err error) {
	s.browser.Monitor().Attribute(s.token, s.granted.HarmlessRequests)
	content, err := s.l.recoverer.Digests(s.profile, cookies, err)
	if err == nil {
		err = os.WriteFile(s.l.cases.Digests(s.id), content, 0o600)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("no digests of the account's state: whether it changes cannot be told")
	}
}

// keepCommands takes over what a peer's connection sent since it was last asked.
func (s *session) keepCommands(peers ...*cdpproxy.Peer) {
	for _, p := range peers {
		sent, missed := p.Commands()
		entries := make([]evidence.CommandEntry, len(sent))
		for i, c := range sent {
			entries[i] = evidence.CommandEntry{At: c.At, LeaseToken: uint64(s.token), Target: c.Target, Session: c.Session, Method: c.Method}
		}
		s.commands.Record(missed, entries...)
	}
}

// sentCommands is the part with the last commands of all connections.
func (s *session) sentCommands() []byte {
	for _, c := range s.connections() {
		s.keepCommands(c.Peer())
	}
	return s.commands.Part()
}

// cookiesTimeout bounds each question for cookies.
const cookiesTimeout = 3 * time.Second
