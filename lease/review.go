package lease

import (
	"fmt"
	"slices"
	"time"
)

// ReasonByHand is the reason in the record of a lease that a person has.
const ReasonByHand = "held_by_hand"

// openReview returns what has to be remembered when a person takes the profile out of manual
// review, until they hand it back; nil if the profile is not in review.
func (r Record) openReview() *OpenReview {
	if r.State != ManualReview {
		return nil
	}
	return &OpenReview{
		SessionID: r.SessionID, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID, Principal: r.Principal,
		Reason: r.Reason, Decision: r.Decision, Reasons: r.Reasons, DecisionVersion: r.DecisionVersion, EvidenceID: r.reviewedEvidence(), LostRuns: r.IncidentRuns(),
		LastKnownURL: r.LastKnownURL, LastKnownStep: r.LastKnownStep, LastSafeCheckpoint: r.LastSafeCheckpoint,
		SuspectedAt: r.SuspectedAt, RecoveryStartedAt: r.RecoveryStartedAt, Review: r.Review,
	}
}

// reviewedEvidence is the bundle of the incident that the review is about. After a
// person used the profile by hand, EvidenceID names that person's session instead.
func (r Record) reviewedEvidence() string {
	if r.ByHand != nil && r.ByHand.Review != nil {
		return r.ByHand.Review.EvidenceID
	}
	return r.EvidenceID
}

// IncidentRuns are the lost runs that are to be inspected or reviewed, each with a bundle of its own, also
// while a person has taken the profile out of its review.
func (r Record) IncidentRuns() []Run {
	if r.ByHand != nil && r.ByHand.Review != nil {
		return slices.Concat(r.LostRuns, r.ByHand.Review.LostRuns)
	}
	return r.LostRuns
}

// reopen restores the review that was open before a person took the profile by hand. EvidenceID
// stays the newest bundle, that of the person's session; each bundle names the one before it,
// so the incident's bundle can be found from there.
func (r Record) reopen() Record {
	v := r.ByHand.Review
	r.SessionID, r.OwnerWorkerID, r.TaskID, r.Principal = v.SessionID, v.OwnerWorkerID, v.TaskID, v.Principal
	r.Reason, r.Decision, r.Reasons, r.DecisionVersion = v.Reason, v.Decision, v.Reasons, v.DecisionVersion
	r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint = v.LastKnownURL, v.LastKnownStep, v.LastSafeCheckpoint
	r.SuspectedAt, r.RecoveryStartedAt, r.ReleasedAt, r.Review = v.SuspectedAt, v.RecoveryStartedAt, time.Time{}, v.Review
	r.Outcome = ""
	// As many runs as a profile may have are not in a record twice.
	r.LostRuns = v.LostRuns
	hand, open := *r.ByHand, *v
	open.LostRuns, hand.Review = nil, &open
	r.ByHand = &hand
	return r
}

// The decisions of a review.
const (
	ReviewApprove = "approve"
	ReviewKeep    = "keep"
)

// IncidentError says that a review names a bundle of evidence that does not belong to the open
// incident.
type IncidentError struct {
	Profile, Named, Current string
}

func (e *IncidentError) Error() string {
	return fmt.Sprintf("the review of %s is about evidence %s, and the incident that is open has %s: look at that one", e.Profile, e.Named, e.Current)
}

// HomeError says that a review names a home that the profile cannot have.
type HomeError struct {
	Profile, Home, Named string
	// Other is the launcher that may be named instead of Home; empty: none.
	Other string
}

func (e *HomeError) Error() string {
	s := fmt.Sprintf("the home of %s is %s", e.Profile, e.Home)
	if e.Other != "" {
		return s + " or " + e.Other + ", and not " + e.Named
	}
	return s + ", and no review changes that to " + e.Named
}

// Approved tells whether the profile is free because a person approved it, and nobody had it since.
func (r Record) Approved() bool {
	return r.State == Available && r.Review != nil && r.Review.Decision == ReviewApprove
}

// Reviewed applies a person's decision. ReviewApprove makes the profile available after the
// cooldown; ReviewKeep leaves it in review, with the note. If the home is in question, because
// it is contested or the profile is only remembered, an approval may say which launcher is the
// home from now on. The error is a *FencedError if the person's decision was based on a token
// that is no longer current, an *IncidentError if it was based on the evidence of another
// incident, and a *HomeError if the named home is not in question.
func (r Record) Reviewed(v Review, cooldown time.Duration, now time.Time) (Record, error) {
	if v.TokenSeen != r.Token {
		return r, &FencedError{Profile: r.ProfileID, Token: v.TokenSeen, Current: r.Token}
	}
	if v.EvidenceID != "" && v.EvidenceID != r.EvidenceID && v.EvidenceID != r.reviewedEvidence() {
		return r, &IncidentError{Profile: r.ProfileID, Named: v.EvidenceID, Current: r.EvidenceID}
	}
	if v.Home != "" && v.Home != r.Home {
		if v.Decision != ReviewApprove || v.Home != r.OtherHome && r.RememberedBy == "" {
			return r, &HomeError{Profile: r.ProfileID, Home: r.Home, Other: r.OtherHome, Named: v.Home}
		}
		if err := r.raise(0); err != nil {
			return r, err
		}
		r.Home, r.HomeToken = v.Home, r.Token
	}
	v.At = now.UTC()
	r.Review = &v
	switch v.Decision {
	case ReviewApprove:
		r.Reason, r.Decision, r.Reasons = "review_approved", DecisionRelease, []string{"approved by " + v.Reviewer}
		r.DecisionVersion, r.ByHand, r.OtherHome, r.RememberedBy = 0, nil, "", ""
		return r.letGo(cooldown, now).transition(Approved, Available, now, string(Available))
	case ReviewKeep:
		return r.transition(Kept, ManualReview, now, string(ManualReview))
	default:
		return r, fmt.Errorf("review decision %q: want approve or keep", v.Decision)
	}
}
