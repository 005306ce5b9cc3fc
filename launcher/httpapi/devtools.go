package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// endpoint is a session together with the websocket URLs by which the caller reaches it.
type endpoint struct {
	session api.Session
	// page returns the URL of one target.
	page func(target string) string
	// browser is the URL of the browser.
	browser string
}

// finder finds the session that a request is about.
type finder func(*call) (endpoint, error)

// discoveryRoutes are Chrome's own HTTP endpoints, below both kinds of base URL.
func discoveryRoutes() []route {
	return slices.Concat(
		jsonRoutes("/profiles/{profile}", onProfile(principal.Use), oneShotVersion, oneShotProtocol, byIdentity),
		jsonRoutes("/any", forRole(principal.Use), oneShotVersion, oneShotProtocol, byIdentity),
		jsonRoutes("/s/{capability}", forCapability, capabilityVersion, inSession(byCapability, protocol), byCapability))
}

// dedicatedRoutes are the routes of Chrome's own URL layout, bound to one session.
func dedicatedRoutes(sessionID string) []route {
	return append(
		jsonRoutes("", byPortUser(sessionID), inSession(byPort, version), inSession(byPort, protocol), byPort),
		upgradeRoute("/devtools/browser/{id}", byPortUser(sessionID), inSession(byPort, connectTarget)),
		upgradeRoute("/devtools/page/{target}", byPortUser(sessionID), inSession(byPort, connectTarget)),
	)
}

// jsonRoutes are Chrome's endpoints below one base URL. version and protocol may work without a
// session, the others need one.
func jsonRoutes(base string, a access, version, protocol handler, find finder) []route {
	get := func(path string, serve handler) route {
		return route{method: http.MethodGet, pattern: base + path, access: a, serve: serve}
	}
	// Chrome accepts GET here, although it changes something.
	act := func(path string, on func(api.Service, context.Context, string, string) error, done string) route {
		rt := get(path, inSession(find, onTarget(on, done)))
		rt.changes = true
		return rt
	}
	read := func(path string, serve handler) route {
		rt := get(path, serve)
		rt.anyMethod = true
		return rt
	}
	return []route{
		read("/json/version", version),
		read("/json", inSession(find, targets)),
		read("/json/list", inSession(find, targets)),
		read("/json/protocol", protocol),
		{method: http.MethodPut, pattern: base + "/json/new", access: a, queryIsURL: true, serve: inSession(find, newTarget)},
		act("/json/activate/{target}", api.Service.ActivateTarget, "Target activated"),
		act("/json/close/{target}", api.Service.CloseTarget, "Target is closing"),
	}
}

func inSession(find finder, serve func(*call, endpoint) error) handler {
	return func(c *call) error {
		e, err := find(c)
		if err != nil {
			return err
		}
		return serve(c, e)
	}
}

