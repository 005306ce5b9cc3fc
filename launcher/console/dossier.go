package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the formats that pictures of pages have
	_ "image/png"
	"slices"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/look"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// dossier is what is known about a profile and its last session, for its page. What could not
// be found out is in Missing, in words for a person.
type dossier struct {
	Record     api.Profile
	Sessions   []api.Session // the living ones of the profile
	Inspection api.Inspection
	// Said is what is known by now of shapes of which nothing was known in the inspection.
	Said    map[string]site.Line
	Counted map[string]api.SiteShape // of these shapes, in sessions that ended in order
	Sites   []string                 // of these, with a page
	Events  []lease.Event
	Bundles []api.Bundle // newest first
	// Bundle is the bundle of the session that the page is about; nil if there is none.
	Bundle   *api.Bundle
	Journal  []checkpoint.Entry
	Commands []recorder.CommandEntry
	Unsent   []string // texts in fields that were not sent, by the kind of field
	Pages    []pageSeen
	travel
	// Reviews are the profiles that wait for a person and that the user may see, by name.
	Reviews []string
	// Alike is how many of them, others than this one, wait for the same reason as it does.
	Alike   int
	Missing []string
}

// pageSeen is an open page of a bundle, and its picture.
type pageSeen struct {
	api.BundlePage
	Picture *picture
	// Why says why there is no picture; empty if there is one.
	Why string
}

// picture is a picture that the page can show. Its size is zero if nobody looked.
type picture struct {
	EvidenceID, Part string
	Width, Height    int
	// Large says that it is shown only if a person asks for it.
	Large bool
	Bytes int64
}

// The bounds of what is read for one page.
const (
	gatherTimeout = 15 * time.Second
	// staleTimeout bounds each question while the lease store cannot be reached, since some of
	// the answers may be in it.
	staleTimeout = 3 * time.Second
	maxPages     = 12      // pages of a bundle whose pictures are looked at
	largePicture = 6 << 20 // size in bytes from which on a person has to ask for it
	maxPixels    = 50_000_000
)

// gatherer asks the service, and notes what cannot be found out.
type gatherer struct {
	svc api.Service
	ctx context.Context
	d   *dossier
}

// gather asks the service for everything that a profile's page shows. Its error is that of the
// record: without a record there is no page.
func gather(ctx context.Context, svc api.Service, profile string) (*dossier, error) {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	record, err := svc.Profile(ctx, profile)
	if err != nil {
		return nil, err
	}
	g := &gatherer{svc, ctx, &dossier{Record: record}}
	for _, s := range svc.Sessions() {
		if s.ProfileID == profile {
			g.d.Sessions = append(g.d.Sessions, s)
		}
	}
	each := gatherTimeout
	if !record.StaleSince.IsZero() {
		each = staleTimeout
	}
	g.d.Inspection, _ = ask(g, each, "What the recovery found cannot be read", svc.Inspection)
	g.said()
	g.reviews()
	g.d.Events, _ = ask(g, each, "The profile's history cannot be read", svc.History)
	g.travel(each)
	var listed bool
	if g.d.Bundles, listed = ask(g, each, "The list of the profile's evidence cannot be read", svc.Evidence); listed {
		g.bundle(incidentEvidence(record))
	}
	return g.d, nil
}

// ask asks for one thing about the profile. If it cannot be had, ask returns false and notes
// that, under the name what. If it does not exist, nothing is noted.
func ask[T any](g *gatherer, within time.Duration, what string, of func(context.Context, string) (T, error)) (T, bool) {
	ctx, cancel := context.WithTimeout(g.ctx, within)
	defer cancel()
	found, err := of(ctx, g.d.Record.ProfileID)
	if err != nil && !isCode(err, api.CodeNotFound) {
		g.miss(what, err)
		return found, false
	}
	return found, true
}

