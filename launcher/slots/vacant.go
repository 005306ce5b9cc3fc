package slots

import (
	"context"
	"errors"
)

// ErrWanted is the cause with which the context of WhileVacant ends.
var ErrWanted = errors.New("the profile is wanted")

// vacancy is somebody who looks at a vacant profile.
type vacancy struct{ end context.CancelCauseFunc }

// WhileVacant returns a context that ends, with the cause ErrWanted, as soon as somebody
// occupies the profile; at once if somebody already has. Occupying does not wait for the
// caller: what the caller does counts only if the context has not ended when it is done. The
// caller calls done in the end.
func (t *Table) WhileVacant(ctx context.Context, profile string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	v := &vacancy{end}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[profile] != nil {
		end(ErrWanted)
		return ctx, func() {}
	}
	if t.vacancies[profile] == nil {
		t.vacancies[profile] = map[*vacancy]bool{}
	}
	t.vacancies[profile][v] = true
	return ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		end(nil)
		if delete(t.vacancies[profile], v); len(t.vacancies[profile]) == 0 {
			delete(t.vacancies, profile)
		}
	}
}

// UntilWanted returns a context that ends, with the cause ErrWanted, as soon as somebody waits for the
// occupied profile in OccupyNext, or the host drains. The caller calls done before it gives the slot
// up.
func (s *Slot) UntilWanted(ctx context.Context) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	v := &vacancy{end}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.vacancies[s.profile] = map[*vacancy]bool{v: true} // whoever looked at it while it was vacant is gone
	if s.wanted || s.t.draining {
		s.t.endVacancy(s.profile)
	}
	return ctx, func() {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		end(nil)
		delete(s.t.vacancies, s.profile)
	}
}

// endVacancy ends the contexts of those who look at the profile. The caller holds t.mu.
func (t *Table) endVacancy(profile string) {
	for v := range t.vacancies[profile] {
		v.end(ErrWanted)
	}
	delete(t.vacancies, profile)
}