// manifest reads a one-shot URL: who asks, and for what. It fills in missing names, so that a
// URL made from the manifest later means the same session.
func (c *call) manifest() (api.Manifest, error) {
	if c.queryErr != nil {
		return api.Manifest{}, api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	m, err := api.ManifestFromQuery(c.param("profile"), c.query)
	if err != nil {
		return api.Manifest{}, err
	}
	if m.WorkerID == "" {
		m.WorkerID = c.peer()
	}
	if m.TaskID == "" {
		m.TaskID = "adhoc-" + strings.ToLower(rand.Text()[:12])
	}
	m.OneShot = true
	return m, m.Check()
}

// peer is the name of a worker that does not name itself: the address from which it calls,
// without the port, which differs for each connection.
func (c *call) peer() string {
	if host, _, err := net.SplitHostPort(c.r.RemoteAddr); err == nil && host != "" {
		return host
	}
	return "anonymous"
}

// identity returns the worker and the task that the query names. A worker without a name is
// named after its peer; a task without one is "".
func (c *call) identity() (worker, task string) {
	worker, task = c.query.Get("worker"), c.query.Get("task")
	if worker == "" {
		worker = c.query.Get("worker_id")
	}
	if task == "" {
		task = c.query.Get("task_id")
	}
	if worker == "" {
		worker = c.peer()
	}
	return worker, task
}

// ephemeral tells whether the URL asks for an ephemeral session.
func (c *call) ephemeral() (bool, error) {
	if !c.query.Has("ephemeral") {
		return false, nil
	}
	m, err := api.ManifestFromQuery(c.param("profile"), url.Values{"ephemeral": c.query["ephemeral"]})
	return m.Ephemeral, err
}

// byIdentity finds the living session of the profile, worker and task that the URL names; if it
// names no profile, on any profile.
func byIdentity(c *call) (endpoint, error) {
	profile := c.param("profile")
	worker, task := c.identity()
	if task == "" {
		return endpoint{}, api.Invalid("task_id", "say which task's browser it is: task=...")
	}
	ephemeral, err := c.ephemeral()
	if err != nil {
		return endpoint{}, err
	}
	s, err := c.sessionOf(profile, worker, task, ephemeral)
	if err != nil {
		return endpoint{}, err
	}
	profile = cmp.Or(profile, s.ProfileID)
	if c.tokenInQuery {
		return c.endpointOf(s, c.newTicket(api.Manifest{ProfileID: profile, WorkerID: worker, TaskID: task, Ephemeral: ephemeral, OneShot: true})), nil
	}
	query := url.Values{"worker": {worker}, "task": {task}}
	if ephemeral {
		query.Set("ephemeral", "true")
	}
	return endpoint{
		session: s,
		page: func(target string) string {
			return c.websocketURL(query, "profiles", profile, "devtools", "page", target)
		},
		browser: c.websocketURL(query, "devtools", "browser", profile),
	}, nil
}

// sessionOf finds the caller's living session with these names.
func (c *call) sessionOf(profile, worker, task string, ephemeral bool) (api.Session, error) {
	s, ok := c.svc.SessionOf(c.r.Context(), profile, worker, task, ephemeral)
	if !ok && profile == "" {
		return s, api.Refuse(api.CodeUnknownSession, "worker %s has no session for task %s that you opened: connect first", clip(worker), clip(task))
	}
	if !ok {
		return s, api.Refuse(api.CodeUnknownSession, "worker %s has no session on profile %s for task %s that you opened: connect first", clip(worker), clip(profile), clip(task))
	}
	return s, nil
}

// byCapability finds the session whose capability or ticket is in the path.
func byCapability(c *call) (endpoint, error) {
	capability := c.param("capability")
	t, ok, err := c.useTicket()
	var s api.Session
	switch {
	case err != nil:
	case !ok:
		s, err = c.svc.SessionByCapability(capability)
	case t.manifest.ProfileID != "" && !c.who.May(principal.Use, t.manifest.ProfileID):
		err = c.forbidden(principal.Use, t.manifest.ProfileID)
	default:
		s, err = c.sessionOf(t.manifest.ProfileID, t.manifest.WorkerID, t.manifest.TaskID, t.manifest.Ephemeral)
	}
	if err != nil {
		return endpoint{}, err
	}
	return c.endpointOf(s, capability), nil
}

// endpointOf is a session with the URLs of a capability or a ticket.
func (c *call) endpointOf(s api.Session, capability string) endpoint {
	return endpoint{
		session: s,
		page: func(target string) string {
			return c.websocketURL(nil, "s", capability, "devtools", "page", target)
		},
		browser: c.websocketURL(nil, "s", capability, "devtools", "browser", s.ProfileID),
	}
}

// byPort finds the session of the dedicated port, which byPortUser looked up.
func byPort(c *call) (endpoint, error) {
	s := c.onPort
	if s.State == api.SessionEnded {
		return endpoint{}, api.Refuse(api.CodeSessionEnded, "session %s is over: %s", s.SessionID, s.Ended).
			With("session_id", s.SessionID).With("ended", s.Ended)
	}
	return endpoint{
		session: s,
		page:    func(target string) string { return c.websocketURL(nil, "devtools", "page", target) },
		browser: c.websocketURL(nil, "devtools", "browser", s.ProfileID),
	}, nil
}

// oneShotVersion takes no lease: the client takes it when it follows the URL in the
// answer.
func oneShotVersion(c *call) error {
	m, err := c.manifest()
	if err != nil {
		return c.answerRefusedLater(err)
	}
	if err := c.toOpenProfile(m.ProfileID); err != nil {
		return err
	}
	if c.tokenInQuery {
		return c.answerVersion(c.websocketURL(nil, "s", c.newTicket(m), "devtools", "browser", ticketProfile(m)))
	}
	return c.answerVersion(c.oneShotURL(m.Query(), m.ProfileID))
}

// oneShotURL is the websocket URL that takes the lease of the profile, or of any that fits.
func (c *call) oneShotURL(query url.Values, profile string) string {
	if profile == "" {
		return c.websocketURL(query, anyProfile, "devtools", "browser")
	}
	return c.websocketURL(query, "devtools", "browser", profile)
}

func ticketProfile(m api.Manifest) string { return cmp.Or(m.ProfileID, anyProfile) }

// anyProfile stands in URLs in the place of the profile if the manifest names none.
const anyProfile = "any"

// answerRefusedLater refuses a query that is not a valid manifest. If a discovery request is
// refused, Playwright reports only the status, and guesses that this is no DevTools server; if
// an upgrade is refused, it reports the reason. So the discovery is answered with a URL whose
// upgrade is refused for that reason. Only Playwright asks with a slash at the end.
func (c *call) answerRefusedLater(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeInvalidRequest || c.queryErr != nil || !strings.HasSuffix(c.r.URL.Path, "/") {
		return err
	}
	profile := c.param("profile")
	if c.tokenInQuery {
		return c.answerVersion(c.websocketURL(nil, "s", c.refusingTicket(p), "devtools", "browser", cmp.Or(profile, anyProfile)))
	}
	return c.answerVersion(c.oneShotURL(c.query, profile))
}

// capabilityVersion takes no lease either, if the path has a ticket.
func capabilityVersion(c *call) error {
	t, ok, err := c.useTicket()
	if err != nil {
		return err
	}
	if ok {
		return c.answerVersion(c.websocketURL(nil, "s", c.param("capability"), "devtools", "browser", ticketProfile(t.manifest)))
	}
	return inSession(byCapability, version)(c)
}

func version(c *call, e endpoint) error { return c.answerVersion(e.browser) }

func (c *call) answerVersion(webSocketURL string) error {
	v, err := c.svc.Version(c.r.Context())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, map[string]string{
		"Browser": v.Browser, "Protocol-Version": v.ProtocolVersion, "User-Agent": v.UserAgent,
		"V8-Version": v.V8Version, "WebKit-Version": v.WebKitVersion, "webSocketDebuggerUrl": webSocketURL,
	})
}

