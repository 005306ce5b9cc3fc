package httpapi

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"leasehold/internal/peer"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// access says which callers a route serves.
type access struct {
	proof proof
	// check refuses a known caller who lacks a right; nil refuses nobody.
	check func(*call) error
}

// proof is how a caller of a route proves who they are.
type proof int

const (
	// byPrincipal: the caller is identified by an API token, a certificate or the user of the
	// connection.
	byPrincipal proof = iota + 1
	// byCapabilityOnly: the secret is in the path, and the handler looks it up. If an API token
	// is shown too, it has to be right.
	byCapabilityOnly
	// byUser: the kernel tells the user of the connection, and check decides whether that user
	// is served. Nothing else is asked for.
	byUser
	// byNothing: everybody is served.
	byNothing
)

var (
	forCapability = access{proof: byCapabilityOnly}
	forAnybody    = access{proof: byNothing}
	// toUse is for those who may write to the session in the path.
	toUse = access{byPrincipal, func(c *call) error { return c.toReach(c.param("session"), principal.UseAny) }}
	// toSee is for those who may read the session in the path.
	toSee = access{byPrincipal, func(c *call) error { return c.toReach(c.param("session"), principal.Read) }}
	// toTakeOver is for those who may take over the session in the path, whoever opened it.
	toTakeOver = access{byPrincipal, (*call).toTakeOver}
	// onEvidence is for those who may read the bundle in the path.
	onEvidence = access{byPrincipal, (*call).toReadEvidence}
	// toSeeProfile is for those who may read the record of the profile in the path, because of
	// their right, or because they have a session on it.
	toSeeProfile = access{byPrincipal, func(c *call) error {
		profile := c.param("profile")
		if c.who.May(principal.Read, profile) || slices.Contains(c.ownProfiles(), profile) {
			return nil
		}
		return c.forbidden(principal.Read, profile)
	}}
)

func onProfile(right principal.Right) access {
	return access{byPrincipal, func(c *call) error {
		if profile := c.param("profile"); !c.who.May(right, profile) {
			return c.forbidden(right, profile)
		}
		return nil
	}}
}

// forRole is for those who have one of the rights on any profile. An answer that is not about
// profiles is served completely; otherwise the handler checks each profile.
func forRole(rights ...principal.Right) access {
	return access{byPrincipal, func(c *call) error {
		if !slices.ContainsFunc(rights, c.who.Role.Has) {
			return c.forbidden(rights[0], "")
		}
		return nil
	}}
}

// byPortUser is for the user who opened the session of a dedicated port, and for admins of its
// profile.
func byPortUser(sessionID string) access {
	return access{byUser, func(c *call) error {
		uid, noUID := userOf(c.r)
		if c.proxied() {
			uid, noUID = nil, errors.New("you come through a proxy, whose user it is")
		}
		if uid == nil || c.o.Gate == nil {
			return c.unknown(&principal.UnknownError{Detail: "this port serves the user of this host who opened its session, and the kernel does not say that you are: " + textOf(noUID)})
		}
		s, err := c.svc.Session(sessionID)
		if err != nil {
			return err
		}
		if !c.o.Gate.ServesUser(*uid, s.OpenerUID, s.ProfileID) {
			p := api.Refuse(api.CodeForbidden, "this port is that of the user who opened session %s, and you are %s: use a session of your own", s.SessionID, principal.UserName(*uid))
			c.who = principal.Principal{Name: principal.UserName(*uid)}
			c.denials.note(c, p)
			return p
		}
		c.onPort = s
		return nil
	}}
}

func textOf(err error) string {
	if err == nil {
		return "you are not on this host"
	}
	return err.Error()
}