// reviews lists who waits for a person.
func (g *gatherer) reviews() {
	who := principal.Of(g.ctx)
	found, err := g.svc.ListProfiles(g.ctx, api.ProfileQuery{
		States: []lease.State{lease.ManualReview}, Visible: func(id string) bool { return who.May(principal.Evidence, id) },
	})
	if err != nil {
		g.miss("Who else waits for a person is not known", err)
	}
	for _, r := range found.Items {
		g.d.Reviews = append(g.d.Reviews, r.ProfileID)
		if mine := g.d.Record; mine.State == lease.ManualReview && r.ProfileID != mine.ProfileID && r.Reason == mine.Reason {
			g.d.Alike++
		}
	}
}

// incidentEvidence is the bundle that the page is about: the incident's, even if a person has
// used the profile by hand since.
func incidentEvidence(r api.Profile) string {
	if r.ByHand != nil && r.ByHand.Review != nil {
		return r.ByHand.Review.EvidenceID
	}
	return r.EvidenceID
}

// miss notes that something could not be found out.
func (g *gatherer) miss(what string, err error) {
	g.d.Missing = append(g.d.Missing, what+": "+reason(err)+".")
}

// reason is an error in words for a person. The text of an error that is no refusal does not
// leave the host.
func reason(err error) string {
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		return p.Detail
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	}
	return "the launcher could not do it, and its log says why"
}

func isCode(err error, code string) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Code == code
}

// bundle reads what the page needs of a bundle.
func (g *gatherer) bundle(evidenceID string) {
	if evidenceID == "" {
		return
	}
	at := slices.IndexFunc(g.d.Bundles, func(b api.Bundle) bool { return b.EvidenceID == evidenceID })
	if at < 0 {
		g.d.Missing = append(g.d.Missing, "The evidence "+evidenceID+", which the record names, is not in the store.")
		return
	}
	b := &g.d.Bundles[at]
	g.d.Bundle = b
	g.checkSeal(b)
	if b.Locked {
		g.d.Missing = append(g.d.Missing, "The evidence is encrypted, and this sidecar has no key for it (--evidence-identity): pictures, URLs and the journal are not shown. leasehold evidence --identity FILE opens it.")
		return
	}
	var look []look.Seen
	var commands struct{ Entries []recorder.CommandEntry }
	for _, p := range b.Parts {
		switch p.Kind {
		case evidence.KindJournal:
			if content, ok := g.part(b, p); ok {
				g.d.Journal = checkpoint.Parse(content)
			}
		case evidence.KindCommands:
			g.decode(b, p, &commands)
		case evidence.KindLook:
			g.decode(b, p, &look)
		}
	}
	g.d.Commands = commands.Entries
	for _, page := range look {
		for _, shown := range page.Shows {
			if slices.Contains(unsentFacts, shown.Question) {
				g.d.Unsent = append(g.d.Unsent, shown.How)
			}
		}
	}
	g.pages(b)
}

// checkSeal compares the bundle's manifest with the hash that the record has of it.
func (g *gatherer) checkSeal(b *api.Bundle) {
	r := g.d.Record
	raw, err := g.svc.EvidenceManifest(g.ctx, b.EvidenceID)
	if err != nil {
		g.miss("The manifest of the evidence cannot be read", err)
		return
	}
	sum := sha256.Sum256(raw)
	if b.EvidenceID == r.EvidenceID && r.EvidenceSHA256 != "" && r.EvidenceSHA256 != hex.EncodeToString(sum[:]) {
		g.d.Missing = append(g.d.Missing, "The evidence is not what was sealed: its manifest is not the one that the record names. Do not rely on what it shows, and run leasehold evidence verify.")
	}
}

func (g *gatherer) decode(b *api.Bundle, p api.Part, into any) {
	content, ok := g.part(b, p)
	if !ok {
		return
	}
	if err := json.Unmarshal(content, into); err != nil {
		g.d.Missing = append(g.d.Missing, p.Name+" cannot be read: it is not what this version writes.")
	}
}

