package lease

import (
	"slices"
	"time"
)

// Reasons in the record of a profile that its own home quarantines.
const (
	// ReasonRecordLost: the store lost the record while the profile was in use or in
	// recovery.
	ReasonRecordLost = "record_lost"
	// ReasonNotAuthentic: a file that the home keeps about the profile was damaged, or somebody
	// else wrote it.
	ReasonNotAuthentic = "state_not_authentic"
	// ReasonRolledBack: the floor is gone, or an older one was put in its place.
	ReasonRolledBack = "state_rolled_back"
	// ReasonForeignLock: Chrome's own lock in the directory names another host, and nobody here
	// can tell whether a browser there has the profile.
	ReasonForeignLock = "lock_of_another_host"
)

// MaxClaim is the highest token that is accepted from a source that cannot be checked, such as
// a damaged floor. It is more than any profile will ever be granted, and so far from the
// highest number that even many claims, one after the other, do not reach that.
const MaxClaim Token = 1 << 40

// FloorLag is the most tokens by which the floor of a profile may be behind its record: see
// Record.ExplainsFloor.
const FloorLag Token = 2

// Distrusted tells whether the reason is that what the home has of the profile cannot be trusted
// as it is. Then a person decides, whatever an inspection finds.
func Distrusted(reason string) bool {
	return reason == ReasonNotAuthentic || reason == ReasonRolledBack || reason == ReasonForeignLock
}

// ExplainsFloor tells whether it can be explained that a record is so far above the floor of
// its profile. The floor follows each raise of the token by the home. It is behind by one token
// if the home was killed between a grant and the raise of the floor, and by one more if another
// launcher quarantined the profile meanwhile; the home closes the gap before the next grant. A
// floor that is further behind is not one that the home left there, and neither is one that is
// behind a session that served: before a worker is served, the floor is raised to its token. own
// is the record that the home kept with the floor. A floor above the record is a case for Heal.
func (r Record) ExplainsFloor(floor Token, own Record) bool {
	// A launcher that became the home later was not there under earlier tokens.
	floor = max(floor, r.HomeToken)
	if r.Token <= floor {
		return true
	}
	if own.Token == floor && !r.interrupted(own) && r.servedAfter(own) {
		return false
	}
	var most Token
	switch r.State {
	case Held, SuspectedStale:
		most = 1 // the grant
	case Quarantined, Inspected, ManualReview:
		most = FloorLag // the grant, and the quarantine
	case Available:
		// A grant that never served and was taken back; or a grant and a quarantine, after
		// which a person approved.
		most = 1
		if r.Review != nil && r.Review.Decision == ReviewApprove {
			most = FloorLag
		}
	case ResumePending:
		// A grant that never served and was put back. Otherwise the home decided so, with the floor.
		if r.RecoveryStartedAt.IsZero() {
			most = 1
		}
	}
	return r.Token-floor <= most
}

// interrupted tells whether the record is about the session with which own was kept, and says that
// it was lost. The session served under the floor, and what it did is no sign of a later one.
func (r Record) interrupted(own Record) bool {
	lost := r.State == Quarantined || r.State == Inspected || r.State == ManualReview
	return lost && own.State == Held && own.SessionID != "" && own.SessionID == r.SessionID
}

// servedAfter tells whether the record has what only a session that served leaves, and what the
// earlier record own does not have: where it was, or the evidence of its release. It may have
// served even if the result is false.
func (r Record) servedAfter(own Record) bool {
	released := r.State == Available && r.Review == nil && r.Decision == "" && r.EvidenceID != own.EvidenceID
	moved := r.LastKnownURL != own.LastKnownURL || r.LastKnownStep != "" && r.LastKnownStep != own.LastKnownStep
	return released || moved
}

// Distrusts tells whether the record says already that what the home has of the profile cannot
// be trusted, under a token that is not below floor: a person decides, and nobody gets
// the profile until then.
func (r Record) Distrusts(floor Token) bool {
	return Distrusted(r.Reason) && (r.State == Quarantined || r.State == Inspected || r.State == ManualReview) && r.Token >= floor
}

// Distrust quarantines a profile about which the home cannot trust what it kept. The new token
// is above the record's own and above floor, which is the highest token that anybody claims;
// sequence is the number of the last event that anybody knows of.
func (r Record) Distrust(reason string, floor Token, sequence uint64, now time.Time) (Record, error) {
	r.Reason = reason
	r.Sequence = max(r.Sequence, sequence)
	r.RememberedBy = ""
	return r.quarantine(Forgotten, r.Runs, floor, now)
}

// Lacks tells whether the record, which need not exist, says less than the profile's home
// knows: own is the last record that the home kept, and floor is the highest token that it
// knows of. A record that another launcher recalled in the home's place does so, too.
func (r Record) Lacks(own Record, floor Token) bool {
	return r.Token < floor || r.State == "" && own.State != "" || r.RememberedBy != ""
}

// replacedBy returns own, which somebody kept, to replace r. The events of both that may not be
// published yet are kept, in their order; the store leaves out those that are published.
func (r Record) replacedBy(own Record) Record {
	own = own.Clone()
	own.Outbox = slices.Concat(r.Outbox, own.Outbox)
	slices.SortStableFunc(own.Outbox, Event.compare)
	own.Outbox = slices.CompactFunc(own.Outbox, Event.same)
	return own
}

// Heal repairs a record that the store has lost, or of which it has only an old copy, from what
// the profile's home knows: own is the last record that the home kept, and floor is the highest
// token that was used on the profile directory, or that anybody knows of. A record that says as
// much (see Lacks) is returned unchanged. If own has the token of the floor and was free or in
// review, it is restored. Otherwise nobody can say what happened since own was written, and the
// profile is quarantined under a new token.
func (r Record) Heal(own Record, floor Token, now time.Time) (Record, error) {
	if !r.Lacks(own, floor) {
		return r, nil
	}
	floor = max(floor, r.Token) // of a record that another launcher remembered
	sequence := max(r.Sequence, own.Sequence)
	if own.ProfileID == r.ProfileID && (own.Token >= r.Token || r.RememberedBy != "") {
		was := r.State
		r = r.replacedBy(own)
		r.State = was
	}
	r.Sequence = sequence
	if own.Token == floor {
		switch own.State {
		case Available, ResumePending, ManualReview:
			return r.transition(Restored, own.State, now, string(own.State))
		}
	}
	if r.Reason = own.Reason; !PersonDecides(r.Reason) {
		r.Reason = ReasonRecordLost
	}
	r.RememberedBy = ""
	return r.quarantine(Forgotten, r.Runs, floor, now)
}
