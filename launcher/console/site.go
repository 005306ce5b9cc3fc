package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// siteView is what the page about a site shows.
type siteView struct {
	api.Site
	Query string
	// Known are the lines of its file, and Unknown the shapes that were counted of which it says nothing:
	// those of most sessions first.
	Known   []knownLine
	Unknown []api.SiteShape
	Asked   []askedView
	// Replayed are the last incidents as they would be decided with the file; nil: nobody asked for that.
	Replayed *api.SiteReplayed
	Again    string // leads to the page with them
}

// Here names the page, for the navigation.
func (siteView) Here() string { return "" }

type knownLine struct {
	site.Line
	Text string
}

// askedView is what a site is asked, with the last answers at rest.
type askedView struct {
	site.Question
	Last []api.SiteAnswer // the newest maxLast
	More int
	// Moved says that some account's answer was once seen to change.
	Moved bool
}

const maxLast = 5

// showSite sends the page about a site.
func (p *pages) showSite(w http.ResponseWriter, r *http.Request, name string) {
	v, err := p.siteOf(r.Context(), name)
	if err != nil {
		p.fail(w, r, name, err)
		return
	}
	again := url.Values{"again": {"1"}}
	if token := r.URL.Query().Get("token"); token != "" {
		again.Set("token", token)
	}
	v.Query, v.Again = tokenQuery(r), "?"+again.Encode()
	if r.URL.Query().Has("again") && len(v.Origins) > 0 {
		replayed, err := p.svc.ReplaySite(r.Context(), name, api.SiteReplay{File: v.File})
		if err != nil {
			p.fail(w, r, name, err)
			return
		}
		v.Replayed = &replayed
	}
	p.send(w, p.site, http.StatusOK, "site.html", v)
}

// siteOf asks for what the page shows. A site may have a file, counts, or both.
func (p *pages) siteOf(ctx context.Context, name string) (v siteView, err error) {
	shapes, counted := p.svc.SiteShapes(ctx, name)
	if v.Site, err = p.svc.Site(ctx, name); err != nil && (counted != nil || !isCode(err, api.CodeNotFound)) {
		return v, err
	}
	v.Name = name
	answers, err := p.svc.SiteAnswers(ctx, name)
	if err != nil {
		return v, err
	}
	who := principal.Of(ctx)
	answers = slices.DeleteFunc(answers, func(a api.SiteAnswer) bool { return !who.May(principal.Evidence, a.ProfileID) })
	return viewOfSite(v, shapes, answers), nil
}

// viewOfSite fills the page: it is a pure function of what was found.
func viewOfSite(v siteView, shapes []api.SiteShape, answers []api.SiteAnswer) siteView {
	for _, l := range v.Requests {
		v.Known = append(v.Known, knownLine{l, l.Text()})
	}
	v.Unknown = slices.DeleteFunc(slices.Clone(shapes), func(s api.SiteShape) bool { return s.Is != "" })
	slices.SortStableFunc(v.Unknown, func(a, b api.SiteShape) int { return cmp.Compare(b.Sessions, a.Sessions) })
	slices.SortStableFunc(answers, func(a, b api.SiteAnswer) int { return b.At.Compare(a.At) })
	for _, q := range slices.Concat(v.Questions(), v.Rehearsals()) {
		asked := askedView{Question: q}
		for _, a := range answers {
			if a.Question != q.ID() {
				continue
			}
			asked.Moved = asked.Moved || a.Moved
			if len(asked.Last) < maxLast {
				asked.Last = append(asked.Last, a)
			} else {
				asked.More++
			}
		}
		v.Asked = append(v.Asked, asked)
	}
	return v
}
