package lease

import (
	"time"
)

// ReasonRecordLost is the reason of a profile whose record the store forgot while
// it was in use or in recovery.
const ReasonRecordLost = "record_lost"

// Heal replaces a record that the store forgot, or has only an old copy of, by
// what the profile's home knows: own is the last record that the home wrote, and
// floor the highest token that it used. Where own stands at the floor and was
// free or with a person, that is restored; else nobody can say what happened
// since, and the profile goes through recovery.
func (r Record) Heal(own Record, floor Token, now time.Time) (Record, error) {
	if r.Token >= floor {
		return r, nil
	}
	sequence := max(r.Sequence, own.Sequence)
	if own.ProfileID == r.ProfileID && own.Token >= r.Token {
		was := r.State
		r = own.Clone()
		r.State = was
	}
	r.Sequence = sequence
	if own.Token == floor {
		switch own.State {
		case Available, ResumePending, ManualReview:
			return r.step(Restored, own.State, now, string(own.State))
		}
	}
	r.Reason = ReasonRecordLost
	return r.fence(Forgotten, r.Runs, floor, now)
}