// toReach refuses a caller who may not reach a session: it is not their own, and they do not
// have the right for the sessions of others.
func (c *call) toReach(sessionID string, others principal.Right) error {
	if c.who.Role.Has(others) && slices.Equal(c.who.Profiles, principal.EveryProfile) {
		return nil
	}
	s, err := c.svc.Session(sessionID)
	if err != nil {
		return err
	}
	if c.who.May(others, s.ProfileID) || c.owns(s) {
		return nil
	}
	if c.who.Role.Has(principal.Use) && c.who.Profiles.Match(s.ProfileID) {
		p := api.Refuse(api.CodeForbidden, "session %s is another principal's, and you are %s: this needs one of the roles %s", s.SessionID, c.who, rolesWith(others))
		c.denials.note(c, p)
		return p
	}
	return c.forbidden(others, s.ProfileID)
}

// toTakeOver refuses a caller who may not take over sessions of the profile. That the session
// is the caller's own makes no difference.
func (c *call) toTakeOver() error {
	if !c.who.Role.Has(principal.TakeOver) {
		return c.forbidden(principal.TakeOver, "")
	}
	s, err := c.svc.Session(c.param("session"))
	if err == nil && !c.who.May(principal.TakeOver, s.ProfileID) {
		err = c.forbidden(principal.TakeOver, s.ProfileID)
	}
	return err
}

