// Package httpapi carries the launcher's Service over HTTP: the CDP websocket in
// its one-shot and its capability form, Chrome's own /json answers around both,
// the REST surface under /v1, its OpenAPI description, and the probes.
//
// Every request passes the same guard first (Host, Origin, Sec-Fetch-Site, then
// the token or the capability in the path); every refusal leaves through the same
// door, as application/problem+json and, at a websocket upgrade, in the HTTP
// status line too.
//
// The package frames no websocket messages: after the 101 an api.Connection has
// the socket. It needs HTTP/1.1 for that: where TLS is served, "h2" may not be
// negotiated.
package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/id"
	"leasehold/launcher/api"
)

// Options say how a surface is reached and who may use it.
type Options struct {
	// ListenAddr is the host:port that is served; its host may stand in the Host
	// header.
	ListenAddr string
	// AdvertiseURL is how others reach this surface, an http or https URL that
	// may have a path. Empty: URLs that are handed out repeat the request's Host.
	// Dedicated ignores it.
	AdvertiseURL string
	// Token is what callers have to show; empty: nothing. Dedicated ignores it,
	// its clients cannot show one.
	Token string
	// TLS says that the listener speaks TLS.
	TLS bool
	Log zerolog.Logger
	// Metrics answers /metrics and Console answers /; nil: not_found.
	Metrics http.Handler
	Console http.Handler
}

// New serves the whole outside contract of a launcher.
func New(svc api.Service, o Options) http.Handler {
	s := newServer(svc, o)
	s.routes = slices.Concat(s.probes(), s.websockets(), s.discovery(), s.rest())
	return s
}

// Dedicated serves one session with Chrome's own URL layout at the root, for a
// port of its own: whoever reaches the port drives the session, so it belongs on
// loopback. The session is looked up at each request and need not exist before.
func Dedicated(svc api.Service, sessionID string, o Options) http.Handler {
	o.AdvertiseURL, o.Token = "", ""
	s := newServer(svc, o)
	s.routes = s.dedicated(sessionID)
	return s
}

// access says what a caller has to show for a route.
type access int

const (
	needsToken access = iota
	// needsCapability: the secret in the path, which the handler looks up.
	needsCapability
	needsNothing
)

// route is one method on one path. A pattern's "{name}" takes one segment.
type route struct {
	method  string
	pattern string
	access  access
	// websocket: only an upgrade is served, otherwise none is.
	websocket bool
	// changes: no HEAD, although the method is GET.
	changes bool
	// queryIsURL: what follows the question mark is a URL, as Chrome's
	// /json/new has it.
	queryIsURL bool
	serve      func(*call) error
}

type server struct {
	svc       api.Service
	o         Options
	advertise *url.URL // nil: none
	hosts     []string // names that may stand in the Host header
	routes    []route
}

func newServer(svc api.Service, o Options) *server {
	s := &server{svc: svc, o: o}
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

// call is one request on its way through.
type call struct {
	*server
	w     *answer
	r     *http.Request
	route route
	// params are the values of the pattern's names.
	params map[string]string
	// query is without the token; queryErr says that it is malformed.
	query    url.Values
	queryErr error
	// target is the URL of a route whose query is one.
	target string
	// shown are the tokens that the caller shows, in the query first.
	shown        []string
	tokenInQuery bool
	upgrade      bool
	begun        time.Time
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, w: &answer{ResponseWriter: w}, r: r, params: map[string]string{}, upgrade: wantsUpgrade(r), begun: time.Now()}
	segments := segmentsOf(r.URL)
	defer func() { c.log(segments) }()

	h := c.w.Header()
	h.Set("Cache-Control", "no-store") // URLs here carry secrets
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")

	rawQuery := r.URL.RawQuery
	if !c.upgrade {
		segments, rawQuery = splitConcatenated(segments, rawQuery)
	}
	matched := c.match(segments)
	c.parseQuery(rawQuery)
	err := c.guard()
	if err == nil {
		err = c.admit(segments, matched)
	}
	if err == nil {
		if c.route.websocket {
			c.w.beforeServe = func() { c.log(segments) }
		}
		err = c.route.serve(c)
	}
	if err != nil {
		c.refuse(err)
	}
}

