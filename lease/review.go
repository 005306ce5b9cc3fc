package lease

import (
	"fmt"
	"time"
)

// ReasonByHand is the reason of a lease that a person has.
const ReasonByHand = "held_by_hand"

// openReview is the review that waits for a person, or was open before a person
// took the profile by hand; nil where there is none.
func (r Record) openReview() *OpenReview {
	if r.State != ManualReview {
		return nil
	}
	return &OpenReview{
		SessionID: r.SessionID, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID,
		Reason: r.Reason, Decision: r.Decision, Reasons: r.Reasons, DecisionVersion: r.DecisionVersion, EvidenceID: r.incident(),
		LastKnownURL: r.LastKnownURL, LastKnownStep: r.LastKnownStep, LastSafeCheckpoint: r.LastSafeCheckpoint,
		SuspectedAt: r.SuspectedAt, RecoveryStartedAt: r.RecoveryStartedAt, Review: r.Review,
	}
}

// incident is the bundle that a review is about.
func (r Record) incident() string {
	if r.ByHand != nil && r.ByHand.Review != nil {
		return r.ByHand.Review.EvidenceID
	}
	return r.EvidenceID
}

// reopen puts the review back that a person left open. The profile's evidence
// stays the newest, and names the incident's as one before it.
func (r Record) reopen() Record {
	v := r.ByHand.Review
	r.SessionID, r.OwnerWorkerID, r.TaskID = v.SessionID, v.OwnerWorkerID, v.TaskID
	r.Reason, r.Decision, r.Reasons, r.DecisionVersion = v.Reason, v.Decision, v.Reasons, v.DecisionVersion
	r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint = v.LastKnownURL, v.LastKnownStep, v.LastSafeCheckpoint
	r.SuspectedAt, r.RecoveryStartedAt, r.ReleasedAt, r.Review = v.SuspectedAt, v.RecoveryStartedAt, time.Time{}, v.Review
	r.Outcome = ""
	return r
}

// Reviews that a person may give.
const (
	ReviewApprove = "approve"
	ReviewKeep    = "keep"
)

// Reviewed applies a person's decision: approve makes the profile available
// after the cooldown, keep leaves it where it is, with the note. A decision made
// on a token that moved on is refused with a FencedError.
func (r Record) Reviewed(v Review, cooldown time.Duration, now time.Time) (Record, error) {
	if v.TokenSeen != r.Token {
		return r, &FencedError{Profile: r.ProfileID, Token: v.TokenSeen, Current: r.Token}
	}
	v.At = now.UTC()
	r.Review = &v
	switch v.Decision {
	case ReviewApprove:
		r.Reason, r.Decision, r.Reasons = "review_approved", DecisionRelease, []string{"approved by " + v.Reviewer}
		r.DecisionVersion, r.ByHand = 0, nil
		r.ReleasedAt, r.AvailableAfter = now.UTC(), now.Add(cooldown).UTC()
		return r.step(Approved, Available, now, string(Available))
	case ReviewKeep:
		return r.step(Kept, ManualReview, now, string(ManualReview))
	default:
		return r, fmt.Errorf("review decision %q: want approve or keep", v.Decision)
	}
}
