package httpapi

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"leasehold/launcher/api"
)

// guard refuses requests that a web page in somebody's browser could have sent: through a host
// name that was made to resolve to this host, or from a script, form or image of another
// origin.
func (c *call) guard() error {
	if !c.hostAllowed(c.r.Host) {
		return api.Refuse(api.CodeForbidden, "host %q is not this server's: want an IP address, localhost, or the advertised URL's host", clip(c.r.Host))
	}
	for _, origin := range c.r.Header.Values("Origin") {
		if origin == devtoolsOrigin {
			continue
		}
		if !slices.Contains(c.ownOrigins(), canonicalOrigin(origin)) {
			return api.Refuse(api.CodeForbidden, "origin %q is not this server's own", clip(origin))
		}
	}
	// Only browsers send this header, and pages cannot change it. Another port of the same host
	// counts as "same-site".
	switch site := c.r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return nil
	case "same-site", "cross-site":
		if c.route.fromAnywhere && c.r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			return nil
		}
		fallthrough
	default:
		return api.Refuse(api.CodeForbidden, "the request comes from a page of another origin (%s): open the address itself", clip(site))
	}
}

// devtoolsOrigin is the origin of the DevTools that are built into Chrome. No page has it.
const devtoolsOrigin = "devtools://devtools"

// maxRepeated bounds, in bytes, how much of a caller's text is repeated in answers and in the
// log. The longest profile id with a path in front of it fits.
const maxRepeated = 200

// clip cuts a caller's text for an answer or the log.
func clip(s string) string {
	if len(s) > maxRepeated {
		return s[:maxRepeated] + "..."
	}
	return s
}

// hostAllowed reports whether a Host header names this server. It does no DNS lookup, since
// somebody else could answer that.
func (s *server) hostAllowed(hostport string) bool {
	u, err := url.Parse("http://" + hostport)
	if err != nil || u.Host != hostport || u.Hostname() == "" || u.User != nil {
		return false
	}
	name := strings.ToLower(u.Hostname())
	if _, err := netip.ParseAddr(name); err == nil {
		// 0.0.0.0 reaches this host, and with a page's request to it a browser sends neither Origin
		// nor Sec-Fetch-Site.
		return !unspecified(name)
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(s.hosts, name)
}

// ownOrigins are the origins of pages that this server sent: one for browsers that
// reach it directly, one for those that reach it from outside.
func (c *call) ownOrigins() []string {
	direct := url.URL{Scheme: "http", Host: c.r.Host}
	if c.overTLS() {
		direct.Scheme = "https"
	}
	outside := c.base()
	return []string{canonicalOrigin(direct.String()), canonicalOrigin(outside.Scheme + "://" + outside.Host)}
}

// canonicalOrigin returns scheme://host:port in lower case. For a text that is not an origin it
// returns something that equals no origin.
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

// bearerTokens returns the bearer tokens of the Authorization headers. Headers with
// another scheme are meant for somebody else, such as a proxy in front.
func bearerTokens(h http.Header) []string {
	var tokens []string
	for _, v := range h.Values("Authorization") {
		if scheme, token, ok := strings.Cut(strings.TrimSpace(v), " "); ok && strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	return tokens
}
