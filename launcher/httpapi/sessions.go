package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// releaseTimeout bounds the release of a session whose client left before the answer was sent.
const releaseTimeout = 2 * time.Minute

func sessionRoutes() []route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const one = "/sessions/{session}"
	return []route{
		v1(post, "/sessions", forRole(principal.Open), createSession),
		v1(get, "/sessions", forRole(principal.Read, principal.Use), listSessions),
		v1(get, one, toSee, getSession),
		upgradeRoute("/v1"+one+"/view", toTakeOver, watchSession),
		v1(del, one, toUse, write(sessionID, withToken(readRelease), api.Service.Release, answerSession)),
		v1(post, one+"/heartbeat", toUse, write(sessionID, withToken(required[api.Heartbeat]("heartbeat")), api.Service.Heartbeat, answerSession)),
		v1(post, one+"/steps", toUse, journaled("step", api.Service.Step)),
		v1(post, one+"/checkpoints", toUse, journaled("checkpoint", api.Service.Checkpoint)),
		v1(post, one+"/events", toUse, journaled("event", api.Service.Event)),
		v1(post, one+"/ask", toUse, write(sessionID, withToken(required[api.AskPerson]("request for a person")), api.Service.Ask, answerWith[api.Answer](http.StatusOK))),
		v1(post, one+"/take-over", toTakeOver, write(sessionID, withToken(required[api.TakeOver]("take-over")), api.Service.TakeOver, answerSession)),
		v1(post, one+"/hand-back", toTakeOver, write(sessionID, withToken(required[api.HandBack]("hand-back")), api.Service.HandBack, answerSession)),
	}
}

func sessionID(c *call) (string, error) { return c.param("session"), nil }

func createSession(c *call) error {
	m, err := required[api.Manifest]("manifest")(c)
	if err != nil {
		return err
	}
	if m.WorkerID == "" {
		m.WorkerID = c.peer()
	}
	if err := c.toOpen(&m); err != nil {
		return err
	}
	s, err := c.svc.Acquire(c.o.Tracer.Follow(c.r.Context(), c.r.Header), m)
	if err != nil {
		return err
	}
	return answerGranted(c, s)
}

// listSessions lists the living sessions of this launcher; with profile_id, those of one
// profile. If another launcher has that profile in use, the answer says where.
func listSessions(c *call) error {
	if c.queryErr != nil {
		return api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	profile := c.query.Get("profile_id")
	var all []api.Session
	here := false
	for _, s := range c.svc.Sessions() {
		if profile != "" && s.ProfileID != profile {
			continue
		}
		here = true
		if !c.sees(s) {
			continue
		}
		s = withoutURLs(s)
		if s.Resume != nil { // the data is meant for the task, and may be large
			s.Resume = &api.Resume{From: s.Resume.From, Checkpoint: s.Resume.Checkpoint}
		}
		all = append(all, s)
	}
	if profile != "" && !here {
		if err := c.elsewhere(profile); err != nil {
			return err
		}
	}
	return answerPage(sessionOrder)(c, all)
}

// elsewhere refuses a caller who may see or open the profile if another launcher has it in use;
// the refusal says which one.
func (c *call) elsewhere(profile string) error {
	if !c.who.May(principal.Read, profile) && !c.who.May(principal.Use, profile) {
		return nil
	}
	r, err := c.svc.Profile(c.r.Context(), profile)
	var p *api.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	case r.State != lease.Held:
		return nil
	}
	hosts, err := c.svc.Hosts(c.r.Context())
	if err != nil {
		return err
	}
	for _, h := range hosts.Items {
		if h.LauncherID == r.LauncherID && !h.Own {
			return api.WrongHome(profile, r.LauncherID, h.AdvertiseURL, h.Here)
		}
	}
	return nil
}

func getSession(c *call) error {
	s, err := c.svc.Session(c.param("session"))
	if err != nil {
		return err
	}
	return answerSession(c, s)
}

// readRelease reads a release from the body or, since some clients send no body with DELETE,
// from the query.
func readRelease(c *call) (api.Release, error) {
	b, err := c.body()
	if err != nil {
		return api.Release{}, err
	}
	if len(b) == 0 {
		return c.releaseFromQuery()
	}
	var rel api.Release
	err = api.DecodeBody(b, &rel, "release")
	return rel, err
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
		case "recover":
			rel.Recover = v
		default:
			return rel, api.Invalid(name, "the release has no such field")
		}
	}
	return rel, nil
}

// journaled serves a write that goes into the session's journal.
func journaled[In tokened](what string, do func(api.Service, context.Context, string, In) error) handler {
	type entry struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	return write(sessionID, withToken(required[In](what)),
		func(svc api.Service, ctx context.Context, session string, in In) (entry, error) {
			return entry{session, in.LeaseToken()}, do(svc, ctx, session, in)
		},
		answerWith[entry](http.StatusCreated))
}

// answerSession answers with a session, for a client that need not be its holder.
func answerSession(c *call, s api.Session) error { return c.json(http.StatusOK, withoutURLs(s)) }

// withoutURLs leaves out the URLs that open the session.
func withoutURLs(s api.Session) api.Session {
	s.CDPURL, s.DedicatedURL = "", nil
	return s
}

// answerGranted answers with a new session and the URL that opens it.
func answerGranted(c *call, s api.Session) error {
	if c.gone() {
		c.releaseUnsent(s)
		return errGone
	}
	s.CDPURL = c.websocketURL(nil, "s", s.Capability, "devtools", "browser", s.ProfileID)
	c.w.Header().Set("Location", "/v1/sessions/"+s.SessionID)
	return c.json(http.StatusCreated, s)
}

// releaseUnsent releases a session whose capability was never sent.
func (c *call) releaseUnsent(s api.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), releaseTimeout)
	defer cancel()
	if _, err := c.svc.Release(ctx, s.SessionID, api.Release{
		Write: api.Write{Token: s.Token}, Reason: "client_gone",
	}); err != nil {
		c.o.Log.Warn().Err(err).Str("profile", s.ProfileID).Str("session", s.SessionID).Uint64("token", uint64(s.Token)).
			Msg("session of a client that left is not released: it ends when its worker counts as lost")
	}
}
