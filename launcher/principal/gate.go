package principal

import (
	"crypto/x509"
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"leasehold/internal/privatefile"
)

// Options say whom a Gate admits, and by which proofs.
type Options struct {
	// Own is the user that the sidecar runs as. It and root are admins.
	Own uint32
	// Users are principals made by ParseUser.
	Users []Principal
	// OnlyNamedUsers says that only the users of this host in Users are identified by their
	// connections, and not also Own and root: a connection that reaches the sidecar through a
	// proxy on this host has the proxy's user.
	OnlyNamedUsers bool
	// Token is the API token of --token-file; "" if there is none.
	Token string
	// File is the path of --tokens; "" if there is none.
	File string
	Log  zerolog.Logger
}

// Gate tells who a caller is. It is safe for concurrent use.
type Gate struct {
	o     Options
	users map[uint32]Principal
	fixed known // does not depend on the file

	mu      sync.Mutex
	version privatefile.Version // of the file at the last look
	unread  bool                // the file could not be read then
	file    known
}

// NewGate reads the file of the options, if there is one.
func NewGate(o Options) (*Gate, error) {
	g := &Gate{o: o, users: map[uint32]Principal{}}
	if !o.OnlyNamedUsers {
		g.users[0] = user(0, Admin, EveryProfile)
		g.users[o.Own] = user(o.Own, Admin, EveryProfile)
	}
	for _, p := range o.Users {
		g.users[*p.UID] = p
	}
	if o.Token != "" {
		p := Principal{Name: TokenFileName, Role: Admin, Profiles: EveryProfile, Proof: "its token"}
		g.fixed.tokens = []tokenEntry{{Hash(o.Token), p}}
	}
	if o.File == "" {
		return g, nil
	}
	var err error
	if g.file, g.version, err = load(o.File); err != nil {
		return nil, err
	}
	return g, nil
}

func load(path string) (known, privatefile.Version, error) {
	b, v, err := privatefile.Read(path)
	if err != nil {
		return known{}, v, err
	}
	k, err := parse(b)
	if err != nil {
		return known{}, v, fmt.Errorf("%s: %w", path, err)
	}
	return k, v, nil
}

