// Package httpapi carries the launcher's Service over HTTP: the CDP websocket in
// its one-shot and its capability form, Chrome's own /json endpoints below both,
// the REST surface under /v1, its OpenAPI description, and the probes.
//
// Every request passes the same checks first: Host, Origin and Sec-Fetch-Site, then who
// asks (or the capability in the path), then whether they may. Every refusal is an
// application/problem+json document; at a websocket upgrade its reason also stands
// in the HTTP status line.
//
// The package does not frame websocket messages: after the 101 the socket belongs to
// an api.Connection. That needs HTTP/1.1, so where TLS is served "h2" must not be
// negotiated.
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
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// Options say how a surface is reached and who may use it.
type Options struct {
	// ListenAddr is the host:port that is served. Requests may name its host in the
	// Host header.
	ListenAddr string
	// AdvertiseURL is the http or https URL, with or without a path, under which
	// others reach this surface. If it is empty, the URLs in answers repeat the
	// request's Host. Dedicated ignores it.
	AdvertiseURL string
	// Gate tells who asks. Without one nobody is known.
	Gate *principal.Gate
	// TrustedProxies are the peers whose X-Forwarded-Proto and X-Forwarded-Host count.
	// Dedicated ignores them.
	TrustedProxies []netip.Prefix
	// Referrals are how callers with an API token are sent on to a profile's home; nil where
	// no other launcher is. Dedicated ignores them.
	Referrals *Referrals
	// TLS says that the listener speaks TLS.
	TLS bool
	Log zerolog.Logger
	// Metrics answers /metrics, and Console / and what is below /console (see
	// consoleRoutes). Where one is nil, the answer is not_found.
	Metrics http.Handler
	Console http.Handler
}

// New serves the whole outside contract of a launcher.
func New(svc api.Service, o Options) http.Handler {
	return newServer(svc, o, publicRoutes())
}

// Dedicated serves one session, with Chrome's own URL layout at the root, on a port of
// its own. Its clients cannot show anything, so the port belongs on loopback, where the
// kernel knows their users: it serves the user who opened the session, and admins. The
// session is looked up at each request; it need not exist before.
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
	denials   *denials
}

func newServer(svc api.Service, o Options, routes []route) *server {
	s := &server{svc: svc, o: o, mux: newMux(routes), tickets: newTickets(), denials: &denials{log: o.Log, most: maxDenials}}
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
	// segments is the path that is served, decoded; rawQuery is the query that goes
	// with it.
	segments []string
	rawQuery string
	// routed is the request as the multiplexer matched it. It has the values of the
	// pattern's names, and not the client's URL.
	routed *http.Request
	// route is that of the path and the method; allow lists the path's methods.
	route route
	allow []string
	// query is the parsed query without the API token; queryErr says that it is malformed.
	query    url.Values
	queryErr error
	// openURL is the URL in the query, on routes whose query has one.
	openURL string
	// apiTokens are those that the caller shows; the ones in the query come first.
	apiTokens    []string
	tokenInQuery bool
	// who asks, once that is known.
	who principal.Principal
	// ticket is the one in the path, where that is the caller's proof.
	ticket *ticket
	// onPort is the session of the dedicated port that the request came in on.
	onPort  api.Session
	upgrade bool
	begun   time.Time
}

// param returns the path's value for a name in the route's pattern, or "".
func (c *call) param(name string) string {
	if c.routed == nil {
		return ""
	}
	return c.routed.PathValue(name)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, w: &answer{ResponseWriter: w}, r: r, segments: segmentsOf(r.URL), rawQuery: r.URL.RawQuery, upgrade: wantsUpgrade(r), begun: time.Now()}
	defer c.log()

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

// handle checks and answers a request whose route was found. A route that serves
// nothing stands for a method that the path does not have, and without any methods in
// allow for a path that does not exist.
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

// admit checks the credential, and that the request fits its route.
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
