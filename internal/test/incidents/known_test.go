package incidents

import (
	"os"
	"slices"
	"testing"

	known "leasehold/checkpoint/site"
	"leasehold/internal/test/clients"
	"leasehold/internal/test/sides"
	"leasehold/launcher/recovery/table"
)

// TestWhatIsKnownOfASiteDecides: the same sessions in real browsers, with different files about
// their site. Without any, and without declarations, each of them waits for a person.
func TestWhatIsKnownOfASiteDecides(t *testing.T) {
	all := corpus(t, own)
	play := func(of, name, expect string, idempotent any, lines ...known.Line) Incident {
		at := slices.IndexFunc(all, func(i Incident) bool { return i.Name == of })
		i := all[at]
		i.Name, i.Expect, i.Profile, i.Known = name, expect, Profile{}, lines
		i.Script = slices.Clone(i.Script)
		for n, a := range i.Script {
			if a.Checkpoint != nil && idempotent != nil {
				i.Script[n].Checkpoint = &Checkpoint{Name: a.Checkpoint.Name, Idempotent: idempotent}
			}
		}
		return i
	}
	asks := known.Line{Shape: "POST /api/reports/query", Is: known.Read}
	labels := known.Line{Shape: "PUT /api/labels/*", Is: known.Write, Repeatable: true}
	pages := known.Line{Shape: "GET /campaigns/*", Is: known.Write}
	chosen := []Incident{
		play("ads-report-read", "ads-known-read", table.Release, nil, asks),
		play("ads-report-read", "ads-known-page-writes", table.ManualReview, nil, asks, pages),
		play("ads-label-again", "ads-known-repeatable", table.Resume, true, asks, labels),
	}
	s := sides.ForTest(t, "--reconnect-grace", "100ms", "--file-root", os.TempDir(), "--file-root", clients.Dir())
	for _, r := range Run(t.Context(), s.URL, chosen, atOnce()) {
		if r.Problem != nil || r.Decided != r.Incident.Expect {
			t.Errorf("%s: %s %q, %v; want %s", r.Incident.Name, r.Decided, r.Reasons, r.Problem, r.Incident.Expect)
		}
	}
}