// segmentsOf splits a path; empty segments do not count, so that a trailing or a
// doubled slash changes nothing. A segment that does not decode stands for itself.
func segmentsOf(u *url.URL) []string {
	segments := []string{}
	for s := range strings.SplitSeq(u.EscapedPath(), "/") {
		if s == "" {
			continue
		}
		if decoded, err := url.PathUnescape(s); err == nil {
			s = decoded
		}
		segments = append(segments, s)
	}
	return segments
}

// match finds the routes of a path, and among them sets the one of the method.
// It returns the methods that the path has.
func (c *call) match(segments []string) (methods []string) {
	for _, rt := range c.routes {
		params, ok := rt.matches(segments)
		if !ok {
			continue
		}
		methods = append(methods, rt.method)
		head := c.r.Method == http.MethodHead && rt.method == http.MethodGet && !rt.changes && !rt.websocket
		if head {
			methods = append(methods, http.MethodHead)
		}
		if c.route.serve == nil {
			// What the path needs is the same for each of its methods.
			c.route.access, c.route.queryIsURL, c.params = rt.access, rt.queryIsURL, params
		}
		if c.r.Method == rt.method || head {
			c.route = rt
		}
	}
	return methods
}

func (rt route) matches(segments []string) (map[string]string, bool) {
	want := segmentsOf(&url.URL{Path: rt.pattern})
	if len(want) != len(segments) {
		return nil, false
	}
	params := map[string]string{}
	for i, w := range want {
		got := segments[i]
		switch name, isParam := strings.CutPrefix(w, "{"); {
		case !isParam && got != w:
			return nil, false
		case isParam && (got == "." || got == ".." || strings.ContainsAny(got, "/\\\x00")):
			return nil, false // no name of ours, and a step aside in somebody's path
		case isParam:
			params[strings.TrimSuffix(name, "}")] = got
		}
	}
	return params, true
}

// admit checks the credential and that the request fits its route.
func (c *call) admit(segments, methods []string) error {
	if err := c.authenticate(); err != nil {
		return err
	}
	switch {
	case len(methods) == 0:
		return c.unknownPath(segments)
	case c.route.serve == nil:
		c.w.Header().Set("Allow", strings.Join(methods, ", "))
		p := api.Refuse(api.CodeInvalidRequest, "this path takes %s, not %s", strings.Join(methods, ", "), c.r.Method)
		p.Status = http.StatusMethodNotAllowed
		return p
	case c.upgrade && !c.route.websocket:
		return api.Refuse(api.CodeNotFound, "no websocket is served here: want /devtools/browser/{profile}")
	case c.route.websocket:
		return c.checkHandshake()
	}
	return nil
}

func (c *call) unknownPath(segments []string) error {
	detail := "there is nothing at this path: /openapi.json lists what there is"
	if len(segments) > 0 && segments[0] == "json" {
		detail = "the browser of which profile? Give the client http://HOST/profiles/{profile}?worker=W&task=T or " +
			"ws://HOST/devtools/browser/{profile}?worker=W&task=T; a client that keeps host and port only needs a dedicated_port"
	}
	return api.Refuse(api.CodeNotFound, "%s", detail)
}

// log writes the request's one line, with the answer that it got.
func (c *call) log(segments []string) {
	if c.w.logged {
		return
	}
	c.w.logged = true
	path := slices.Clone(segments)
	for i := 1; i < len(path); i++ {
		if segments[i-1] == "s" {
			path[i] = id.Mask(path[i])
		}
	}
	e := c.o.Log.Debug().Str("method", clip(c.r.Method)).Str("path", clip("/"+strings.Join(path, "/"))).Int("status", c.w.code()).
		Str("peer", c.r.RemoteAddr).Dur("took", time.Since(c.begun))
	if profile := c.params["profile"]; profile != "" {
		e = e.Str("profile", clip(profile))
	}
	e.Msg("request")
}

// answer remembers what was answered.
type answer struct {
	http.ResponseWriter
	status int
	logged bool
	// beforeServe is called when a websocket is about to be served: its line of
	// the log should not wait for its end.
	beforeServe func()
}

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController what is below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
