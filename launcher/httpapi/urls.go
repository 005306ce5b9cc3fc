package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"leasehold/launcher/api"
)

// splitConcatenated repairs the requests of clients that append a path to a base URL as if it
// had no query: /profiles/p?task=t/json/version. It moves the appended text from the value of
// the last parameter to the path.
func splitConcatenated(segments []string, rawQuery string) ([]string, string) {
	if len(segments) != 2 || (segments[0] != "profiles" && segments[0] != "s") {
		return segments, rawQuery
	}
	for _, name := range []string{"version", "list", "protocol"} {
		if before, ok := strings.CutSuffix(strings.TrimRight(rawQuery, "/"), "/json/"+name); ok {
			return append(slices.Clone(segments), "json", name), strings.TrimRight(before, "/")
		}
	}
	return segments, rawQuery
}

// parseQuery reads the query in the form that the route has, and takes the API token out of it.
func (c *call) parseQuery(raw string) {
	if c.route.queryIsURL {
		c.query, c.openURL = splitURLQuery(raw)
	} else {
		c.query, c.queryErr = url.ParseQuery(raw)
	}
	c.apiTokens = append(c.query["token"], bearerTokens(c.r.Header)...)
	c.tokenInQuery = len(c.query["token"]) > 0
	delete(c.query, "token")
}

// splitURLQuery reads the query of /json/new. Our own parameters come first; from the first
// other one on, the rest is the URL to open, with its own query.
func splitURLQuery(raw string) (url.Values, string) {
	own := url.Values{}
	for raw != "" {
		pair, rest, _ := strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "worker", "worker_id", "task", "task_id", "token", "ephemeral":
			decoded, err := url.QueryUnescape(value)
			if err != nil {
				decoded = value
			}
			own.Add(name, decoded)
			raw = rest
		case "url":
			if decoded, err := url.QueryUnescape(value); err == nil && rest == "" {
				return own, decoded
			}
			return own, strings.TrimPrefix(raw, "url=")
		default:
			if decoded, err := url.PathUnescape(raw); err == nil {
				raw = decoded
			}
			return own, raw
		}
	}
	return own, ""
}

// unspecified reports whether a host is an address such as 0.0.0.0, to which nobody can
// connect.
func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsUnspecified()
}

// overTLS reports whether the request came in over TLS.
func (c *call) overTLS() bool { return c.o.TLS || c.r.TLS != nil }

// base is the http or https URL under which the caller reaches this server: the advertised one,
// or else the one that the request itself implies.
func (c *call) base() *url.URL {
	if c.advertise != nil {
		u := *c.advertise
		return &u
	}
	u := &url.URL{Scheme: "http", Host: c.r.Host}
	if c.overTLS() {
		u.Scheme = "https"
	}
	forwarded := false
	if c.fromTrustedProxy() {
		forwarded = c.forwardedTo(u)
	}
	local := localAddr(c.r)
	host, port := u.Hostname(), u.Port()
	if port == "" && !forwarded && local != nil && local.Port != 80 && local.Port != 443 {
		// chromedriver sends the host without the port, whichever port it is.
		port = strconv.Itoa(local.Port)
	}
	if port != "" {
		u.Host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	} else {
		u.Host = host
	}
	return u
}

// forwardedTo changes a URL to the one that, according to the proxy in front, the client asked
// for, and tells whether the proxy said anything.
func (c *call) forwardedTo(u *url.URL) (forwarded bool) {
	switch strings.ToLower(firstOf(c.r.Header.Get("X-Forwarded-Proto"))) {
	case "https", "wss":
		u.Scheme, forwarded = "https", true
	case "http", "ws":
		forwarded = true
	}
	// Only a name that is allowed in the Host header is repeated in an answer.
	if host := firstOf(c.r.Header.Get("X-Forwarded-Host")); host != "" && c.hostAllowed(host) {
		u.Host, forwarded = host, true
	}
	return forwarded
}

func firstOf(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(first)
}

func localAddr(r *http.Request) *net.TCPAddr {
	a, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return a
}

// websocketURL makes the ws or wss URL of a path on this server from its segments.
func (c *call) websocketURL(query url.Values, segments ...string) string {
	u := c.base()
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
	}
	u = u.JoinPath(escaped...)
	u.RawQuery = query.Encode()
	return u.String()
}

// redirectTo makes the Location for an upgrade that another launcher has to answer. location is
// that launcher's base URL, or the whole websocket URL; path and query are those of the
// request.
func redirectTo(location, path, query string) (string, error) {
	u, err := url.Parse(location)
	if err != nil {
		return "", api.Invalid("location", "%v", err)
	}
	switch u.Scheme {
	case "http", "ws":
		u.Scheme = "ws"
	case "https", "wss":
		u.Scheme = "wss"
	default:
		return "", api.Invalid("location", "want an http or ws URL")
	}
	if u.Host == "" {
		return "", api.Invalid("location", "want a URL with a host")
	}
	if !strings.Contains(u.Path, "/devtools/") {
		u = u.JoinPath(path)
	}
	if u.RawQuery == "" {
		u.RawQuery = query
	}
	return u.String(), nil
}
