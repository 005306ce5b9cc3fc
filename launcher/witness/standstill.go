package witness

import (
	"cmp"
	"context"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
)

// standstill is the witness of how a lost worker's browser stood still, and of what that kept back.
type standstill struct{ browser *browser.Browser } // nil: there is none

// Add adds nothing: the browser may stand still for some time after its evidence was captured. What
// was kept back meanwhile is added when the bundle is sealed (AddWithheld).
func (standstill) Add(context.Context, recovery.Capture, recovery.Parts) {}

func (s standstill) Facts(_ context.Context, c recovery.Closed, _ *api.Inspection) []table.Fact {
	how := "there was no browser left"
	if c.File.CloseMethod != "" {
		how = "the browser was closed by an earlier try"
	}
	facts := table.Inspection{{Name: table.StoodStill, Answer: table.Unknown, How: how}, {Name: table.CookiesWhole, Answer: table.Unknown, How: how}}
	if s.browser != nil {
		facts = s.browser.StillFacts()
	}
	if lost := cmp.Or(c.File.CookiesLost, c.File.NotStored); lost != "" {
		facts = facts.With(table.Fact{Name: table.CookiesWhole, Answer: table.No, How: lost})
	}
	return facts
}

// WithheldPart is the part of a bundle with the unsafe requests and messages that pages made
// after their worker was lost, and that were withheld. Those that are made after the sealing of
// the bundle are in the journal.
const WithheldPart = "withheld.json"

func (e ended) AddWithheld(to recovery.Parts) {
	list, more := e.Monitor().Still().Withheld()
	if len(list) == 0 {
		return
	}
	to.PutJSON(WithheldPart, evidence.KindWithheld, struct {
		Requests []monitor.Withheld `json:"requests"`
		// More is the number of further ones.
		More uint64 `json:"more,omitempty"`
	}{list, more}, nil)
}
