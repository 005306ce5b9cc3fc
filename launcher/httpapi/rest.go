package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// description is the OpenAPI document of everything that New serves.
//
//go:embed openapi.json
var description []byte

const (
	// maxBody bounds a request's body in bytes, the data of a checkpoint
	// included.
	maxBody = 1 << 20
	// bodyTimeout bounds how long a client may take to send it.
	bodyTimeout = 30 * time.Second
	// abandonTimeout bounds the release of a session that nobody learnt of.
	abandonTimeout = 2 * time.Minute
)

// probeRoutes are what a supervisor, a scraper and a person look at.
func probeRoutes() []route {
	get := func(pattern string, a access, serve func(*call) error) route {
		return route{method: http.MethodGet, pattern: pattern, access: a, serve: serve}
	}
	return []route{
		get("/healthz", needsNothing, func(c *call) error {
			c.bytes(http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
			return nil
		}),
		get("/readyz", needsNothing, (*call).ready),
		get("/metrics", needsToken, func(c *call) error { return c.pass(c.o.Metrics) }),
		get("/openapi.json", needsToken, func(c *call) error {
			c.bytes(http.StatusOK, "application/json", description)
			return nil
		}),
		get("/", needsToken, func(c *call) error { return c.pass(c.o.Console) }),
	}
}

func (c *call) pass(h http.Handler) error {
	if h == nil {
		return api.Refuse(api.CodeNotFound, "this launcher does not serve that")
	}
	h.ServeHTTP(c.w, c.r)
	return nil
}

func (c *call) ready() error {
	err := c.svc.Ready(c.r.Context())
	if err == nil {
		c.bytes(http.StatusOK, "text/plain; charset=utf-8", []byte("ready\n"))
		return nil
	}
	var p *api.Problem
	if !errors.As(err, &p) {
		p = c.problem(err)
	}
	notReady := *p
	notReady.Status = http.StatusServiceUnavailable
	return &notReady
}

// restRoutes are the surface under /v1.
func restRoutes() []route {
	do := func(method, path string, serve func(*call) error) route {
		return route{method: method, pattern: "/v1" + path, serve: serve}
	}
	const get, post = http.MethodGet, http.MethodPost
	return []route{
		do(post, "/sessions", (*call).createSession),
		do(get, "/sessions", (*call).sessions),
		do(get, "/sessions/{session}", (*call).session),
		do(http.MethodDelete, "/sessions/{session}", (*call).release),
		do(post, "/sessions/{session}/heartbeat", (*call).heartbeat),
		do(post, "/sessions/{session}/steps", (*call).step),
		do(post, "/sessions/{session}/checkpoints", (*call).checkpoint),
		do(post, "/sessions/{session}/events", (*call).event),
		do(get, "/profiles", (*call).profiles),
		do(get, "/profiles/{profile}", (*call).profile),
		do(http.MethodPut, "/profiles/{profile}", (*call).putProfile),
		do(post, "/profiles/{profile}/import", (*call).importProfile),
		do(post, "/profiles/{profile}/clone", (*call).cloneProfile),
		do(post, "/profiles/{profile}/archive", (*call).archiveProfile),
		do(post, "/profiles/{profile}/remove-clone", (*call).removeClone),
		do(get, "/profiles/{profile}/history", (*call).history),
		do(get, "/profiles/{profile}/evidence", (*call).evidence),
		do(get, "/profiles/{profile}/inspection", (*call).inspection),
		do(post, "/profiles/{profile}/review", (*call).review),
		do(post, "/profiles/{profile}/hold", (*call).hold),
		do(get, "/evidence/{evidence}", (*call).evidenceManifest),
		do(get, "/evidence/{evidence}/{part}", (*call).evidencePart),
	}
}

// body reads the request's body.
func (c *call) body() ([]byte, error) {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // where it cannot be set, the server's own limit holds
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p := api.Invalid("", "the body has more than %d bytes", maxBody)
		p.Status = http.StatusRequestEntityTooLarge
		return nil, p
	case err != nil && c.gone():
		return nil, errGone
	case err != nil:
		return nil, api.Invalid("", "the body cannot be read to its end")
	}
	return b, nil
}

// decode reads the request's body into v; what names it in a refusal.
func (c *call) decode(v any, what string) error {
	b, err := c.body()
	if err != nil {
		return err
	}
	return api.DecodeBody(b, v, what)
}

// decodeWrite is decode for what has to carry a token, which token points into.
func (c *call) decodeWrite(v any, token *lease.Token, what string) error {
	if err := c.decode(v, what); err != nil {
		return err
	}
	return checkToken(*token)
}

