package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// A sign-in link is for a person who is to sign an account in. Its secret is in the fragment of its
// URL, which browsers send to nobody, and which what previews a link does not send on: the page behind
// the link sends it when the person presses a button. Then the link is used, and its person goes on by
// a cookie, which opens the paths below that link and no others.

const (
	// signInCookie is the name of the cookie.
	signInCookie = "leasehold_sign_in"
	// endSignInTimeout bounds the end of the session of a link that is revoked.
	endSignInTimeout = 2 * time.Minute
)

// signInLink is one link.
type signInLink struct {
	id, profile string
	maker       principal.Principal
	begin       string // the page with which the person begins
	// secret is the hash of what is in the URL, or of the cookie once the link is used.
	secret  [sha256.Size]byte
	used    bool
	session string // of the person; empty: none yet
	expires time.Time
}

// signInLinks are the links of one server: one for each profile at most. They end with the process.
type signInLinks struct {
	mu  sync.Mutex
	all map[string]signInLink // by profile
}

func newSignInLinks() *signInLinks { return &signInLinks{all: map[string]signInLink{}} }

// put adds a link, and returns the one that it replaces, if there was any. One that is too old is
// forgotten, unless it began a session: that can be taken back until the link is replaced.
func (ls *signInLinks) put(l signInLink, now time.Time) (before signInLink) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	maps.DeleteFunc(ls.all, func(_ string, l signInLink) bool { return l.session == "" && !now.Before(l.expires) })
	before = ls.all[l.profile]
	ls.all[l.profile] = l
	return before
}

// find returns the link with an id for which the secret was shown, in its place.
func (ls *signInLinks) find(id, secret string, used bool, now time.Time) (signInLink, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.findLocked(id, secret, used, now)
}

func (ls *signInLinks) findLocked(id, secret string, used bool, now time.Time) (signInLink, bool) {
	sum := sha256.Sum256([]byte(secret))
	for _, l := range ls.all {
		if l.id == id && l.used == used && now.Before(l.expires) && subtle.ConstantTimeCompare(sum[:], l.secret[:]) == 1 {
			return l, true
		}
	}
	return signInLink{}, false
}

// use makes the link one that is used, with another secret, for the cookie.
func (ls *signInLinks) use(id, secret, cookie string, now time.Time) (signInLink, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.findLocked(id, secret, false, now)
	if ok {
		l.used, l.secret, l.expires = true, sha256.Sum256([]byte(cookie)), now.Add(api.SignInTime)
		ls.all[l.profile] = l
	}
	return l, ok
}

// began notes the session that a link began, and tells whether the link is still there.
func (ls *signInLinks) began(l signInLink, session string) bool {
	return ls.change(l, func(l *signInLink) { l.session = session })
}

// unuse takes back use, since nothing could be begun, or nobody was told of it: the link can be used.
func (ls *signInLinks) unuse(l signInLink, secret string, expires time.Time) {
	ls.change(l, func(l *signInLink) {
		l.used, l.secret, l.expires = false, sha256.Sum256([]byte(secret)), expires
	})
}

func (ls *signInLinks) change(l signInLink, change func(*signInLink)) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, ok := ls.all[l.profile]
	if !ok || now.id != l.id {
		return false
	}
	change(&now)
	ls.all[l.profile] = now
	return true
}

// remove removes the link of a profile, and returns it.
func (ls *signInLinks) remove(profile string) signInLink {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[profile]
	delete(ls.all, profile)
	return l
}

func signInRoutes() []route {
	const get, post = http.MethodGet, http.MethodPost
	const one = "/sign-in/{link}"
	return []route{
		{method: get, pattern: one, access: forCapability, page: true, fromAnywhere: true, serve: signInPage},
		{method: post, pattern: one, access: forCapability, page: true, serve: useSignInLink},
		upgradeRoute(one+"/view", byLink, watchSignIn),
		{method: get, pattern: one + "/session", access: byLink, serve: signInSession},
		{method: post, pattern: one + "/done", access: byLink, serve: signInDone},
	}
}

