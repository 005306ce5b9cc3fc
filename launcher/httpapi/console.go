package httpapi

import (
	"mime"
	"net/http"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// These are the pages of the console. The handler of Options.Console sees in the request which
// page is asked for: Request.Pattern is the route's pattern, and the path value "profile"
// or "site" is set. The principal is in the request's context.

// maxForm bounds a form of the console, in bytes.
const maxForm = 64 << 10

func consoleRoutes() []route {
	const one = "/console/{profile}"
	routes := []route{
		{method: http.MethodGet, pattern: "/", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodGet, pattern: "/updates", access: forRole(principal.Read), changes: true, serve: consolePage},
		{method: http.MethodGet, pattern: "/hosts", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodGet, pattern: "/hosts/updates", access: forRole(principal.Read), changes: true, serve: consolePage},
		{method: http.MethodGet, pattern: "/queue", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodGet, pattern: "/queue/updates", access: forRole(principal.Read), changes: true, serve: consolePage},
		{method: http.MethodGet, pattern: "/accounts", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodGet, pattern: "/accounts/updates", access: forRole(principal.Read), changes: true, serve: consolePage},
		{method: http.MethodGet, pattern: "/reviews", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodPost, pattern: "/reviews", access: forRole(principal.Review), serve: consoleForm},
		{method: http.MethodGet, pattern: "/sites/{site}", access: forRole(principal.Read), serve: consolePage},
		{method: http.MethodGet, pattern: one, access: onProfile(principal.Evidence), serve: consolePage},
		{method: http.MethodGet, pattern: one + "/picture", access: onProfile(principal.Evidence), serve: consolePage},
		{method: http.MethodGet, pattern: one + "/live", access: onProfile(principal.TakeOver), serve: consolePage},
		{method: http.MethodPost, pattern: one + "/review", access: onProfile(principal.Review), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/hold", access: onProfile(principal.Hold), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/check", access: onProfile(principal.Hold), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/hand-back", access: onProfile(principal.Hold), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/restore", access: onProfile(principal.Manage), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/rehome", access: onProfile(principal.Review), serve: consoleForm},
		{method: http.MethodPost, pattern: one + "/teach", access: onEveryProfile(principal.Manage), serve: consoleForm},
	}
	// A browser stands where a form was sent to if it shows the answer, and may ask for that address again.
	for _, rt := range routes {
		if rt.method == http.MethodPost && strings.HasPrefix(rt.pattern, one) {
			routes = append(routes, route{method: http.MethodGet, pattern: rt.pattern, access: onProfile(principal.Evidence), serve: consolePage})
		}
	}
	for i := range routes {
		routes[i].page = true
	}
	return routes
}

func consolePage(c *call) error {
	c.r.Pattern = c.route.method + " " + c.route.pattern
	c.r.SetPathValue("profile", c.param("profile"))
	c.r.SetPathValue("site", c.param("site"))
	return c.pass(c.o.Console)
}

// consoleForm passes a form on if a page of this server sent it. A page of another origin may
// send a form without asking first, so the browser has to say where the form comes from; the
// guard has refused all other origins.
func consoleForm(c *call) error {
	if err := c.readForm(); err != nil {
		return err
	}
	return consolePage(c)
}

// readForm parses a form that a page of this server sent.
func (c *call) readForm() error {
	given := c.r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(given); err != nil || mediaType != "application/x-www-form-urlencoded" {
		p := api.Invalid("", "the body has Content-Type %q: want application/x-www-form-urlencoded, as the console's page sends it", clip(given))
		p.Status = http.StatusUnsupportedMediaType
		return p
	}
	if c.r.Header.Get("Origin") == "" && c.r.Header.Get("Sec-Fetch-Site") != "same-origin" {
		return api.Invalid("", "a form is taken from a page of this server only, and nothing says that this one is: programs use /v1/profiles/{profile}/review and /hold")
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(bodyTimeout)) // if it cannot be set, the server's own limit applies
	if err := c.r.ParseForm(); err != nil {
		return api.Invalid("", "the form cannot be read: %v", err)
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	return nil
}