func checkToken(t lease.Token) error {
	if t == 0 {
		return api.Invalid("lease_token", "every write carries the lease_token that the session was granted with")
	}
	return nil
}

// shown is a session for those who do not hold it: no URL in it opens it.
func shown(s api.Session) api.Session {
	s.CDPURL, s.DedicatedURL = "", nil
	return s
}

// items is how several are answered. next is for pages to come: there is one.
type items[T any] struct {
	Items []T `json:"items"`
	Next  any `json:"next"`
}

func listed[T any](c *call, v []T) error {
	if v == nil {
		v = []T{}
	}
	return c.json(http.StatusOK, items[T]{Items: v})
}

func (c *call) createSession() error {
	var m api.Manifest
	if err := c.decode(&m, "manifest"); err != nil {
		return err
	}
	if m.WorkerID == "" {
		m.WorkerID = c.peer()
	}
	s, err := c.svc.Acquire(c.r.Context(), m)
	return c.granted(s, err)
}

// granted answers with a new session, and the URL that opens it.
func (c *call) granted(s api.Session, err error) error {
	if err != nil {
		return err
	}
	if c.gone() {
		c.abandon(s)
		return errGone
	}
	s.CDPURL = c.websocketURL(nil, "s", s.Capability, "devtools", "browser", s.ProfileID)
	c.w.Header().Set("Location", "/v1/sessions/"+s.SessionID)
	return c.json(http.StatusCreated, s)
}

// abandon releases a session whose capability nobody got to know.
func (c *call) abandon(s api.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), abandonTimeout)
	defer cancel()
	if _, err := c.svc.Release(ctx, s.SessionID, api.Release{
		Write: api.Write{Token: s.Token}, Reason: "client_gone",
	}); err != nil {
		c.o.Log.Warn().Err(err).Str("profile", s.ProfileID).Str("session", s.SessionID).Uint64("token", uint64(s.Token)).
			Msg("session of a client that left is not released: it ends when its worker counts as lost")
	}
}

func (c *call) sessions() error {
	sessions := c.svc.Sessions()
	all := make([]api.Session, len(sessions))
	for i, s := range sessions {
		all[i] = shown(s)
	}
	return listed(c, all)
}

func (c *call) session() error {
	s, err := c.svc.Session(c.param("session"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, shown(s))
}

func (c *call) heartbeat() error {
	var h api.Heartbeat
	if err := c.decodeWrite(&h, &h.Token, "heartbeat"); err != nil {
		return err
	}
	s, err := c.svc.Heartbeat(c.r.Context(), c.param("session"), h)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, shown(s))
}

// recorded answers a write that went into the journal.
func (c *call) recorded(t lease.Token, err error) error {
	if err != nil {
		return err
	}
	return c.json(http.StatusCreated, struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}{c.param("session"), t})
}

func (c *call) step() error {
	var s api.Step
	if err := c.decodeWrite(&s, &s.Token, "step"); err != nil {
		return err
	}
	return c.recorded(s.Token, c.svc.Step(c.r.Context(), c.param("session"), s))
}

func (c *call) checkpoint() error {
	var p api.Checkpoint
	if err := c.decodeWrite(&p, &p.Token, "checkpoint"); err != nil {
		return err
	}
	return c.recorded(p.Token, c.svc.Checkpoint(c.r.Context(), c.param("session"), p))
}

func (c *call) event() error {
	var e api.TaskEvent
	if err := c.decodeWrite(&e, &e.Token, "event"); err != nil {
		return err
	}
	return c.recorded(e.Token, c.svc.Event(c.r.Context(), c.param("session"), e))
}

// release reads a body or, since some clients send none with DELETE, the query.
func (c *call) release() error {
	b, err := c.body()
	if err != nil {
		return err
	}
	var rel api.Release
	if len(b) > 0 {
		err = api.DecodeBody(b, &rel, "release")
	} else {
		rel, err = c.releaseFromQuery()
	}
	if err != nil {
		return err
	}
	if err := checkToken(rel.Token); err != nil {
		return err
	}
	s, err := c.svc.Release(c.r.Context(), c.param("session"), rel)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, shown(s))
}

func (c *call) releaseFromQuery() (api.Release, error) {
	if c.queryErr != nil {
		return api.Release{}, api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	var rel api.Release
	for name, values := range c.query {
		switch v := values[len(values)-1]; name {
		case "lease_token":
			t, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				return rel, api.Invalid(name, "%q: want a number", clip(v))
			}
			rel.Token = lease.Token(t)
		case "outcome":
			rel.Outcome = v
		case "reason":
			rel.Reason = v
		default:
			return rel, api.Invalid(name, "the release has no such field")
		}
	}
	return rel, nil
}

