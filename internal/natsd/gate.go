package natsd

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"leasehold/internal/peer"
)

var _ server.Authentication = (*gate)(nil)

// gate decides who a connection to the embedded server is. A connection inside this process is
// the launcher. Everybody else is a subscriber, and is identified by the user of the socket,
// whom the kernel knows, or by an API token.
type gate struct {
	srv *server.Server
	// uid is the user of this process.
	uid          uint32
	authenticate func(token string) (name string, ok bool)
	users        func(uid uint32) bool
	log          zerolog.Logger

	mu sync.Mutex
	// callers are those whom the server has greeted, by the nonce of the greeting, until it asks.
	callers map[string]caller
}

func newGate(o Options) *gate {
	// A refused client may try again without end.
	log := o.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	return &gate{uid: uint32(os.Geteuid()), authenticate: o.Authenticate, users: o.Admit, log: log, callers: map[string]caller{}}
}

func (g *gate) expect(nonce string, who caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers[nonce] = who
}

// take returns who has been greeted with a nonce, once.
func (g *gate) take(nonce string) (caller, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who, ok := g.callers[nonce]
	delete(g.callers, nonce)
	return who, ok
}

// Check implements server.Authentication. The server calls it for each connection, with
// what the client has shown.
func (g *gate) Check(c server.ClientAuthentication) bool {
	who, ok := g.take(string(c.GetNonce()))
	switch {
	case !ok:
		g.log.Error().Msg("a connection to the embedded NATS server is nobody's")
		return false
	case who.launcher:
		return g.admit(c, "launcher", launchersAccount, nil)
	}
	name, why := g.subscriber(who, c.GetOpts())
	if why != "" {
		g.log.Warn().Str("peer", who.addr.String()).Str("reason", why).Msg("a subscriber was refused")
		return false
	}
	return g.admit(c, name, subscribersAccount, readOnly())
}

func (g *gate) admit(c server.ClientAuthentication, name, account string, p *server.Permissions) bool {
	a, err := g.srv.LookupAccount(account)
	if err != nil {
		g.log.Error().Err(err).Str("account", account).Msg("the NATS account is missing")
		return false
	}
	c.RegisterUser(&server.User{Username: name, Account: a, Permissions: p})
	return true
}

// subscriber returns the name of a subscriber, or why it is refused. If the
// client shows a token, that has to be right, even if the client would be let in without one.
func (g *gate) subscriber(who caller, shown *server.ClientOpts) (name, why string) {
	switch {
	case shown.Token != "" && g.authenticate == nil:
		return "", "it shows a token, and none is configured (--tokens, --token-file)"
	case shown.Token != "":
		if name, ok := g.authenticate(shown.Token); ok {
			return name, ""
		}
		return "", "it shows a token that is not known"
	case shown.Username != "" || shown.Password != "" || shown.Nkey != "" || shown.JWT != "":
		return "", "it shows a password or a key, and only tokens are taken"
	}
	uid := who.socket.UID
	switch {
	case errors.Is(who.unknown, peer.ErrNotLocal):
		return "", "it shows no token"
	case who.unknown != nil:
		return "", "it shows no token, and its user is not known: " + who.unknown.Error()
	case uid == g.uid || uid == 0 || g.users != nil && g.users(uid):
		return peer.Name(uid), ""
	}
	return "", "it shows no token, and is " + peer.Name(uid) + ", not the sidecar's user, root, or one that --allow-uid lets read every profile"
}
