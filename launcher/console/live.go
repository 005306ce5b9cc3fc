package console

import (
	"net/http"
	"net/url"
	"slices"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// liveView is what the page of a living session shows.
type liveView struct {
	Profile string
	Query   string // query of links, see view
	// Wanted is the session that the link names; empty: it names none. Session is the one that is shown.
	Wanted  string
	Session *api.Session
	// Others are further living sessions of the profile on this host. Home is the launcher that
	// has the profile, if this one has no session of it.
	Others []api.Session
	State  string
	Who    principal.Principal
	// Link is the sign-in link by which the person came; empty: they came by none.
	Link string
}

// live sends the page on which a living session of the profile is watched: the one that the
// query names, or else the newest.
func (p *pages) live(w http.ResponseWriter, r *http.Request, profile string) {
	record, err := p.svc.Profile(r.Context(), profile)
	if err != nil {
		p.fail(w, r, profile, err)
		return
	}
	v := liveView{Profile: profile, Query: tokenQuery(r), Wanted: r.URL.Query().Get("session"), State: shownState(record), Who: principal.Of(r.Context())}
	all := p.svc.Sessions()
	slices.Reverse(all) // newest first, and those on copies last
	slices.SortStableFunc(all, func(a, b api.Session) int {
		switch {
		case a.Ephemeral == b.Ephemeral:
			return 0
		case b.Ephemeral:
			return -1
		}
		return 1
	})
	for _, s := range all {
		switch {
		case s.ProfileID != profile:
		case v.Session == nil && (v.Wanted == "" || v.Wanted == s.SessionID):
			v.Session = &s
		default:
			v.Others = append(v.Others, s)
		}
	}
	p.send(w, p.watch, http.StatusOK, "live.html", v)
}

// signInView is what the page behind a sign-in link shows to who has not used it.
type signInView struct{ Link string }

// showSignIn sends the page behind a sign-in link: of the session, to the person who has it by now.
func (p *pages) showSignIn(w http.ResponseWriter, r *http.Request) {
	link, session := r.PathValue("link"), r.PathValue("session")
	if session != "" {
		if s, err := p.svc.Session(session); err == nil {
			p.send(w, p.watch, http.StatusOK, "live.html", liveView{Profile: s.ProfileID, Session: &s, Who: principal.Of(r.Context()), Link: link})
			return
		}
	}
	p.send(w, p.signIn, http.StatusOK, "signin.html", signInView{Link: link})
}

// Here names the page among those of the navigation: none of them.
func (v liveView) Here() string { return "" }

// Of is the link to another session's page.
func (v liveView) Of(sessionID string) string { return liveOf(v.Profile, v.Query, sessionID) }

// Live is the link to the page of a living session of the profile.
func (v *view) Live(s *api.Session) string { return liveOf(v.Record.ProfileID, v.Query, s.SessionID) }

// liveOf is the link to the page of a living session; query is that of links, see view.
func liveOf(profile, query, sessionID string) string {
	link := "/console/" + url.PathEscape(profile) + "/live" + query
	if query == "" {
		return link + "?session=" + url.QueryEscape(sessionID)
	}
	return link + "&session=" + url.QueryEscape(sessionID)
}

// Watchable says that the user may watch a living session of the profile.
func (v *view) Watchable() bool {
	return v.Living != nil && v.Who.May(principal.TakeOver, v.Record.ProfileID)
}
