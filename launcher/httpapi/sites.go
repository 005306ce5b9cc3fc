package httpapi

import (
	"net/http"
	"strconv"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

func siteRoutes() []route {
	const one = "/sites/{site}"
	return []route{
		v1(http.MethodGet, "/sites", forRole(principal.Read), listSites),
		v1(http.MethodPost, "/sites", onEveryProfile(principal.Manage), teachSite),
		v1(http.MethodGet, one, forRole(principal.Read), read(siteName, api.Service.Site, answerWith[api.Site](http.StatusOK))),
		v1(http.MethodPut, one, onEveryProfile(principal.Manage), write(siteName, required[api.SitePut]("file about a site"), api.Service.PutSite, answerWith[api.Site](http.StatusOK))),
		v1(http.MethodGet, one+"/shapes", forRole(principal.Read), read(siteName, api.Service.SiteShapes, answerPage(shapeOrder))),
		v1(http.MethodPost, one+"/try", onEveryProfile(principal.Manage), write(siteName, required[api.SiteTry]("file about a site, with profile_id"), api.Service.TrySite, answerWith[api.SiteTried](http.StatusOK))),
		v1(http.MethodPost, one+"/replay", forRole(principal.Read), write(siteName, required[api.SiteReplay]("file about a site"), api.Service.ReplaySite, answerWith[api.SiteReplayed](http.StatusOK))),
		v1(http.MethodDelete, one, onEveryProfile(principal.Manage), deleteSite),
	}
}

// onEveryProfile is for those with a right on all profiles: what is known of a site counts for each
// of them.
func onEveryProfile(right principal.Right) access {
	return access{byPrincipal, func(c *call) error {
		if !c.who.Role.Has(right) {
			return c.forbidden(right, "")
		}
		if !c.who.Everywhere(right) {
			p := api.Refuse(api.CodeForbidden, `you are %s, and what is known of a site counts for every profile: this needs the pattern "*"`, c.who)
			c.denials.note(c, p)
			return p
		}
		return nil
	}}
}

var siteOrder = ascending(func(s api.SiteSummary) string { return s.Name })

var shapeOrder = ascending(func(s api.SiteShape) string { return s.Shape })

func listSites(c *call) error {
	all, err := c.svc.Sites(c.r.Context())
	if err != nil {
		return err
	}
	return answerPage(siteOrder)(c, all)
}

func teachSite(c *call) error {
	t, err := required[api.SiteTeaching]("what is known of a kind of requests")(c)
	if err != nil {
		return err
	}
	s, err := c.svc.TeachSite(c.r.Context(), t)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, s)
}

func siteName(c *call) (string, error) {
	name := c.param("site")
	if err := site.CheckName(name); err != nil {
		return "", api.Invalid("name", "%v", err)
	}
	return name, nil
}

func deleteSite(c *call) error {
	name, err := siteName(c)
	if err != nil {
		return err
	}
	var d api.SiteDelete
	if text := c.query.Get("revision"); text != "" {
		revision, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return api.Invalid("revision", "%.40q: want the number that the file had when it was read", text)
		}
		d.Revision = &revision
	}
	if err := c.svc.DeleteSite(c.r.Context(), name, d); err != nil {
		return err
	}
	return c.json(http.StatusOK, api.SiteRemoved{Name: name})
}
