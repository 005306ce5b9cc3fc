package httpapi

import (
	_ "embed"
	"errors"
	"net/http"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// description is the OpenAPI document of everything that New serves.
//
//go:embed openapi.json
var description []byte

// probeRoutes are the routes for supervisors, scrapers and people.
func probeRoutes() []route {
	get := func(pattern string, a access, serve handler) route {
		return route{method: http.MethodGet, pattern: pattern, access: a, serve: serve}
	}
	return []route{
		get("/healthz", forAnybody, func(c *call) error { return c.text("ok\n") }),
		get("/readyz", forAnybody, (*call).ready),
		get("/metrics", forRole(principal.Read), func(c *call) error { return c.pass(c.o.Metrics) }),
		get("/openapi.json", forRole(principal.Describe), func(c *call) error {
			c.bytes(http.StatusOK, "application/json", description)
			return nil
		}),
	}
}

// pass hands the request to another handler.
func (c *call) pass(h http.Handler) error {
	if h == nil {
		return api.Refuse(api.CodeNotFound, "this launcher does not serve that")
	}
	h.ServeHTTP(c.w, c.r)
	return nil
}

// ready answers 503 with the reason when no lease could be granted now.
func (c *call) ready() error {
	err := c.svc.Ready(c.r.Context())
	if err == nil {
		return c.text("ready\n")
	}
	var p *api.Problem
	if !errors.As(err, &p) {
		p = c.problem(err)
	}
	notReady := *p
	notReady.Status = http.StatusServiceUnavailable
	return &notReady
}