// byLink is for who shows the cookie of the link in the path.
var byLink = access{byCapabilityOnly, (*call).takeLink}

// noLink refuses who has no valid link. It is the same for a link that was used, is too old, was
// revoked, or never was.
func (c *call) noLink() error {
	p := api.Refuse(api.CodeNotFound, "this sign-in link cannot be used: it was used already, is too old or incomplete, or was taken back. Ask for another one")
	c.denials.note(c, p)
	return p
}

// takeLink makes the call one of the person who has the link in the path.
func (c *call) takeLink() error {
	if c.showsLink() {
		return nil
	}
	return c.noLink()
}

func (c *call) showsLink() bool {
	for _, cookie := range c.r.CookiesNamed(signInCookie) {
		if l, ok := c.links.find(c.param("link"), cookie.Value, true, time.Now()); ok && l.session != "" {
			c.link = l
			c.take(principal.OfLink(l.id))
			return true
		}
	}
	return false
}

// ofLink returns the session of the link, unless somebody else has it by now.
func (c *call) ofLink() (api.Session, error) {
	s, err := c.svc.Session(c.link.session)
	if err == nil && s.State != api.SessionEnded && (s.Person == nil || s.Person.Principal != c.who.Name) {
		err = c.noLink()
	}
	return s, err
}

// makeSignInLink makes the link of a profile. One that it had before is revoked.
func makeSignInLink(c *call) error {
	in, err := optional[api.SignInLinkRequest]("request for a sign-in link")(c)
	if err != nil {
		return err
	}
	profile, err := profileID(c)
	if err != nil {
		return err
	}
	begin, err := c.svc.PlanSignIn(c.r.Context(), profile, in.URL)
	if err != nil {
		return err
	}
	secret, now := id.Secret(), time.Now()
	l := signInLink{id: id.New("lnk"), profile: profile, maker: c.who, begin: begin, secret: sha256.Sum256([]byte(secret)), expires: now.Add(api.SignInTime)}
	if err := c.endLink(c.links.put(l, now)); err != nil {
		return err
	}
	c.o.Log.Info().Str("profile", profile).Str("principal", c.who.Name).Str("link", l.id).Time("expires", l.expires).Msg("sign-in link made")
	u := c.base().JoinPath("sign-in", l.id)
	u.Fragment = secret
	return c.json(http.StatusCreated, api.SignInLink{LinkID: l.id, ProfileID: profile, URL: u.String(), ExpiresAt: l.expires.UTC()})
}

// revokeSignInLink takes the link of a profile back. A person who has used it is out.
func revokeSignInLink(c *call) error {
	profile, err := profileID(c)
	if err != nil {
		return err
	}
	l := c.links.remove(profile)
	if err := c.endLink(l); err != nil {
		return err
	}
	return c.json(http.StatusOK, api.SignInRevoked{ProfileID: profile, LinkID: l.id, SessionID: l.session})
}

// endLink ends what the person of a link has that is not valid any more.
func (c *call) endLink(l signInLink) error {
	if l.id != "" {
		c.o.Log.Info().Str("profile", l.profile).Str("principal", c.who.Name).Str("link", l.id).Msg("sign-in link revoked")
	}
	if l.session == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(principal.In(context.WithoutCancel(c.r.Context()), principal.OfLink(l.id)), endSignInTimeout)
	defer cancel()
	var p *api.Problem
	err := c.svc.EndSignIn(ctx, l.session, "the sign-in link was revoked")
	if errors.As(err, &p) { // it is over, or another person has it
		return nil
	}
	return err
}

// signInPage sends the page behind a link: that of the living session to who shows its cookie, and to
// all others one that says nothing of the link.
func signInPage(c *call) error {
	c.r.Pattern = c.route.method + " " + c.route.pattern
	c.r.SetPathValue("link", c.param("link"))
	if c.showsLink() {
		if s, err := c.ofLink(); err == nil && s.State != api.SessionEnded {
			c.r.SetPathValue("profile", s.ProfileID)
			c.r.SetPathValue("session", s.SessionID)
		}
	}
	return c.pass(c.o.Console)
}

