package findings

import (
	"slices"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// TestWhatPagesAskForDecides goes through every question about open pages: its answer
// alone sends a profile that nothing was done on to a person, or never does.
func TestWhatPagesAskForDecides(t *testing.T) {
	forPeople := []string{table.PasswordAsked, table.InputUnsent, table.WizardHalfDone} // and for --review-when
	for _, q := range table.PageQuestions {
		for _, a := range []table.Answer{table.Yes, table.No, table.Unknown} {
			against := a == table.Yes
			if q == table.PagesLookedAt {
				against = a == table.No
			}
			want := table.Release
			if against && !slices.Contains(forPeople, q) {
				want = table.ManualReview
			}
			found := append(sane(), InspectTask(checkpoint.Summarize(nil), Task{})...)
			if d := table.Decide(append(found, Pages([]table.Fact{{Name: q, Answer: a, How: "as said"}})...)); d.Outcome != want || len(d.Reasons) != 1 {
				t.Errorf("%s %s: %s %q, want %s", q, a, d.Outcome, d.Reasons, want)
			}
		}
	}
}

// TestPagesOfSeveralRuns: the answer that speaks most against letting the profile go
// counts, and how it was found stays with it.
func TestPagesOfSeveralRuns(t *testing.T) {
	for _, tt := range []struct {
		question string
		answers  []table.Answer
		want     table.Answer
	}{
		{table.CodeAsked, nil, table.Unknown},
		{table.CodeAsked, []table.Answer{table.No}, table.No},
		{table.CodeAsked, []table.Answer{table.No, table.Unknown}, table.Unknown},
		{table.CodeAsked, []table.Answer{table.Unknown, table.No}, table.Unknown},
		{table.CodeAsked, []table.Answer{table.No, table.Yes, table.Unknown}, table.Yes},
		{table.PagesLookedAt, []table.Answer{table.Yes, table.No, table.Unknown}, table.No},
		{table.PagesLookedAt, []table.Answer{table.Unknown, table.Yes}, table.Unknown},
		{table.PagesLookedAt, []table.Answer{table.Yes, table.Yes}, table.Yes},
	} {
		var runs [][]table.Fact
		for _, a := range tt.answers {
			runs = append(runs, []table.Fact{{Name: tt.question, Answer: a, How: "as " + string(a)}})
		}
		all := Pages(append(runs, nil)...)
		if got := all.Answer(tt.question); got != tt.want || len(tt.answers) > 0 && all.How(tt.question) != "as "+string(tt.want) || len(all) != len(table.PageQuestions) {
			t.Errorf("%s of %q: %s (%s), want %s", tt.question, tt.answers, got, all.How(tt.question), tt.want)
		}
	}
}

func TestSeen(t *testing.T) {
	for _, tt := range []struct {
		hows, blind []string
		want        table.Fact
	}{
		{nil, nil, table.Fact{Name: table.CodeAsked, Answer: table.No, How: "no open page or frame does"}},
		{nil, []string{"a page hangs"}, table.Fact{Name: table.CodeAsked, Answer: table.Unknown, How: "a page hangs"}},
		{[]string{"here"}, []string{"a page hangs"}, table.Fact{Name: table.CodeAsked, Answer: table.Yes, How: "here"}},
		{[]string{"here", "there", "too"}, nil, table.Fact{Name: table.CodeAsked, Answer: table.Yes, How: "here; and 2 more"}},
	} {
		if got := Seen(table.CodeAsked, tt.hows, tt.blind); got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}
