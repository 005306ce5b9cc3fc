package lease

import (
	"time"
)

// ReasonRecordLost is the reason in the record of a profile whose record the store
// lost while the profile was in use or in recovery.
const ReasonRecordLost = "record_lost"

// Heal repairs a record that the store lost, or has only an old copy of, from what
// the profile's home knows: own is the last record that the home kept, and floor the
// highest token that was used on the profile directory. A record whose token is not
// below the floor is returned as it is. If own has the token of the floor and was
// free or with a person, it is restored. Otherwise nobody can say what happened since
// own was written, and the profile is quarantined under a new token.
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
			return r.transition(Restored, own.State, now, string(own.State))
		}
	}
	r.Reason = ReasonRecordLost
	return r.quarantine(Forgotten, r.Runs, floor, now)
}