// current returns the principals that the file names now. It looks at every call whether the
// file has changed, so that an API token that was removed from it is refused from then on. A
// new version that cannot be used is logged, and the earlier one stays in use; what could not be read
// is read at the next call.
func (g *Gate) current() known {
	if g.o.File == "" {
		return g.fixed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v, err := privatefile.Stat(g.o.File)
	if err == nil && (v != g.version || g.unread) {
		var k known
		if k, v, err = load(g.o.File); err == nil {
			g.file, g.version, g.unread = k, v, false
			g.o.Log.Info().Str("path", g.o.File).Int("tokens", len(k.tokens)).Int("certificates", len(k.certificates)).Msg("tokens read again")
		} else if v != (privatefile.Version{}) { // it is the same at the next look, until somebody changes it
			g.version, g.unread = v, false
			g.o.Log.Error().Err(err).Str("path", g.o.File).Msg("the new version of the tokens cannot be used: those that were read last stay valid")
			err = nil
		}
	}
	if err != nil && !g.unread {
		g.unread = true
		g.o.Log.Error().Err(err).Str("path", g.o.File).Msg("tokens cannot be read: those that were read last stay valid")
	}
	return known{tokens: append(g.fixed.tokens[:len(g.fixed.tokens):len(g.fixed.tokens)], g.file.tokens...), certificates: g.file.certificates}
}

// Proofs are what a request brings to prove who sends it.
type Proofs struct {
	// Tokens are all API tokens that the request shows. If one of them is wrong, the request is
	// refused.
	Tokens []string
	// Certificate is the client's, verified by the TLS handshake; nil if it showed none.
	Certificate *x509.Certificate
	// UID is the user at the other end of the connection; NoUID says why it is not known. Both
	// nil: the connection is not from this host, or that user is not the sender.
	UID   *uint32
	NoUID error
	// Proxied says that the request came through a proxy, so that the user of the connection is
	// the proxy's.
	Proxied bool
}

// UnknownError says that it is not known who sent a request. WrongToken says that the request
// shows an API token that is nobody's.
type UnknownError struct {
	Detail     string
	WrongToken bool
}

func (e *UnknownError) Error() string { return e.Detail }

// showToken says what an unknown caller can do.
const showToken = "show a token: Authorization: Bearer TOKEN, or ?token=TOKEN"

// Identify returns the principal. An API token has precedence over a certificate, and a
// certificate over the user; a wrong one is refused, whatever else proves the caller. The error
// is an *UnknownError.
func (g *Gate) Identify(proofs Proofs) (Principal, error) {
	k := g.current()
	var shown []Principal
	for _, token := range proofs.Tokens {
		p, ok := k.ofToken(token)
		if !ok {
			return Principal{}, &UnknownError{"the token is nobody's here: was it revoked, or is it another sidecar's?", true}
		}
		if len(shown) > 0 && shown[0].Name != p.Name {
			return Principal{}, &UnknownError{fmt.Sprintf("two tokens are shown, of %s and of %s: show one", shown[0].Name, p.Name), true}
		}
		shown = append(shown, p)
	}
	uid := proofs.UID
	if proofs.Proxied {
		uid = nil
	}
	if len(shown) > 0 {
		shown[0].UID = uid
		return shown[0], nil
	}
	if proofs.Certificate != nil {
		p, err := k.ofCertificate(proofs.Certificate)
		if err != nil {
			return Principal{}, &UnknownError{err.Error(), false}
		}
		p.UID = uid
		return p, nil
	}
	return g.identifyUser(proofs, uid)
}

// Known returns the present state of a principal that an API token or a certificate identified earlier.
// known is false if there is none of that kind with that name any more.
func (g *Gate) Known(p Principal) (now Principal, known bool) {
	k := g.current()
	look := func(entry Principal) {
		if entry.Name == p.Name && entry.Proof == p.Proof {
			now, known = entry, true
			now.UID = p.UID
		}
	}
	for _, t := range k.tokens {
		look(t.p)
	}
	for _, c := range k.certificates {
		look(c.p)
	}
	return now, known
}

func (g *Gate) identifyUser(proofs Proofs, uid *uint32) (Principal, error) {
	switch {
	case proofs.Proxied:
		return Principal{}, &UnknownError{"you come through a proxy, so that the kernel knows the proxy's user and not you: " + showToken, false}
	case proofs.NoUID != nil:
		return Principal{}, &UnknownError{fmt.Sprintf("the kernel does not tell whose connection this is (%v): %s", proofs.NoUID, showToken), false}
	case uid == nil:
		return Principal{}, &UnknownError{showToken, false}
	}
	if p, ok := g.users[*uid]; ok {
		return p, nil
	}
	if g.o.OnlyNamedUsers && (*uid == 0 || *uid == g.o.Own) {
		return Principal{}, &UnknownError{fmt.Sprintf(
			"this sidecar runs with --token-file, or with an --advertise-url for others, and then the user of a connection proves nothing by itself (a proxy on this host could have the same): %s, or have it started with --allow-uid %d=admin too, if nothing of user %d passes requests of others on", showToken, *uid, *uid), false}
	}
	return Principal{}, &UnknownError{fmt.Sprintf(
		"your connection is that of user %d, to whom nobody gave a role: have the sidecar started with --allow-uid %d=worker:PATTERN (or another role), or %s", *uid, *uid, showToken), false}
}

// ServesUser tells whether a user of this host may use a session's own port: the user whose
// process opened the session may, and so may admins of its profile.
func (g *Gate) ServesUser(uid uint32, opener *uint32, profileID string) bool {
	return opener != nil && *opener == uid || uid == 0 || uid == g.o.Own || g.users[uid].May(UseAny, profileID)
}
