package httpapi

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strings"

	"leasehold/launcher/api"
)

// reach is a session as a caller reaches it.
type reach struct {
	session api.Session
	// page is the websocket URL of one target.
	page func(target string) string
	// browser is the websocket URL of the browser.
	browser string
}

// discoveryRoutes are Chrome's own HTTP answers, below both kinds of base URL.
func discoveryRoutes() []route {
	return append(
		jsonRoutes("/profiles/{profile}", needsToken, (*call).oneShotVersion, (*call).oneShotProtocol, (*call).byIdentity),
		jsonRoutes("/s/{capability}", needsCapability, version((*call).byCapability), protocol((*call).byCapability), (*call).byCapability)...)
}

// dedicatedRoutes are Chrome's own layout, bound to one session.
func dedicatedRoutes(sessionID string) []route {
	find := func(c *call) (reach, error) { return c.byPort(sessionID) }
	ws := func(pattern string, serve func(*call) error) route {
		return route{method: http.MethodGet, pattern: pattern, access: needsNothing, websocket: true, serve: serve}
	}
	return append(
		jsonRoutes("", needsNothing, version(find), protocol(find), find),
		ws("/devtools/browser/{id}", connectTarget(find)),
		ws("/devtools/page/{target}", connectTarget(find)),
	)
}

func jsonRoutes(base string, a access, version, protocol func(*call) error, find func(*call) (reach, error)) []route {
	list := func(c *call) error { return c.list(find) }
	get := func(path string, serve func(*call) error) route {
		return route{method: http.MethodGet, pattern: base + path, access: a, serve: serve}
	}
	act := func(path, done string, what func(*call, string) error) route {
		rt := get(path, func(c *call) error { return c.onTarget(find, what, done) })
		rt.changes = true
		return rt
	}
	open := get("/json/new", func(c *call) error { return c.newTarget(find) })
	open.method, open.queryIsURL = http.MethodPut, true
	return []route{
		get("/json/version", version),
		get("/json", list),
		get("/json/list", list),
		get("/json/protocol", protocol),
		open,
		act("/json/activate/{target}", "Target activated", func(c *call, sessionID string) error {
			return c.svc.ActivateTarget(c.r.Context(), sessionID, c.param("target"))
		}),
		act("/json/close/{target}", "Target is closing", func(c *call, sessionID string) error {
			return c.svc.CloseTarget(c.r.Context(), sessionID, c.param("target"))
		}),
	}
}

// manifest reads the one-shot URL: who asks, and for what. Both names are
// settled here, so that a URL made of it means the same session later.
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

// peer names a worker that does not name itself: the address it calls from,
// without the port, which changes.
func (c *call) peer() string {
	if host, _, err := net.SplitHostPort(c.r.RemoteAddr); err == nil && host != "" {
		return host
	}
	return "anonymous"
}

// identity is the worker and task that a query names.
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

// byIdentity finds the living session of the profile, worker and task that the
// URL names.
func (c *call) byIdentity() (reach, error) {
	profile := c.param("profile")
	worker, task := c.identity()
	if task == "" {
		return reach{}, api.Invalid("task_id", "say which task's browser it is: task=...")
	}
	s, ok := c.svc.SessionOf(profile, worker, task)
	if !ok {
		return reach{}, api.Refuse(api.CodeUnknownSession, "worker %s has no session on profile %s for task %s: connect first", clip(worker), clip(profile), clip(task))
	}
	query := c.withToken(url.Values{"worker": {worker}, "task": {task}})
	return reach{
		session: s,
		page: func(target string) string {
			return c.websocketURL(query, "profiles", profile, "devtools", "page", target)
		},
		browser: c.websocketURL(query, "devtools", "browser", profile),
	}, nil
}

// byCapability finds the session that the path is the key of.
func (c *call) byCapability() (reach, error) {
	capability := c.param("capability")
	s, err := c.svc.SessionByCapability(capability)
	if err != nil {
		return reach{}, err
	}
	return reach{
		session: s,
		page: func(target string) string {
			return c.websocketURL(nil, "s", capability, "devtools", "page", target)
		},
		browser: c.websocketURL(nil, "s", capability, "devtools", "browser", s.ProfileID),
	}, nil
}

// byPort finds the session that the port is for.
func (c *call) byPort(sessionID string) (reach, error) {
	s, err := c.svc.Session(sessionID)
	if err != nil {
		return reach{}, err
	}
	if s.State == api.SessionEnded {
		return reach{}, api.Refuse(api.CodeSessionEnded, "session %s is over: %s", s.SessionID, s.Ended).
			With("session_id", s.SessionID).With("ended", s.Ended)
	}
	return reach{
		session: s,
		page:    func(target string) string { return c.websocketURL(nil, "devtools", "page", target) },
		browser: c.websocketURL(nil, "devtools", "browser", s.ProfileID),
	}, nil
}

// oneShotVersion answers /json/version without taking a lease: who follows the
// URL in it takes it.
func (c *call) oneShotVersion() error {
	m, err := c.manifest()
	if err != nil {
		return err
	}
	return c.version(c.websocketURL(c.withToken(m.Query()), "devtools", "browser", m.ProfileID))
}

func version(find func(*call) (reach, error)) func(*call) error {
	return func(c *call) error {
		r, err := find(c)
		if err != nil {
			return err
		}
		return c.version(r.browser)
	}
}

func (c *call) version(webSocketURL string) error {
	v, err := c.svc.Version(c.r.Context())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, map[string]string{
		"Browser": v.Browser, "Protocol-Version": v.ProtocolVersion, "User-Agent": v.UserAgent,
		"V8-Version": v.V8Version, "WebKit-Version": v.WebKitVersion, "webSocketDebuggerUrl": webSocketURL,
	})
}

// oneShotProtocol needs no session, and uses one that is there.
func (c *call) oneShotProtocol() error {
	worker, task := c.identity()
	s, _ := c.svc.SessionOf(c.param("profile"), worker, task)
	return c.protocol(s.SessionID)
}

func protocol(find func(*call) (reach, error)) func(*call) error {
	return func(c *call) error {
		r, err := find(c)
		if err != nil {
			return err
		}
		return c.protocol(r.session.SessionID)
	}
}

func (c *call) protocol(sessionID string) error {
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
	ID                   string `json:"id"`
	Title                string `json:"title"`
	Type                 string `json:"type"`
	URL                  string `json:"url"`
	WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
}

func (r reach) target(t api.Target) target {
	return target{ID: t.ID, Title: t.Title, Type: t.Type, URL: t.URL, WebSocketDebuggerURL: r.page(t.ID)}
}

func (c *call) list(find func(*call) (reach, error)) error {
	r, err := find(c)
	if err != nil {
		return err
	}
	targets, err := c.svc.Targets(c.r.Context(), r.session.SessionID)
	if err != nil {
		return err
	}
	entries := make([]target, len(targets))
	for i, t := range targets {
		entries[i] = r.target(t)
	}
	return c.json(http.StatusOK, entries)
}

func (c *call) newTarget(find func(*call) (reach, error)) error {
	r, err := find(c)
	if err != nil {
		return err
	}
	open := c.target
	if open == "" {
		open = "about:blank"
	}
	t, err := c.svc.NewTarget(c.r.Context(), r.session.SessionID, open)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, r.target(t))
}

func (c *call) onTarget(find func(*call) (reach, error), what func(*call, string) error, done string) error {
	r, err := find(c)
	if err != nil {
		return err
	}
	if err := what(c, r.session.SessionID); err != nil {
		return err
	}
	return c.text(done)
}
