package console

import (
	"cmp"
	"slices"
	"strings"

	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
)

// kind is one shape of requests that count as unsafe.
type kind struct {
	Shape           string // empty: an older sidecar kept none, and the method and the address tell it apart
	Known           string // what the file of its site said of it when it was sent: read or write; empty: nothing
	Method, Address string // Address has no query
	Content         string
	Times           uint64
	Answers         []string // at most maxAnswers
	Since           bool     // the last safe checkpoint does not vouch for one of them
	// Said is what the file about the site says of this shape by now; nil: nothing.
	Said *site.Line
	// Counted is what was counted of this shape in sessions that ended in order.
	Counted api.SiteShape
}

const (
	maxKinds   = 24
	maxAnswers = 3
)

// kindsOf are the unknown shapes among the requests, see unknownKind. said has what is known of shapes by
// now, and counted what was counted of them.
func kindsOf(requests []api.UnsafeRequest, said map[string]site.Line, counted map[string]api.SiteShape) []kind {
	return kindsThat(unknownKind, requests, said, counted)
}

// kindsThat are the shapes of the requests for which is returns true, those since the last safe checkpoint
// first, each once.
func kindsThat(is func(api.UnsafeRequest) bool, requests []api.UnsafeRequest, said map[string]site.Line, counted map[string]api.SiteShape) (kinds []kind) {
	for _, r := range requests {
		if !is(r) {
			continue
		}
		at := slices.IndexFunc(kinds, func(k kind) bool {
			return k.Shape == r.Shape && k.Known == r.Known && (r.Shape != "" || k.Method == r.Method && k.Address == addressOf(r.URL))
		})
		if at < 0 {
			at = len(kinds)
			k := kind{Shape: r.Shape, Known: r.Known, Method: r.Method, Address: addressOf(r.URL), Content: r.Content(), Counted: counted[r.Shape]}
			if line, ok := said[r.Shape]; ok {
				k.Said = &line
			}
			kinds = append(kinds, k)
		}
		k := &kinds[at]
		k.Times += max(r.Times, 1)
		k.Since = k.Since || r.SinceSafeCheckpoint
		if answer := cmp.Or(r.Answer, "no answer is possible"); len(k.Answers) < maxAnswers && !slices.Contains(k.Answers, answer) {
			k.Answers = append(k.Answers, answer)
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(since01(b), since01(a)) })
	return kinds
}

func since01(k kind) int {
	if k.Since {
		return 1
	}
	return 0
}

// unknownKind tells whether nothing was known of a request that counts, and something can be said.
func unknownKind(r api.UnsafeRequest) bool {
	return counts(r) && r.Known == "" && shape.OriginOf(r.Shape[min(len(r.Method)+1, len(r.Shape)):]) != ""
}

// counts tells whether a request counts as a change of the account.
func counts(r api.UnsafeRequest) bool { return r.Counts == "unsafe" }

// addressOf is a URL without its query.
func addressOf(raw string) string {
	raw, _, _ = strings.Cut(raw, "#")
	raw, _, _ = strings.Cut(raw, "?")
	return raw
}

// said asks what is known by now of the unknown shapes of the inspection. What cannot be asked is not
// known.
func (g *gatherer) said() {
	var files []api.Site
	g.d.Said, g.d.Counted = map[string]site.Line{}, map[string]api.SiteShape{}
	for _, r := range g.d.Inspection.UnsafeRequests {
		if !unknownKind(r) {
			continue
		}
		if files == nil {
			files = g.filesAbout()
			g.counted(files)
		}
		for _, f := range files {
			if line, ok := f.Says(r.Shape); ok {
				g.d.Said[r.Shape] = line
			}
		}
	}
}

// counted asks what was counted of the shapes of the inspection, for their sites with and without a file.
func (g *gatherer) counted(files []api.Site) {
	var known []site.File
	for _, f := range files {
		known = append(known, f.File)
	}
	asked := map[string]bool{}
	for _, r := range g.d.Inspection.UnsafeRequests {
		name := site.FileFor(known, shape.OriginOf(r.URL)).Name
		if !unknownKind(r) || asked[name] {
			continue
		}
		asked[name] = true
		all, err := g.svc.SiteShapes(g.ctx, name)
		if err != nil && !isCode(err, api.CodeNotFound) {
			g.miss("What was counted of unknown requests cannot be read", err)
		}
		for _, s := range all {
			g.d.Counted[s.Shape] = s
		}
		if len(all) > 0 || slices.ContainsFunc(known, func(f site.File) bool { return f.Name == name }) {
			g.d.Sites = append(g.d.Sites, name)
		}
	}
}

// filesAbout are the files about the sites of the inspection's requests.
func (g *gatherer) filesAbout() []api.Site {
	all, err := g.svc.Sites(g.ctx)
	if err != nil {
		g.miss("What is known of sites cannot be read", err)
	}
	files := []api.Site{}
	for _, s := range all {
		about := site.File{Origins: s.Origins}
		if slices.ContainsFunc(g.d.Inspection.UnsafeRequests, func(r api.UnsafeRequest) bool { return about.Owns(r.URL) }) {
			if f, err := g.svc.Site(g.ctx, s.Name); err == nil {
				files = append(files, f)
			}
		}
	}
	return files
}
