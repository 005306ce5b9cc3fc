package slots

import (
	"context"
	"errors"
	"testing"
)

// Who occupies a profile ends what somebody did while it was vacant, and does not wait.
func TestWhoOccupiesAProfileEndsItsVacancy(t *testing.T) {
	var vacated []string
	tb := newTable(t, Options{})
	tb.OnVacated(func(profile string) { vacated = append(vacated, profile) })
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

// TestWhoWantsAnOccupiedProfileIsNoticed: the one who has it for a moment is told, also at a drain, and
// also of who came before it asked; and not before.
func TestWhoWantsAnOccupiedProfileIsNoticed(t *testing.T) {
	tb := newTable(t, Options{})
	next := func() { tb.OccupyNext(t.Context(), "p", nil).Vacate() }
	for _, tt := range []struct {
		name  string
		early bool
		want  func()
	}{
		{"who waits", false, next}, {"who waited already", true, next}, {"a drain", false, func() { tb.Drain() }},
	} {
		s := tb.OccupyVacant("p")
		over := make(chan struct{})
		begin := func() {
			go func() {
				defer close(over)
				tt.want()
			}()
		}
		if tt.early {
			begin()
		}
		wanted, done := s.UntilWanted(t.Context())
		if !tt.early {
			if tb.Occupy("p") != nil || wanted.Err() != nil {
				t.Errorf("%s: it is wanted by one who does not wait: %v", tt.name, context.Cause(wanted))
			}
			begin()
		}
		<-wanted.Done()
		if cause := context.Cause(wanted); !errors.Is(cause, ErrWanted) {
			t.Errorf("%s: told %v, want %v", tt.name, cause, ErrWanted)
		}
		done()
		s.Vacate()
		<-over
	}
}
