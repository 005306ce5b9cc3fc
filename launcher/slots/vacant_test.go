package slots

import (
	"context"
	"errors"
	"testing"
)

// Who occupies a profile ends what somebody did while it was vacant, and does not wait.
func TestWhoOccupiesAProfileEndsItsVacancy(t *testing.T) {
	var vacated []string
	tb := newTable(t, Options{Vacated: func(profile string) { vacated = append(vacated, profile) }})
	first, done := tb.WhileVacant(t.Context(), "p")
	defer done()
	other, otherDone := tb.WhileVacant(t.Context(), "q")
	defer otherDone()
	over, overDone := tb.WhileVacant(t.Context(), "p")
	overDone()
	if first.Err() != nil || !errors.Is(context.Cause(over), context.Canceled) {
		t.Fatalf("%v, %v", first.Err(), context.Cause(over))
	}
	slot := tb.Occupy("p")
	if !errors.Is(context.Cause(first), ErrWanted) || other.Err() != nil || errors.Is(context.Cause(over), ErrWanted) {
		t.Errorf("%v, %v, %v", context.Cause(first), context.Cause(other), context.Cause(over))
	}
	late, lateDone := tb.WhileVacant(t.Context(), "p")
	lateDone()
	if !errors.Is(context.Cause(late), ErrWanted) {
		t.Errorf("while it is occupied: %v", context.Cause(late))
	}
	slot.Vacate()
	if len(vacated) != 1 || vacated[0] != "p" {
		t.Errorf("vacated: %q", vacated)
	}
	again, againDone := tb.WhileVacant(t.Context(), "p")
	defer againDone()
	if again.Err() != nil || len(tb.vacancies) != 2 {
		t.Errorf("%v, %d", again.Err(), len(tb.vacancies))
	}
}
