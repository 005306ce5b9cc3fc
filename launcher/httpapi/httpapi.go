// Package httpapi serves the launcher's Service over HTTP: the CDP websocket in its one-shot
// and its capability form, Chrome's own /json endpoints below both, the REST interface under
// /v1 with its OpenAPI description, and the probes.
//
// Every request passes the same checks first: Host, Origin and Sec-Fetch-Site, then who asks
// (or the capability in the path), then whether they may. Every refusal is an
// application/problem+json document; the answer to a websocket upgrade has the reason in the
// HTTP status line, too.
//
// The package does not frame websocket messages: after the 101 the socket belongs to an
// api.Connection. That needs HTTP/1.1, so a TLS server must not negotiate "h2".
package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/id"
	"leasehold/internal/tracing"
	"leasehold/launcher/agents"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// Options say how the service is reached, and who may use it.
type Options struct {
	// ListenAddr is the host:port that is served. Requests may have its host in the Host
	// header.
	ListenAddr string
	// AdvertiseURL is the http or https URL, with or without a path, under which other hosts
	// reach this server. If it is empty, the URLs in answers repeat the request's Host.
	// Dedicated ignores it.
	AdvertiseURL string
	// Gate tells who the caller is. Without a gate nobody is known.
	Gate *principal.Gate
	// TrustedProxies are the peers whose X-Forwarded-Proto and X-Forwarded-Host count.
	// Dedicated ignores them.
	TrustedProxies []netip.Prefix
	// Referrals send callers with an API token on to a profile's home; nil if there are no
	// other launchers. Dedicated ignores them.
	Referrals *Referrals
	// Tracer continues the trace that a request for a lease names; nil: no traces.
	Tracer *tracing.Tracer
	// TLS says that the listener speaks TLS.
	TLS bool
	Log zerolog.Logger
	// Metrics answers /metrics, and Console answers / and everything below /console (see
	// consoleRoutes). If one is nil, the answer is not_found.
	Metrics http.Handler
	Console http.Handler
	// Refused answers a person who is refused a page of the console, in a browser; nil: as programs
	// are answered.
	Refused func(w http.ResponseWriter, r *http.Request, p *api.Problem)
	// Agents answers /mcp. If it is nil, the answer is not_found.
	Agents *agents.Host
}

// New serves the whole HTTP interface of a launcher.
func New(svc api.Service, o Options) http.Handler {
	return newServer(svc, o, publicRoutes())
}

// Dedicated serves one session, with Chrome's own URL layout at the root, on a port of its own.
// Its clients cannot show any credential, so the port has to be on loopback, where the kernel
// knows their users: it serves the user who opened the session, and admins. The session is
// looked up at each request; it need not exist before.
func Dedicated(svc api.Service, sessionID string, o Options) http.Handler {
	o.AdvertiseURL, o.TrustedProxies, o.Referrals = "", nil, nil
	return newServer(svc, o, dedicatedRoutes(sessionID))
}

type server struct {
	svc       api.Service
	o         Options
	advertise *url.URL // Options.AdvertiseURL; nil if there is none
	hosts     []string // names allowed in the Host header, besides localhost and addresses
	mux       *http.ServeMux
	tickets   *tickets
	links     *signInLinks
	denials   *denials
	within    time.Duration // sendTimeout
}

