package recovery

import (
	"cmp"
	"context"

	"leasehold/evidence"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/recovery/table"
)

// pageFacts are the facts about the pages that were open at the end of the case's session, and
// of each further run that was lost. They come from the manifests of their bundles.
func (s *steps) pageFacts() table.Inspection {
	bundles := []string{s.File.Evidence.EvidenceID}
	for _, run := range s.Lost {
		bundles = append(bundles, run.File.Evidence.EvidenceID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var seen [][]table.Fact
	for _, id := range bundles {
		if id != "" {
			seen = append(seen, s.r.seenIn(ctx, id))
		}
	}
	return decision.Pages(seen...)
}

// seenIn are the facts about open pages in a bundle. If it cannot be read, nothing counts as
// seen.
func (r *Recoverer) seenIn(ctx context.Context, evidenceID string) []table.Fact {
	var m evidence.Manifest
	raw, err := r.o.Archive.Manifest(ctx, evidenceID)
	if err == nil {
		m, err = evidence.Decode(evidenceID, raw)
	}
	if err != nil {
		return []table.Fact{{Name: table.PagesLookedAt, Answer: table.No, How: "what was seen of the pages cannot be read: " + err.Error()}}
	}
	m, _ = r.o.Archive.Opened(m)
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