func rolesWith(right principal.Right) string {
	var names []string
	for _, r := range principal.With(right) {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// owns tells whether the caller opened a session, and may use it.
func (c *call) owns(s api.Session) bool {
	return c.who.Is(s.Principal) && c.who.May(principal.Use, s.ProfileID)
}

// sees tells whether a list shows a session to the caller.
func (c *call) sees(s api.Session) bool { return c.who.May(principal.Read, s.ProfileID) || c.owns(s) }

// ownProfiles are the profiles on which the caller has a living session.
func (c *call) ownProfiles() []string {
	var own []string
	if c.who.Role.Has(principal.Use) {
		for _, s := range c.svc.Sessions() {
			if c.owns(s) {
				own = append(own, s.ProfileID)
			}
		}
	}
	return own
}

// toReadEvidence refuses a caller who may not read evidence of the bundle's profile.
func (c *call) toReadEvidence() error {
	switch {
	case !c.who.Role.Has(principal.Evidence):
		return c.forbidden(principal.Evidence, "")
	case slices.Equal(c.who.Profiles, principal.EveryProfile):
		return nil
	}
	raw, err := c.svc.EvidenceManifest(c.r.Context(), c.param("evidence"))
	if err != nil {
		return err
	}
	var about struct {
		ProfileID string `json:"profile_id"`
	}
	if err := json.Unmarshal(raw, &about); err != nil || !c.who.May(principal.Evidence, about.ProfileID) {
		return c.forbidden(principal.Evidence, about.ProfileID)
	}
	return nil
}

// toOpen refuses a caller who may not open the manifest's profile, or would create it without
// the right to. A caller whose first session creates the profile needs the right to make
// profiles.
//
// For a manifest that names no profile, the service considers only profiles that the caller may
// open.
func (c *call) toOpen(m *api.Manifest) error {
	if err := c.toOpenProfile(m.ProfileID); err != nil {
		return err
	}
	if most := c.who.TopPriority(); m.Priority > most && m.Priority <= lease.MaxPriority { // a priority above the maximum is refused elsewhere
		p := api.Refuse(api.CodeForbidden, "priority %d: you are %s, and may ask for %d at most: who runs this sidecar gives more by max_priority in the file of --tokens", m.Priority, c.who, most)
		p.Field = "priority"
		c.denials.note(c, p)
		return p
	}
	if m.Ephemeral && !m.WantsReadOnly() && !c.mayOne(principal.Manage, m.ProfileID) {
		p := api.Refuse(api.CodeForbidden, "read_only: you are %s, and an ephemeral session whose pages may send what they want is not fenced by the profile's lease: this needs one of the roles %s", c.who, rolesWith(principal.Manage))
		p.Field = "read_only"
		c.denials.note(c, p)
		return p
	}
	if !m.Create || c.who.May(principal.Manage, m.ProfileID) {
		return nil
	}
	var p *api.Problem
	_, err := c.svc.Profile(c.r.Context(), m.ProfileID)
	if errors.As(err, &p) && p.Code == api.CodeUnknownProfile {
		return c.forbidden(principal.Manage, m.ProfileID)
	}
	m.Create = false
	return err
}

// toOpenProfile refuses a caller who may not open the profile or, if none is named, any
// profile.
func (c *call) toOpenProfile(profile string) error {
	if c.mayOne(principal.Open, profile) {
		return nil
	}
	return c.forbidden(principal.Open, profile)
}

// mayOne tells whether the caller may do something to the profile or, if none is named, to any
// profile.
func (c *call) mayOne(what principal.Right, profile string) bool {
	if profile == "" {
		return c.who.Role.Has(what)
	}
	return c.who.May(what, profile)
}

// identify finds out who the caller is, as far as the route needs that.
func (c *call) identify() error {
	kind := c.route.access.proof
	if kind == byNothing || kind == byUser || kind == byCapabilityOnly && len(c.apiTokens) == 0 {
		return nil
	}
	if c.o.Gate == nil {
		return c.unknown(&principal.UnknownError{Detail: "nobody is known here"})
	}
	uid, noUID := userOf(c.r)
	who, err := c.o.Gate.Identify(principal.Proofs{
		Tokens: c.apiTokens, Certificate: certificateOf(c.r), UID: uid, NoUID: noUID, Proxied: c.proxied(),
	})
	if unknown, ok := errors.AsType[*principal.UnknownError](err); ok {
		return c.unknown(unknown)
	}
	if err != nil {
		return err
	}
	c.take(who)
	return nil
}

func (c *call) take(who principal.Principal) {
	c.who = who
	c.r = c.r.WithContext(principal.In(c.r.Context(), who))
}

// unknown is the refusal of a caller who is not known.
func (c *call) unknown(why *principal.UnknownError) error {
	challenge := `Bearer realm="leasehold"`
	if why.WrongToken {
		challenge += `, error="invalid_token"`
	}
	c.w.Header().Set("WWW-Authenticate", challenge)
	p := api.Refuse(api.CodeUnauthenticated, "%s", why.Detail)
	c.denials.note(c, p)
	return p
}

// forbidden is the refusal of a caller without a right on a profile.
func (c *call) forbidden(right principal.Right, profile string) error {
	p := api.Refuse(api.CodeForbidden, "%s", c.who.Refusal(right, clip(profile))).With("principal", c.who.Name).With("role", c.who.Role)
	c.denials.note(c, p)
	return p
}

// user is what the kernel said about the peer of a connection when it was accepted.
type user struct {
	uid *uint32
	err error
}

type userKey struct{}

// ConnContext asks the kernel once which user is at the other end of a connection. It is meant
// for http.Server.ConnContext: without it nobody can be identified by their user.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = over.NetConn()
	}
	uid, err := peer.UID(conn)
	var u user
	switch {
	case err == nil:
		u.uid = &uid
	case !errors.Is(err, peer.ErrNotLocal):
		u.err = err
	}
	return context.WithValue(ctx, userKey{}, u)
}

// userOf is the user of the request's connection; nil if the peer is not on this host. The
// error says why it is not known.
func userOf(r *http.Request) (*uint32, error) {
	u, ok := r.Context().Value(userKey{}).(user)
	if !ok {
		return nil, errors.New("it was not asked")
	}
	return u.uid, u.err
}

// certificateOf is the client's certificate, which the handshake has verified; nil if there is
// none.
func certificateOf(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// proxied tells whether the request came through a proxy, as far as can be seen: by the headers
// that proxies add. No supported client sends one of them by itself.
func (c *call) proxied() bool {
	for name := range c.r.Header {
		if ofProxy(name) {
			return true
		}
	}
	return c.fromTrustedProxy()
}

// ofProxy tells whether a header is one that proxies add.
func ofProxy(name string) bool {
	return name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-")
}

// fromTrustedProxy tells whether the connection comes from a proxy that the operator named.
func (c *call) fromTrustedProxy() bool {
	addr, err := netip.ParseAddrPort(c.r.RemoteAddr)
	return err == nil && slices.ContainsFunc(c.o.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr.Addr().Unmap()) })
}
