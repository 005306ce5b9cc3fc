package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

type route struct {
	method string
	// pattern is the path as http.ServeMux and OpenAPI write it: "{name}" takes one
	// segment.
	pattern string
	// access says who may use the route. A route without one cannot be registered.
	access access
	// websocket routes serve upgrades only; no other route serves one.
	websocket bool
	// changes says that a GET changes something: so HEAD is not served.
	changes bool
	// anyMethod says that other methods are served in the same way, as Chrome does: some
	// clients use POST, and a proxy in between may use OPTIONS.
	anyMethod bool
	// page says that a person in a browser asks for it.
	page bool
	// fromAnywhere says that a link on a page of another origin may lead here.
	fromAnywhere bool
	// queryIsURL says that the query has a URL, as that of Chrome's /json/new does.
	queryIsURL bool
	// special says that a more general pattern with the same methods also matches the path, and
	// answers the methods that are not served.
	special bool
	serve   handler
}

// handler serves a route. A returned error is answered as a refusal.
type handler func(*call) error

// publicRoutes are all routes of New. openapi.json describes the same ones.
func publicRoutes() []route {
	return slices.Concat(probeRoutes(), consoleRoutes(), signInRoutes(), upgradeRoutes(), discoveryRoutes(), mcpRoutes(), restRoutes())
}

// newMux registers the routes with net/http's multiplexer, and also handlers for everything
// that the multiplexer would answer by itself. Its own answers (404, 405) are plain text, and
// come before the guard and the API token are checked.
func newMux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range routes {
		if rt.access.proof == 0 {
			panic("no access is declared for " + rt.method + " " + rt.pattern)
		}
	}
	to := func(rt route, allow []string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { callOf(r).handle(rt, allow) }
	}
	allow := map[string][]string{}
	for _, rt := range routes {
		allow[rt.pattern] = append(allow[rt.pattern], rt.method)
	}
	nothing := route{access: access{proof: byPrincipal}}
	mux.Handle("/", to(nothing, nil))
	for _, rt := range routes {
		path, methods := rt.pattern, allow[rt.pattern]
		if path == "/" {
			path = "/{$}" // "/" would match every path
		}
		mux.Handle(rt.method+" "+path, to(rt, methods))
		// For a method that is not served, the caller needs what the path's first method needs.
		notServed := to(route{access: access{proof: rt.access.proof}, queryIsURL: rt.queryIsURL}, methods)
		switch {
		case rt.anyMethod:
			mux.Handle(path, to(rt, methods))
		case rt.method == methods[0] && !rt.special:
			mux.Handle(path, notServed)
		}
		if rt.method == http.MethodGet && (rt.changes || rt.websocket) {
			mux.Handle(http.MethodHead+" "+path, notServed) // a GET pattern also matches HEAD
		}
	}
	return mux
}

type callKey struct{}

// callOf returns the call whose request went through the multiplexer.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// dispatch lets the multiplexer find the route, and calls handle.
//
// The multiplexer does not get the client's own path: it would redirect a path with doubled
// slashes or dots, would not find one with a slash at its end, which Chrome serves, and would
// answer the request target "*" itself.
func (c *call) dispatch() {
	if slices.ContainsFunc(c.segments, unsafeSegment) {
		c.handle(route{access: access{proof: byPrincipal}}, nil)
		return
	}
	c.routed = c.r.WithContext(context.WithValue(c.r.Context(), callKey{}, c))
	c.routed.URL = &url.URL{Path: "/" + strings.Join(c.segments, "/")}
	c.routed.RequestURI = ""
	c.mux.ServeHTTP(c.w, c.routed)
}

// unsafeSegment reports whether a decoded path segment could lead elsewhere when it becomes
// part of a file path or of another URL. None of our names is such a segment.
func unsafeSegment(segment string) bool {
	return segment == "." || segment == ".." || strings.ContainsAny(segment, "/\\\x00")
}

// segmentsOf splits a path into its decoded segments. Empty ones are left out, so that
// trailing and doubled slashes change nothing.
func segmentsOf(u *url.URL) []string {
	segments := []string{}
	for s := range strings.SplitSeq(u.EscapedPath(), "/") {
		if s != "" {
			decoded, _ := url.PathUnescape(s) // EscapedPath returns only what can be decoded
			segments = append(segments, decoded)
		}
	}
	return segments
}