func newServer(svc api.Service, o Options, routes []route) *server {
	s := &server{svc: svc, o: o, mux: newMux(routes), tickets: newTickets(maxTickets), links: newSignInLinks(), denials: &denials{log: o.Log, most: maxDenials}, within: sendTimeout}
	if host, _, err := net.SplitHostPort(o.ListenAddr); err == nil && host != "" {
		s.hosts = append(s.hosts, strings.ToLower(host))
	}
	if o.AdvertiseURL != "" {
		u, err := url.Parse(o.AdvertiseURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || unspecified(u.Hostname()) {
			o.Log.Error().Str("advertise_url", o.AdvertiseURL).Msg("advertised URL ignored: want one such as https://browsers.example.com")
			return s
		}
		s.advertise = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
		s.hosts = append(s.hosts, strings.ToLower(u.Hostname()))
	}
	return s
}

// call is one request from its arrival to its answer.
type call struct {
	*server
	w *answer
	r *http.Request
	// segments is the decoded path that is served; rawQuery is its query.
	segments []string
	rawQuery string
	// routed is the request as the multiplexer matched it. It has the values of the pattern's
	// names, but not the client's URL.
	routed *http.Request
	// route is the route for the path and the method; allow lists the methods of the path.
	route route
	allow []string
	// query is the parsed query without the API token; queryErr says that it is malformed.
	query    url.Values
	queryErr error
	// openURL is the URL in the query, for routes that take one.
	openURL string
	// apiTokens are the tokens that the caller shows; those in the query come first.
	apiTokens    []string
	tokenInQuery bool
	// who is the caller, once that is known.
	who principal.Principal
	// ticket is the ticket in the path, if it is the caller's proof.
	ticket *ticket
	// link is the sign-in link whose cookie the caller shows.
	link signInLink
	// onPort is the session of the dedicated port on which the request came in.
	onPort  api.Session
	upgrade bool
	begun   time.Time
}

// param returns the value in the path for a name in the route's pattern, or "".
func (c *call) param(name string) string {
	if c.routed == nil {
		return ""
	}
	return c.routed.PathValue(name)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, w: &answer{ResponseWriter: w, within: s.within}, r: r, segments: segmentsOf(r.URL), rawQuery: r.URL.RawQuery, upgrade: wantsUpgrade(r), begun: time.Now()}
	defer c.log()
	c.w.until(time.Time{}) // that of the connection's last request may have passed
	defer c.w.bound()      // for what the server sends when this has returned

	h := c.w.Header()
	h.Set("Cache-Control", "no-store") // URLs here carry secrets
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")

	if !c.upgrade {
		c.segments, c.rawQuery = splitConcatenated(c.segments, c.rawQuery)
	}
	c.dispatch()
}

// handle checks and answers a request whose route was found. A route without a handler stands
// for a method that the path does not have; if allow is empty too, the path does not exist.
func (c *call) handle(rt route, allow []string) {
	c.route, c.allow = rt, allow
	c.parseQuery(c.rawQuery)
	err := c.guard()
	if err == nil {
		err = c.admit()
	}
	if err == nil {
		if c.route.websocket {
			c.w.beforeServe = c.log
		}
		err = c.route.serve(c)
	}
	if err != nil {
		c.refuse(err)
	}
}

// admit checks the credentials, and that the request fits its route.
func (c *call) admit() error {
	if err := c.identify(); err != nil {
		return err
	}
	switch {
	case len(c.allow) == 0:
		return c.unknownPath()
	case c.route.serve == nil:
		methods := strings.Join(c.allow, ", ")
		c.w.Header().Set("Allow", methods)
		p := api.Refuse(api.CodeInvalidRequest, "this path takes %s, not %s", methods, c.r.Method)
		p.Status = http.StatusMethodNotAllowed
		return p
	case c.upgrade && !c.route.websocket:
		return api.Refuse(api.CodeNotFound, "no websocket is served here: want /devtools/browser/{profile}")
	case c.route.websocket:
		if err := c.checkHandshake(); err != nil {
			return err
		}
	}
	if c.route.access.check == nil {
		return nil
	}
	return c.route.access.check(c)
}

func (c *call) unknownPath() error {
	detail := "there is nothing at this path: /openapi.json lists what there is"
	if len(c.segments) > 0 && c.segments[0] == "json" {
		detail = "the browser of which profile? Give the client http://HOST/profiles/{profile}?worker=W&task=T or " +
			"ws://HOST/devtools/browser/{profile}?worker=W&task=T; a client that keeps host and port only needs a dedicated_port"
	}
	return api.Refuse(api.CodeNotFound, "%s", detail)
}

// log writes one line about the request and its answer, at the first call.
func (c *call) log() {
	if c.w.logged {
		return
	}
	c.w.logged = true
	path := slices.Clone(c.segments)
	for i := 1; i < len(path); i++ {
		if c.segments[i-1] == "s" {
			path[i] = id.Mask(path[i])
		}
	}
	e := c.o.Log.Debug().Str("method", clip(c.r.Method)).Str("path", clip("/"+strings.Join(path, "/"))).Int("status", c.w.code()).
		Str("peer", c.r.RemoteAddr).Dur("took", time.Since(c.begun))
	if c.who.Name != "" {
		e = e.Str("principal", c.who.Name)
	}
	if profile := c.param("profile"); profile != "" {
		e = e.Str("profile", clip(profile))
	}
	e.Msg("request")
}
