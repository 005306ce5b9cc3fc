package console

import (
	"net/http"
	"slices"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// liveView is what the page of a living session shows.
type liveView struct {
	Profile string
	Query   string // query of links, see view
	Session *api.Session
	// Others are further living sessions of the profile on this host. Home is the launcher that
	// has the profile, if this one has no session of it.
	Others []api.Session
	State  string
	Who    principal.Principal
}

// live sends the page on which a living session of the profile is watched: the one that the
// query names, or else the newest.
func (p *pages) live(w http.ResponseWriter, r *http.Request, profile string) {
	record, err := p.svc.Profile(r.Context(), profile)
	if err != nil {
		p.fail(w, r, profile, err)
		return
	}
	v := liveView{Profile: profile, Query: tokenQuery(r), State: shownState(record), Who: principal.Of(r.Context())}
	wanted := r.URL.Query().Get("session")
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
		case v.Session == nil && (wanted == "" || wanted == s.SessionID):
			v.Session = &s
		default:
			v.Others = append(v.Others, s)
		}
	}
	p.send(w, p.watch, http.StatusOK, "live.html", v)
}

// Here names the page among those of the navigation: none of them.
func (v liveView) Here() string { return "" }

// Of is the link to another session's page.
func (v liveView) Of(sessionID string) string {
	link := "/console/" + v.Profile + "/live" + v.Query
	if v.Query == "" {
		return link + "?session=" + sessionID
	}
	return link + "&session=" + sessionID
}

// Watchable says that the user may watch a living session of the profile.
func (v *view) Watchable() bool {
	return v.Living != nil && v.Who.May(principal.TakeOver, v.Record.ProfileID)
}
