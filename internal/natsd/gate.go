package natsd

import (
	"net"
	"net/netip"
	"os"
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
}

func newGate(o Options) *gate {
	// A refused client may try again without end.
	log := o.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	return &gate{uid: uint32(os.Geteuid()), authenticate: o.Authenticate, users: o.Admit, log: log}
}

// Check implements server.Authentication. The server calls it for each connection, with
// what the client has shown.
func (g *gate) Check(c server.ClientAuthentication) bool {
	remote, ok := c.RemoteAddress().(*net.TCPAddr)
	if !ok {
		// A pipe in memory, which only this process can make.
		return g.admit(c, "launcher", launchersAccount, nil)
	}
	name, why := g.subscriber(remote.AddrPort(), c.GetOpts())
	if why != "" {
		g.log.Warn().Str("peer", remote.String()).Str("reason", why).Msg("a subscriber was refused")
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

// subscriber returns the name of the subscriber at the address, or why it is refused. If the
// client shows a token, that has to be right, even if the client would be let in without one.
func (g *gate) subscriber(remote netip.AddrPort, shown *server.ClientOpts) (name, why string) {
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
	// The kernel is asked for one socket by both of its addresses. A server that listens
	// on all addresses does not know which of them its peer connected to.
	own, ok := g.srv.Addr().(*net.TCPAddr)
	if !ok || own.IP.IsUnspecified() {
		return "", "it shows no token"
	}
	uid, err := peer.UIDAt(remote, own.AddrPort())
	switch {
	case err != nil:
		return "", "it shows no token, and its user is not known: " + err.Error()
	case uid == g.uid || uid == 0 || g.users != nil && g.users(uid):
		return peer.Name(uid), ""
	}
	return "", "it shows no token, and is " + peer.Name(uid) + ", not the sidecar's user, root, or one that --allow-uid lets read every profile"
}
