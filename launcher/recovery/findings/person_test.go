package findings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

func byAnn(name string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindPerson, Name: name, Person: "Ann", Principal: "uid:7", At: time.Unix(0, 0)}
}

// TestWhatAPersonDidCounts as something that was done since the last safe checkpoint: what a
// person meant by it nobody can tell. That one looked on does not count.
func TestWhatAPersonDidCounts(t *testing.T) {
	took, back, click := byAnn(checkpoint.PersonTook), byAnn(checkpoint.PersonHandedBack), byAnn("click")
	click.URL = "http://a/"
	asked := checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonAsked, Text: "code"}
	start := visit("http://a/")
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		outcome string
		reason  string
		had     table.Answer
	}{
		{"nobody came", []checkpoint.Entry{start, asked}, Task{}, table.Release, "", table.No},
		{"looked on", []checkpoint.Entry{start, took, back}, Task{}, table.Release, "", table.No},
		{"looked on when the worker was lost", []checkpoint.Entry{start, took}, Task{}, table.Release, "", table.Yes},
		{"acted", []checkpoint.Entry{start, took, click, back}, Task{}, table.ManualReview, "a person acted (yes: 1 acts, the last by Ann (uid:7): click http://a/)", table.No},
		{"acted in a task that had begun", []checkpoint.Entry{start, step("s"), took, click}, Task{}, table.ManualReview, "a person acted", table.Yes},
		{"acted before the checkpoint", []checkpoint.Entry{start, took, click, back, safe("c")}, Task{Resumable: true}, table.Resume, "", table.No},
		{"acted after it", []checkpoint.Entry{start, safe("c"), took, click}, Task{Resumable: true}, table.ManualReview, "a person acted", table.Yes},
		{"acted after one that declares what follows idempotent", []checkpoint.Entry{start, idempotent("c"), took, click}, Task{Resumable: true}, table.ManualReview, "a person acted", table.Yes},
		{"took it again", []checkpoint.Entry{start, took, back, took}, Task{}, table.Release, "", table.Yes},
	} {
		sum := checkpoint.Summarize(tt.journal)
		found := slices.Concat(sane(), InspectTask(sum, tt.task))
		d := table.Decide(found)
		if d.Outcome != tt.outcome || !strings.Contains(strings.Join(d.Reasons, "\n"), tt.reason) {
			t.Errorf("%s: %+v", tt.name, d)
		}
		if a := found.Answer(table.PersonHadIt); a != tt.had {
			t.Errorf("%s: had it: %s", tt.name, a)
		}
		if acted := slices.ContainsFunc(tt.journal, checkpoint.Entry.IsAct); tt.name != "acted before the checkpoint" && Touched(sum, tt.task) != acted {
			t.Errorf("%s: touched: %v", tt.name, !acted)
		}
	}
	// A journal that is full tells that acts are missing.
	many := []checkpoint.Entry{start, took}
	for i := range 200 {
		e := byAnn("click")
		e.URL = "http://a/" + strings.Repeat("x", i)
		many = append(many, e)
	}
	sum := checkpoint.Summarize(checkpoint.Compact(many, checkpoint.Limits{Entries: 20, Bytes: 1 << 20, Data: 100}))
	if f := Observed(sum, false); f.Answer != table.Unknown {
		t.Errorf("acts were left out: %+v", f)
	}
}
