package decision

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
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
		{"a search", []checkpoint.Entry{start, typed(checkpoint.FieldSearch)}, Task{}, Release, ""},
		{"a password", []checkpoint.Entry{start, typed(checkpoint.FieldPassword)}, Task{}, Release, ""},
		{"a card", []checkpoint.Entry{start, typed(checkpoint.FieldCard), typed(checkpoint.FieldText)}, Task{}, ManualReview, "a card or a bank account was typed (yes: the last was a card's number or code on http://a/)"},
		{"a bank account, in a task that had begun", []checkpoint.Entry{start, step("s"), typed(checkpoint.FieldBank)}, Task{}, ManualReview, "was typed (yes: the last was a bank account on http://a/)"},
		{"a card before the checkpoint", []checkpoint.Entry{start, typed(checkpoint.FieldCard), safe("c")}, resumable, Resume, ""},
		{"a card after it", []checkpoint.Entry{start, safe("c"), typed(checkpoint.FieldCard)}, resumable, ManualReview, "was typed"},
		{"a card after one that declares what follows idempotent", []checkpoint.Entry{start, idempotent("c"), typed(checkpoint.FieldCard)}, resumable, ManualReview, "was typed"},
	} {
		sum := checkpoint.Summarize(tt.journal)
		d := Decide(slices.Concat(sane(), InspectTask(sum, tt.task)))
		if d.Outcome != tt.outcome || !strings.Contains(strings.Join(d.Reasons, "\n"), tt.reason) {
			t.Errorf("%s: %+v", tt.name, d)
		}
		if touched := Touched(sum, tt.task); touched != (tt.outcome == ManualReview) {
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
	if d := Decide(slices.Concat(sane(), InspectTask(sum, Task{}))); d.Outcome != ManualReview || Observed(sum, false).Answer == Unknown {
		t.Errorf("entries were left out: %+v", d)
	}
}