// oneShotProtocol needs no session, but uses the one that the URL names if it exists.
func oneShotProtocol(c *call) error {
	worker, task := c.identity()
	ephemeral, err := c.ephemeral()
	if err != nil {
		return err
	}
	s, _ := c.svc.SessionOf(c.r.Context(), c.param("profile"), worker, task, ephemeral)
	return c.answerProtocol(s.SessionID)
}

func protocol(c *call, e endpoint) error { return c.answerProtocol(e.session.SessionID) }

func (c *call) answerProtocol(sessionID string) error {
	p, err := c.svc.Protocol(c.r.Context(), sessionID)
	if err != nil {
		return err
	}
	c.bytes(http.StatusOK, "application/json", p)
	return nil
}

// target is one entry of /json/list, in Chrome's members.
type target struct {
	Description          string `json:"description"`
	DevtoolsFrontendURL  string `json:"devtoolsFrontendUrl"`
	ID                   string `json:"id"`
	Title                string `json:"title"`
	Type                 string `json:"type"`
	URL                  string `json:"url"`
	WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
}

func (e endpoint) target(t api.Target) target {
	page := e.page(t.ID)
	return target{ID: t.ID, Title: t.Title, Type: t.Type, URL: t.URL, DevtoolsFrontendURL: frontendURL(page), WebSocketDebuggerURL: page}
}

// frontendURL is the URL at which a Chrome shows the DevTools for a page. Chrome has them built
// in, so nobody else learns the page's URL, which contains a capability.
func frontendURL(page string) string {
	scheme, rest, _ := strings.Cut(page, "://")
	return "devtools://devtools/bundled/inspector.html?" + scheme + "=" + strings.NewReplacer("%3A", ":", "%2F", "/").Replace(url.QueryEscape(rest))
}

func targets(c *call, e endpoint) error {
	found, err := c.svc.Targets(c.r.Context(), e.session.SessionID)
	if err != nil {
		return err
	}
	entries := make([]target, len(found))
	for i, t := range found {
		entries[i] = e.target(t)
	}
	return c.json(http.StatusOK, entries)
}

func newTarget(c *call, e endpoint) error {
	open := c.openURL
	if open == "" {
		open = "about:blank"
	}
	t, err := c.svc.NewTarget(c.r.Context(), e.session.SessionID, open)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, e.target(t))
}

// onTarget does something to the target that the path names, and then answers with done.
func onTarget(do func(api.Service, context.Context, string, string) error, done string) func(*call, endpoint) error {
	return func(c *call, e endpoint) error {
		if err := do(c.svc, c.r.Context(), e.session.SessionID, c.param("target")); err != nil {
			return err
		}
		return c.text(done)
	}
}