// useSignInLink is the one use of a link.
func useSignInLink(c *call) error {
	if err := c.readForm(); err != nil {
		return err
	}
	now, secret, cookie := time.Now(), c.r.PostForm.Get("secret"), id.Secret()
	before, known := c.links.find(c.param("link"), secret, false, now)
	if !known || !c.stillMay(before.maker, before.profile) {
		return c.noLink()
	}
	l, ok := c.links.use(before.id, secret, cookie, now)
	if !ok {
		return c.noLink()
	}
	log := c.o.Log.With().Str("profile", l.profile).Str("link", l.id).Str("peer", c.r.RemoteAddr).Logger()
	s, err := c.beginSignIn(l)
	if err != nil {
		c.links.unuse(l, secret, before.expires)
		log.Warn().Err(err).Msg("sign-in link shown, and nothing could be begun")
		var p *api.Problem
		if !errors.As(err, &p) {
			return err
		}
		// Whose the profile is now is not for who has the link.
		refused := api.Refuse(p.Code, "the account cannot be signed in now (%s): try again in a while, or ask who sent you the link", strings.ReplaceAll(p.Code, "_", " "))
		refused.RetryAfter = p.RetryAfter
		return refused
	}
	log.Info().Str("session", s.SessionID).Msg("sign-in link used")
	if l.session = s.SessionID; !c.links.began(l, s.SessionID) { // it was revoked meanwhile
		return cmp.Or(c.endLink(l), c.noLink())
	}
	if c.gone() { // nobody gets the cookie: they may come again
		c.links.unuse(l, secret, before.expires)
		return errGone
	}
	base := c.base()
	path := strings.TrimSuffix(base.Path, "/") + "/sign-in/" + l.id
	http.SetCookie(c.w, &http.Cookie{
		Name: signInCookie, Value: cookie, Path: path, MaxAge: int(api.SignInTime.Seconds()),
		HttpOnly: true, Secure: base.Scheme == "https", SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(c.w, c.r, path, http.StatusSeeOther)
	return nil
}

// beginSignIn begins the session of a link. One that was begun for it, and whose person could not be told
// of it, goes on.
func (c *call) beginSignIn(l signInLink) (api.Session, error) {
	who := principal.OfLink(l.id)
	if l.session != "" {
		s, err := c.svc.Session(l.session)
		if err == nil && s.State != api.SessionEnded && s.Person != nil && s.Person.Principal == who.Name {
			return s, nil
		}
	}
	return c.svc.BeginSignIn(principal.In(context.WithoutCancel(c.r.Context()), who), l.profile, api.SignInStart{LinkID: l.id, By: l.maker.Name, URL: l.begin})
}

// stillMay tells whether who made a link may still use the profile by hand. Users of this host are as
// they were when the launcher began.
func (c *call) stillMay(maker principal.Principal, profile string) bool {
	if c.o.Gate == nil || maker.UID != nil && strings.HasPrefix(maker.Name, "uid:") {
		return true
	}
	now, known := c.o.Gate.Known(maker)
	return known && now.May(principal.Hold, profile)
}

// watchSignIn shows the session of a link to its person, and takes in their input.
func watchSignIn(c *call) error {
	s, err := c.ofLink()
	if err != nil {
		return err
	}
	return c.watch(s.SessionID)
}

// signInSession says whether the session of a link goes on.
func signInSession(c *call) error {
	s, err := c.ofLink()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, api.SignInSession{State: s.State, Ended: s.Ended})
}

// signInDone is for a person who says that they have signed the account in.
func signInDone(c *call) error {
	if _, err := optional[struct{}]("word that it is done")(c); err != nil {
		return err
	}
	s, err := c.ofLink()
	if err != nil {
		return err
	}
	found, err := c.svc.CheckSignIn(c.r.Context(), s.SessionID)
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.CodeTakenOver { // meanwhile; who has it now is not theirs to know
		return c.noLink()
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, found)
}
