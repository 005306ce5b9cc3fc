package findings

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// TestWhatPaysIsForAPerson wherever it was typed since the last safe checkpoint, also where all
// that followed is declared idempotent. What signs in, or only asks, is not.
func TestWhatPaysIsForAPerson(t *testing.T) {
	typed := func(f checkpoint.Field) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindTyped, Name: string(f), URL: "http://a/"}
	}
	start, resumable := visit("http://a/"), Task{Resumable: true}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		outcome string
		reason  string
	}{
		{"a search", []checkpoint.Entry{start, typed(checkpoint.FieldSearch)}, Task{}, table.Release, ""},
		{"a password", []checkpoint.Entry{start, typed(checkpoint.FieldPassword)}, Task{}, table.Release, ""},
		{"a card", []checkpoint.Entry{start, typed(checkpoint.FieldCard), typed(checkpoint.FieldText)}, Task{}, table.ManualReview, "a card or a bank account was typed (yes: the last was a card's number or code on http://a/)"},
		{"a bank account, in a task that had begun", []checkpoint.Entry{start, step("s"), typed(checkpoint.FieldBank)}, Task{}, table.ManualReview, "was typed (yes: the last was a bank account on http://a/)"},
		{"a card before the checkpoint", []checkpoint.Entry{start, typed(checkpoint.FieldCard), safe("c")}, resumable, table.Resume, ""},
		{"a card after it", []checkpoint.Entry{start, safe("c"), typed(checkpoint.FieldCard)}, resumable, table.ManualReview, "was typed"},
		{"a card after one that declares what follows idempotent", []checkpoint.Entry{start, idempotent("c"), typed(checkpoint.FieldCard)}, resumable, table.ManualReview, "was typed"},
	} {
		sum := checkpoint.Summarize(tt.journal)
		d := table.Decide(slices.Concat(sane(), InspectTask(sum, tt.task)))
		if d.Outcome != tt.outcome || !strings.Contains(strings.Join(d.Reasons, "\n"), tt.reason) {
			t.Errorf("%s: %+v", tt.name, d)
		}
		if touched := Touched(sum, tt.task); touched != (tt.outcome == table.ManualReview) {
			t.Errorf("%s: touched: %v", tt.name, touched)
		}
	}
	// A journal that is full has the last one all the same.
	many := []checkpoint.Entry{start, typed(checkpoint.FieldCard)}
	for i := range 200 {
		e := typed(checkpoint.FieldText)
		e.URL += strings.Repeat("x", i)
		many = append(many, e)
	}
	sum := checkpoint.Summarize(checkpoint.Compact(many, checkpoint.Limits{Entries: 20, Bytes: 1 << 20, Data: 100}))
	if d := table.Decide(slices.Concat(sane(), InspectTask(sum, Task{}))); d.Outcome != table.ManualReview || Observed(sum, false).Answer == table.Unknown {
		t.Errorf("entries were left out: %+v", d)
	}
}
