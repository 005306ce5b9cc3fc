package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"leasehold/launcher/api"
)

// guard refuses what a web page in somebody's browser could have sent: a name
// that was made to resolve to this host, another origin's script, form or image.
func (c *call) guard() error {
	if !c.hostAllowed(c.r.Host) {
		return api.Refuse(api.CodeForbidden, "host %q is not this server's: want an IP address, localhost, or the advertised URL's host", clip(c.r.Host))
	}
	for _, origin := range c.r.Header.Values("Origin") {
		if !slices.Contains(c.ownOrigins(), canonicalOrigin(origin)) {
			return api.Refuse(api.CodeForbidden, "origin %q is not this server's own", clip(origin))
		}
	}
	// Only browsers send it, and pages cannot change it. Another port of the
	// same host is "same-site".
	switch site := c.r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return nil
	default:
		return api.Refuse(api.CodeForbidden, "the request comes from a page of another origin (%s): open the address itself", clip(site))
	}
}

// maxShown bounds what is repeated of a caller's text, in bytes: the longest
// profile id below the longest path.
const maxShown = 200

func clip(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "..."
	}
	return s
}

// hostAllowed tells whether a Host header names this server without a lookup
// that somebody else answers.
func (s *server) hostAllowed(hostport string) bool {
	u, err := url.Parse("http://" + hostport)
	if err != nil || u.Host != hostport || u.Hostname() == "" || u.User != nil {
		return false
	}
	name := strings.ToLower(u.Hostname())
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(s.hosts, name)
}

// ownOrigins are the origins of pages that this server served: as it is reached
// directly, and as it is reached from outside.
func (c *call) ownOrigins() []string {
	direct := url.URL{Scheme: "http", Host: c.r.Host}
	if c.overTLS() {
		direct.Scheme = "https"
	}
	outside := c.base()
	return []string{canonicalOrigin(direct.String()), canonicalOrigin(outside.Scheme + "://" + outside.Host)}
}

// canonicalOrigin is scheme://host:port in lower case; of a text that is no
// origin, something that equals none.
func canonicalOrigin(origin string) string {
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return "not an origin: " + origin
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	case u.Scheme == "https":
		port = "443"
	}
	return u.Scheme + "://" + u.Hostname() + ":" + port
}

// authenticate checks every token that is shown. They may be several; one that
// is wrong is wrong.
func (c *call) authenticate() error {
	if c.o.Token == "" || c.route.access == needsNothing {
		return nil
	}
	unauthenticated := func(challenge, format string) error {
		c.w.Header().Set("WWW-Authenticate", challenge)
		return api.Refuse(api.CodeUnauthenticated, "%s", format)
	}
	want := sha256.Sum256([]byte(c.o.Token))
	for _, shown := range c.shown {
		got := sha256.Sum256([]byte(shown))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return unauthenticated(`Bearer realm="leasehold", error="invalid_token"`, "the token is not this server's")
		}
	}
	if len(c.shown) == 0 && c.route.access != needsCapability {
		return unauthenticated(`Bearer realm="leasehold"`, "show the token: Authorization: Bearer TOKEN, or ?token=TOKEN")
	}
	return nil
}

// bearerTokens are the tokens of the Authorization headers. Another scheme is
// for somebody else, such as a proxy in front.
func bearerTokens(h http.Header) []string {
	var tokens []string
	for _, v := range h.Values("Authorization") {
		if scheme, token, ok := strings.Cut(strings.TrimSpace(v), " "); ok && strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	return tokens
}