// profileID is the profile that the path names.
func (c *call) profileID() (string, error) {
	profile := c.param("profile")
	if err := lease.CheckProfileID(profile); err != nil {
		return "", api.Invalid("profile_id", "%v", err)
	}
	return profile, nil
}

func (c *call) profiles() error {
	records, err := c.svc.Profiles(c.r.Context())
	if err != nil {
		return err
	}
	public := make([]lease.Record, len(records))
	for i, r := range records {
		public[i] = r.Public()
	}
	return listed(c, public)
}

func (c *call) profile() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	return c.record(c.svc.Profile(c.r.Context(), profile))
}

func (c *call) record(r lease.Record, err error) error {
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, r.Public())
}

func (c *call) putProfile() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	b, err := c.body()
	if err != nil {
		return err
	}
	var set api.ProfileSettings
	if len(b) > 0 { // without one the profile is made, with its defaults
		if err := api.DecodeBody(b, &set, "profile's settings"); err != nil {
			return err
		}
	}
	return c.record(c.svc.PutProfile(c.r.Context(), profile, set))
}

// made answers with a profile that is new.
func (c *call) made(r lease.Record, err error) error {
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/profiles/"+r.ProfileID)
	return c.json(http.StatusCreated, r.Public())
}

func (c *call) importProfile() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	var req api.ProfileImport
	if err := c.decode(&req, "import"); err != nil {
		return err
	}
	return c.made(c.svc.ImportProfile(c.r.Context(), profile, req))
}

func (c *call) cloneProfile() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	var req api.ProfileClone
	if err := c.decode(&req, "clone"); err != nil {
		return err
	}
	return c.made(c.svc.CloneProfile(c.r.Context(), profile, req))
}

func (c *call) archiveProfile() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	b, err := c.body()
	if err != nil {
		return err
	}
	var req api.ProfileArchive
	if len(b) > 0 {
		if err := api.DecodeBody(b, &req, "archive"); err != nil {
			return err
		}
	}
	archived, err := c.svc.ArchiveProfile(c.r.Context(), profile, req)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, archived)
}

func (c *call) removeClone() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	var req api.ProfileRemove
	if err := c.decode(&req, "removal"); err != nil {
		return err
	}
	removed, err := c.svc.RemoveClone(c.r.Context(), profile, req)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, removed)
}

func (c *call) review() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	var req api.ReviewRequest
	if err := c.decodeWrite(&req, &req.Token, "review"); err != nil {
		return err
	}
	return c.record(c.svc.Review(c.r.Context(), profile, req))
}

func (c *call) hold() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	var req api.HoldRequest
	if err := c.decode(&req, "hold"); err != nil {
		return err
	}
	s, err := c.svc.Hold(c.r.Context(), profile, req)
	return c.granted(s, err)
}

func (c *call) history() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	events, err := c.svc.History(c.r.Context(), profile)
	if err != nil {
		return err
	}
	return listed(c, events)
}

func (c *call) evidence() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	bundles, err := c.svc.Evidence(c.r.Context(), profile)
	if err != nil {
		return err
	}
	for i := range bundles {
		if bundles[i].Parts == nil {
			bundles[i].Parts = []api.Part{}
		}
	}
	return listed(c, bundles)
}

func (c *call) inspection() error {
	profile, err := c.profileID()
	if err != nil {
		return err
	}
	found, err := c.svc.Inspection(c.r.Context(), profile)
	if err != nil {
		return err
	}
	if found.Facts == nil {
		found.Facts = []api.Fact{}
	}
	if found.Reasons == nil {
		found.Reasons = []string{}
	}
	return c.json(http.StatusOK, found)
}

func (c *call) evidenceManifest() error {
	m, err := c.svc.EvidenceManifest(c.r.Context(), c.param("evidence"))
	if err != nil {
		return err
	}
	c.bytes(http.StatusOK, "application/json", m)
	return nil
}

// evidencePart answers with what a page in somebody's account left behind: a
// browser that shows it must not run it.
func (c *call) evidencePart() error {
	b, mediaType, err := c.svc.EvidencePart(c.r.Context(), c.param("evidence"), c.param("part"))
	if err != nil {
		return err
	}
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	c.w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	c.bytes(http.StatusOK, mediaType, b)
	return nil
}
