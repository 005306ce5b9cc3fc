package accounts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/sites"
	"leasehold/lease"
)

// Sites lists what is known of sites.
func (a *Service) Sites(context.Context) ([]api.SiteSummary, error) {
	list := []api.SiteSummary{}
	for _, e := range a.host.Sites.List() {
		list = append(list, api.SiteSummary{Name: e.Name, Origins: e.Origins, Requests: len(e.Requests), Revision: e.Revision})
	}
	return list, nil
}

// Site returns what is known of one site.
func (a *Service) Site(_ context.Context, name string) (api.Site, error) {
	e, err := a.host.Sites.Get(name)
	return api.Site{File: e.File, Revision: e.Revision}, siteProblem(name, err)
}

// PutSite says what is known of a site, in the name of the principal of ctx.
func (a *Service) PutSite(ctx context.Context, name string, p api.SitePut) (api.Site, error) {
	file, err := checkedFile(name, p.File)
	if err != nil {
		return api.Site{}, err
	}
	e, err := a.host.Sites.Put(ctx, file, revisionOr(p.Revision), principal.Of(ctx).Name, time.Now())
	if err == nil {
		a.host.Log.Info().Str("site", name).Str("principal", principal.Of(ctx).Name).Int("requests", len(e.Requests)).Msg("what is known of a site was changed")
	}
	return api.Site{File: e.File, Revision: e.Revision}, siteProblem(name, err)
}

// TeachSite says what requests of one shape do, in the name of the principal of ctx.
func (a *Service) TeachSite(ctx context.Context, t api.SiteTeaching) (api.Site, error) {
	who := principal.Of(ctx).Name
	e, err := a.host.Sites.Teach(ctx, site.Line{Shape: t.Shape, Is: t.Is, Incident: t.Incident}, who, time.Now())
	if wrong, ok := errors.AsType[*site.Error](err); ok {
		return api.Site{}, api.Invalid("shape", "%s", wrong.Why)
	}
	if err == nil {
		a.host.Log.Info().Str("site", e.Name).Str("principal", who).Str("is", t.Is).Msg("what is known of a kind of requests was changed")
	}
	return api.Site{File: e.File, Revision: e.Revision}, siteProblem(e.Name, err)
}

// SiteShapes are the shapes that were counted for a site.
func (a *Service) SiteShapes(ctx context.Context, name string) ([]api.SiteShape, error) {
	if site.CheckName(name) != nil { // no site has it
		return nil, siteProblem(name, sites.ErrUnknown)
	}
	e, missing := a.host.Sites.Get(name)
	counted, err := a.host.Sites.Counts(ctx, name)
	if err == nil && len(counted) == 0 {
		err = missing
	}
	if err != nil {
		return nil, siteProblem(name, err)
	}
	list := []api.SiteShape{}
	for shp, c := range counted {
		line, _ := e.About(shp)
		list = append(list, api.SiteShape{
			Shape: shp, Sessions: c.Sessions, Accounts: len(c.Accounts), Unchanged: c.Unchanged, Changed: c.Changed, LastAt: c.LastAt,
			Is: line.Is, SaidBy: line.SaidBy, SaidAt: line.SaidAt, Proposed: e.Proposes(shp, c),
		})
	}
	slices.SortFunc(list, func(a, b api.SiteShape) int { return cmp.Compare(a.Shape, b.Shape) })
	return list, nil
}

// SiteAnswers are the last answers to the questions of a site's file that this host keeps. What it cannot
// read it does not have.
func (a *Service) SiteAnswers(_ context.Context, name string) (all []api.SiteAnswer, _ error) {
	e, _ := a.host.Sites.Get(name) // without a file it has no questions
	questions := slices.Concat(e.Questions(), e.Rehearsals())
	if len(questions) == 0 {
		return nil, nil
	}
	rows, _, _ := a.host.Catalog.Rows()
	for _, row := range rows {
		kept, err := a.host.Answers.Load(row.Record.ProfileID)
		if err != nil {
			a.host.Log.Warn().Err(err).Msg("the last answers about an account are not shown")
		}
		for _, q := range questions {
			if k, ok := kept[q.ID()]; ok && k.Means == q.Means() {
				all = append(all, api.SiteAnswer{Question: q.ID(), ProfileID: row.Record.ProfileID, Text: k.Text, At: k.At, Moved: k.Moved})
			}
		}
	}
	return all, nil
}

const (
	// maxReplayed is how many incidents of a site are decided again.
	maxReplayed = 100
	// replayTimeout bounds how long they are looked for.
	replayTimeout = 10 * time.Second
)

// ReplaySite decides the last incidents of a site again, as if the file had been known all the time.
func (a *Service) ReplaySite(ctx context.Context, name string, r api.SiteReplay) (api.SiteReplayed, error) {
	replayed := api.SiteReplayed{Name: name, Incidents: []api.IncidentReplayed{}}
	file, err := checkedFile(name, r.File)
	if err != nil {
		return replayed, err
	}
	book, err := a.host.Sites.Book().With(file)
	if err != nil {
		return replayed, api.Invalid("", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	a.replaying.Lock() // one at a time: each reads what is kept
	defer a.replaying.Unlock()
	pasts, err := a.host.Recoverer.Pasts(ctx)
	if err != nil {
		return replayed, err
	}
	for p := range pasts {
		if !p.Concerns(file) || !principal.Of(ctx).May(principal.Read, p.ProfileID) {
			continue
		}
		i := api.IncidentReplayed{EvidenceID: p.EvidenceID, ProfileID: p.ProfileID, At: p.At, Decided: p.Outcome}
		d, doubt := p.Again(book, a.o.ReviewWhen...)
		i.Would, i.Reasons, i.Doubt = d.Outcome, d.Reasons, doubt
		if replayed.Incidents = append(replayed.Incidents, i); len(replayed.Incidents) == maxReplayed {
			break
		}
	}
	return replayed, nil
}

// checkedFile is a file about the site of that name.
func checkedFile(name string, f site.File) (site.File, error) {
	if f.Name == "" {
		f.Name = name
	}
	if f.Name != name {
		return f, api.Invalid("name", "%q: want %q, the name in the path, or none", f.Name, name)
	}
	var wrong *site.Error
	if err := f.Check(); errors.As(err, &wrong) {
		return f, api.Invalid(wrong.Path, "%s", wrong.Why)
	}
	return f, nil
}

// DeleteSite forgets what is known of a site.
func (a *Service) DeleteSite(ctx context.Context, name string, d api.SiteDelete) error {
	err := a.host.Sites.Delete(ctx, name, revisionOr(d.Revision), principal.Of(ctx).Name, time.Now())
	if err == nil {
		a.host.Log.Info().Str("site", name).Str("principal", principal.Of(ctx).Name).Msg("what was known of a site was removed")
	}
	return siteProblem(name, err)
}

func revisionOr(seen *uint64) uint64 {
	if seen == nil {
		return sites.Any
	}
	return *seen
}

func siteProblem(name string, err error) error {
	switch {
	case errors.Is(err, sites.ErrUnknown):
		return api.Refuse(api.CodeNotFound, "nothing is known of a site %q: leasehold sites list", name)
	case errors.Is(err, lease.ErrSiteMoved):
		return api.Refuse(api.CodeSiteChanged, "site %s: somebody else has changed it since: read it again, and send what you want to change with its new revision", name)
	case errors.Is(err, sites.ErrNoStore):
		return api.Refuse(api.CodeStoreUnavailable, "%v", err)
	}
	return host.Problem(err)
}
