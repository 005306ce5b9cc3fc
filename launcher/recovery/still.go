package recovery

import (
	"cmp"
	"context"
	"encoding/json"

	"leasehold/evidence"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery/table"
)

// WithheldPart is the part of a bundle with the unsafe requests and messages that pages made
// after their worker was lost, and that were withheld. Those that are made after the sealing of
// the bundle are in the journal.
const WithheldPart = "withheld.json"

// standStill stops everything that a living browser would send.
func (s *steps) standStill() {
	if s.Browser.Driven() && !s.closed {
		s.Browser.StandStill(s.Log)
	}
}

// addWithheld adds to a bundle what was withheld until now, if anything was.
func (s *steps) addWithheld(b *evidence.Bundle) {
	if b == nil || !s.Browser.Driven() {
		return
	}
	list, more := s.Browser.Monitor().Still().Withheld()
	if len(list) == 0 {
		return
	}
	content, err := json.Marshal(struct {
		Requests []monitor.Withheld `json:"requests"`
		// More is the number of further ones.
		More uint64 `json:"more,omitempty"`
	}{list, more})
	parts{b, s.Log}.add(WithheldPart, evidence.KindWithheld, mediaJSON, content, err)
}

// endPages ends the pages of a lost worker's browser. From then until it is closed, the browser
// answers commands but sends nothing by itself. One page of the launcher's own may be let
// through (monitor.Rules).
func (s *steps) endPages() {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := s.Browser.EndPages(ctx, s.Log); err != nil {
		s.Log.Error().Err(err).Msg("the pages cannot be ended: the browser is closed by signals")
	}
}

// takeStill notes how the browser, which is closed now, stood still.
func (s *steps) takeStill() {
	s.still = s.Browser.StillFacts()
	for _, f := range s.still {
		if f.Name == table.CookiesWhole && f.Answer == table.No {
			s.File.CookiesLost = f.How
		}
	}
}

// stillFacts are the facts about how the browser stood still.
func (s *steps) stillFacts() table.Inspection {
	facts := table.Inspection(s.still)
	if facts == nil {
		how := "there was no browser left"
		if s.File.CloseMethod != "" {
			how = "the browser was closed by an earlier try"
		}
		facts = table.Inspection{{Name: table.StoodStill, Answer: table.Unknown, How: how}, {Name: table.CookiesWhole, Answer: table.Unknown, How: how}}
	}
	if lost := cmp.Or(s.File.CookiesLost, s.File.NotStored); lost != "" {
		facts = with(facts, table.Fact{Name: table.CookiesWhole, Answer: table.No, How: lost})
	}
	return facts
}