// part reads a part of a bundle. If it cannot be had, part returns false and notes that.
func (g *gatherer) part(b *api.Bundle, p api.Part) ([]byte, bool) {
	if p.Missing != "" {
		g.d.Missing = append(g.d.Missing, "There is no "+p.Name+": "+p.Missing+".")
		return nil, false
	}
	content, _, err := g.svc.EvidencePart(g.ctx, b.EvidenceID, p.Name, false)
	if err != nil {
		g.miss(p.Name+" cannot be read", err)
		return nil, false
	}
	return content, true
}

// pages are the open pages of a bundle, the last used one first. A bundle of an earlier
// version, or a picture of a living session, only names screenshots.
func (g *gatherer) pages(b *api.Bundle) {
	for _, p := range b.Pages {
		g.d.Pages = append(g.d.Pages, g.page(b, p))
	}
	if len(b.Pages) == 0 {
		for _, p := range b.Parts {
			if p.Kind == evidence.KindScreenshot {
				g.d.Pages = append(g.d.Pages, g.page(b, api.BundlePage{URL: b.LastKnownURL, Screenshot: p.Name, Missing: p.Missing}))
			}
		}
	}
	slices.SortStableFunc(g.d.Pages, func(a, b pageSeen) int {
		switch {
		case a.Primary == b.Primary:
			return 0
		case a.Primary:
			return -1
		}
		return 1
	})
}

// primaryPicture finds the picture of the page that was used last in the profile's last session. One
// that a person would have to ask for on the profile's page is none.
func primaryPicture(ctx context.Context, svc api.Service, profile string) (picture, error) {
	none := api.Refuse(api.CodeNotFound, "the last session of %s has left no picture that can be shown", profile)
	record, err := svc.Profile(ctx, profile)
	if err != nil {
		return picture{}, err
	}
	bundles, err := svc.Evidence(ctx, profile)
	if err != nil {
		return picture{}, err
	}
	at := slices.IndexFunc(bundles, func(b api.Bundle) bool { return b.EvidenceID == incidentEvidence(record) })
	if at < 0 {
		return picture{}, none
	}
	for _, page := range bundles[at].Pages {
		for _, part := range bundles[at].Parts {
			if page.Primary && page.Missing == "" && part.Name == page.Screenshot && part.Missing == "" && part.Bytes <= largePicture {
				return picture{EvidenceID: bundles[at].EvidenceID, Part: part.Name}, nil
			}
		}
	}
	return picture{}, none
}

// page looks at the picture of a page, to distinguish a picture that can be shown from one that
// is missing, damaged or no picture.
func (g *gatherer) page(b *api.Bundle, p api.BundlePage) pageSeen {
	seen := pageSeen{BundlePage: p, Why: p.Missing}
	if p.Screenshot == "" || p.Missing != "" {
		if seen.Why == "" {
			seen.Why = "nobody took one"
		}
		return seen
	}
	at := slices.IndexFunc(b.Parts, func(part api.Part) bool { return part.Name == p.Screenshot })
	if at < 0 {
		seen.Why = p.Screenshot + " is not in the bundle"
		return seen
	}
	pic := &picture{EvidenceID: b.EvidenceID, Part: p.Screenshot, Bytes: b.Parts[at].Bytes, Large: b.Parts[at].Bytes > largePicture}
	if pic.Large || len(g.d.Pages) >= maxPages {
		seen.Picture = pic
		return seen
	}
	content, _, err := g.svc.EvidencePart(g.ctx, b.EvidenceID, p.Screenshot, false)
	if err != nil {
		seen.Why = reason(err)
		return seen
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(content))
	switch {
	case err != nil:
		seen.Why = p.Screenshot + " is not a picture"
	case size.Width*size.Height > maxPixels:
		seen.Why = fmt.Sprintf("%s has %d by %d points, too many to show", p.Screenshot, size.Width, size.Height)
	default:
		pic.Width, pic.Height = size.Width, size.Height
		seen.Picture = pic
	}
	return seen
}
