package witness

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/look"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// pages is the witness of the pages that were open at the end: their pictures and DOM, and what
// they ask for. It answers from the bundles, when the pages are gone.
type pages struct {
	browser *browser.Browser // nil: there is none
	archive *evidence.Archive
}

func (p pages) Add(ctx context.Context, c recovery.Capture, to recovery.Parts) {
	switch {
	case p.browser == nil:
		to.AddMissing("screenshot-1.jpg", "screenshot", "there was no browser left to ask")
		return
	case !p.browser.Driven():
		to.AddMissing("screenshot-1.jpg", "screenshot", "the browser's pipe could not be had, so that nobody could ask it")
		return
	}
	m := p.browser.Monitor()
	limits := capture.Limits{LeaveBusy: c.Shared, Still: p.browser.Still(), Crashed: m.Crashed}
	if limits.Still {
		limits.Free = p.free(c)
	}
	if c.Reason == api.ReasonBrowserHangs { // it is not asked anything
		limits.Silent = p.browser.Failure().Detail
		to.SetFound([]evidence.Found{{Name: table.PagesLookedAt, Answer: string(table.No), How: limits.Silent}})
		capture.Pages(ctx, m.Observer(), m.Pages(), to.Bundle, limits)
		return
	}
	looker := look.New(m.Observer(), m.ToLookAt())
	limits.Look = looker.Look
	capture.Pages(ctx, m.Observer(), m.Pages(), to.Bundle, limits)
	if err := looker.AddTo(to.Bundle); err != nil {
		to.Log.Warn().Err(err).Msg("what the pages ask for is not in the evidence")
	}
}

// free frees pages that wait for the network. While the worker may come back they are left as they
// are, and the session captures them once more when it is gone.
func (p pages) free(c recovery.Capture) func(context.Context) error {
	if c.Final {
		return p.browser.FreePages
	}
	return func(context.Context) error {
		p.browser.PagesWait()
		return errors.New("it waits for the network, and its worker may come back")
	}
}

// Facts has what was seen of the pages of the session, and of each further run that was lost.
func (p pages) Facts(ctx context.Context, c recovery.Closed, _ *api.Inspection) []table.Fact {
	bundles := []string{c.File.Evidence.EvidenceID}
	for _, run := range c.Lost {
		bundles = append(bundles, run.File.Evidence.EvidenceID)
	}
	var seen [][]table.Fact
	picture := table.Fact{Name: table.ScreenshotKnown, Answer: table.No, How: "evidence unknown"}
	for i, id := range bundles {
		if id == "" {
			continue
		}
		m, err := manifest(ctx, p.archive, id)
		seen = append(seen, seenIn(m, err))
		if i == 0 {
			picture = pictured(m, err, id)
		}
	}
	return append(findings.Pages(seen...), picture)
}

// seenIn are the facts about open pages in a bundle. If it cannot be read, nothing counts as
// seen.
func seenIn(m evidence.Manifest, err error) []table.Fact {
	if err != nil {
		return []table.Fact{{Name: table.PagesLookedAt, Answer: table.No, How: "what was seen of the pages cannot be read: " + err.Error()}}
	}
	var facts []table.Fact
	for _, f := range m.Found {
		how := cmp.Or(f.How, "the evidence says how, and is encrypted")
		if f.Picture != "" {
			how += "; the evidence's " + f.Picture + " shows it"
		}
		facts = append(facts, table.Fact{Name: f.Name, Answer: table.Answer(f.Answer), How: how})
	}
	return facts
}

// pictured tells whether a bundle has a picture of a page.
func pictured(m evidence.Manifest, err error, evidenceID string) table.Fact {
	f := table.Fact{Name: table.ScreenshotKnown, Answer: table.No, How: "evidence " + evidenceID}
	if err != nil {
		f.Answer, f.How = table.Unknown, f.How+" cannot be read: "+err.Error()
		return f
	}
	f.Answer = table.Is(m.LastScreenshot != "" || slices.ContainsFunc(m.Pictures, func(p evidence.Picture) bool { return p.Missing == "" }))
	return f
}

// manifest is a bundle's manifest, opened if it is encrypted and this launcher has the key.
func manifest(ctx context.Context, a *evidence.Archive, evidenceID string) (evidence.Manifest, error) {
	if evidenceID == "" {
		return evidence.Manifest{}, errors.New("no evidence was stored")
	}
	raw, err := a.Manifest(ctx, evidenceID)
	if err != nil {
		return evidence.Manifest{}, err
	}
	m, err := evidence.Decode(evidenceID, raw)
	if err == nil {
		m, _ = a.Opened(m)
	}
	return m, err
}
