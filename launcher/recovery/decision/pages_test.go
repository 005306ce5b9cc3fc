package decision

import (
	"slices"
	"testing"

	"leasehold/checkpoint"
)

// TestWhatPagesAskForDecides goes through every question about open pages: its answer
// alone sends a profile that nothing was done on to a person, or never does.
func TestWhatPagesAskForDecides(t *testing.T) {
	forPeople := []string{PasswordAsked, InputUnsent, WizardHalfDone} // and for --review-when
	for _, q := range PageQuestions {
		for _, a := range []Answer{Yes, No, Unknown} {
			against := a == Yes
			if q == PagesLookedAt {
				against = a == No
			}
			want := Release
			if against && !slices.Contains(forPeople, q) {
				want = ManualReview
			}
			found := append(sane(), InspectTask(checkpoint.Summarize(nil), Task{})...)
			if d := Decide(append(found, Pages([]Fact{{q, a, "as said"}})...)); d.Outcome != want || len(d.Reasons) != 1 {
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
		answers  []Answer
		want     Answer
	}{
		{CodeAsked, nil, Unknown},
		{CodeAsked, []Answer{No}, No},
		{CodeAsked, []Answer{No, Unknown}, Unknown},
		{CodeAsked, []Answer{Unknown, No}, Unknown},
		{CodeAsked, []Answer{No, Yes, Unknown}, Yes},
		{PagesLookedAt, []Answer{Yes, No, Unknown}, No},
		{PagesLookedAt, []Answer{Unknown, Yes}, Unknown},
		{PagesLookedAt, []Answer{Yes, Yes}, Yes},
	} {
		var runs [][]Fact
		for _, a := range tt.answers {
			runs = append(runs, []Fact{{tt.question, a, "as " + string(a)}})
		}
		all := Pages(append(runs, nil)...)
		if got := all.Answer(tt.question); got != tt.want || len(tt.answers) > 0 && all.how(tt.question) != "as "+string(tt.want) || len(all) != len(PageQuestions) {
			t.Errorf("%s of %q: %s (%s), want %s", tt.question, tt.answers, got, all.how(tt.question), tt.want)
		}
	}
}

func TestSeen(t *testing.T) {
	for _, tt := range []struct {
		hows, blind []string
		want        Fact
	}{
		{nil, nil, Fact{CodeAsked, No, "no open page or frame does"}},
		{nil, []string{"a page hangs"}, Fact{CodeAsked, Unknown, "a page hangs"}},
		{[]string{"here"}, []string{"a page hangs"}, Fact{CodeAsked, Yes, "here"}},
		{[]string{"here", "there", "too"}, nil, Fact{CodeAsked, Yes, "here; and 2 more"}},
	} {
		if got := Seen(CodeAsked, tt.hows, tt.blind); got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}
