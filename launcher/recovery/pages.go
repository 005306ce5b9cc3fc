package recovery

import (
	"cmp"
	"context"

	"leasehold/evidence"
	"leasehold/launcher/recovery/decision"
)

// pageFacts are the facts about the pages that were open at the end of the case's session, and
// of each further run that was lost. They come from the manifests of their bundles.
func (s *steps) pageFacts() decision.Inspection {
	bundles := []string{s.File.Evidence.EvidenceID}
	for _, run := range s.Lost {
		bundles = append(bundles, run.File.Evidence.EvidenceID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var seen [][]decision.Fact
	for _, id := range bundles {
		if id != "" {
			seen = append(seen, s.r.seenIn(ctx, id))
		}
	}
	return decision.Pages(seen...)
}

// seenIn are the facts about open pages in a bundle. If it cannot be read, nothing counts as
// seen.
func (r *Recoverer) seenIn(ctx context.Context, evidenceID string) []decision.Fact {
	var m evidence.Manifest
	raw, err := r.o.Archive.Manifest(ctx, evidenceID)
	if err == nil {
		m, err = evidence.Decode(evidenceID, raw)
	}
	if err != nil {
		return []decision.Fact{{Name: decision.PagesLookedAt, Answer: decision.No, How: "what was seen of the pages cannot be read: " + err.Error()}}
	}
	m, _ = r.o.Archive.Opened(m)
	var facts []decision.Fact
	for _, f := range m.Found {
		how := cmp.Or(f.How, "the evidence says how, and is encrypted")
		if f.Picture != "" {
			how += "; the evidence's " + f.Picture + " shows it"
		}
		facts = append(facts, decision.Fact{Name: f.Name, Answer: decision.Answer(f.Answer), How: how})
	}
	return facts
}
