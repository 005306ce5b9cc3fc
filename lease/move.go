package lease

import (
	"fmt"
	"time"
)

// ReasonMoved is the reason in the record of a profile that moved to another home.
const ReasonMoved = "moved"

// Where a new home gets the profile's directory from.
const (
	DirectoryCopied   = "copied"   // it copies a directory that a person named
	DirectoryEmpty    = "empty"    // it is made anew, without anything of the account's session
	DirectorySnapshot = "snapshot" // it is made from a snapshot
)

// The values of Settings.Mobility.
const (
	MobilityPinned = "pinned" // only a person can give it another home
	MobilityFree   = "free"   // it moves by itself to a launcher that is asked for it, by way of its snapshot
)

// MayMove returns nil if a profile may move by itself: its owner allows it, nobody has it, and
// its newest snapshot was made under the record's token, so that no session came after it.
// Otherwise the error is a *MoveError.
func (r Record) MayMove() error {
	switch {
	case r.Mobility != MobilityFree:
		return &MoveError{r.ProfileID, "its mobility is " + MobilityPinned}
	case r.State != Available:
		return &MoveError{r.ProfileID, fmt.Sprintf("it is %s, and moves by itself only when it is available", r.State)}
	case r.RememberedBy != "":
		return &MoveError{r.ProfileID, "the lease store forgot it, and its home has not said more"}
	case r.SnapshotID == "":
		return &MoveError{r.ProfileID, "it has no snapshot"}
	case r.SnapshotToken == r.Token && !r.HasSnapshot():
		return &MoveError{r.ProfileID, "its account was checked since its newest snapshot, and the next one is not made yet: what sites answered then is on its home's disk alone"}
	case !r.HasSnapshot():
		return &MoveError{r.ProfileID, fmt.Sprintf("its newest snapshot is of token %d, and it has token %d since: what was done in between is on its home's disk alone", r.SnapshotToken, r.Token)}
	}
	return nil
}

// Move says how a profile came to its home, if another launcher was its home before.
type Move struct {
	// ID is unique to the move. By it the new home recognizes whether a move that it prepared
	// was stored.
	ID string `json:"id"`
	// From is the former home. It is equal to Home if a home only got a new directory.
	From string `json:"from"`
	// Token is the token under which the home changed. Directories that other hosts keep under
	// a lower token were left.
	Token Token `json:"lease_token"`
	// Directory is one of DirectoryCopied, DirectoryEmpty and DirectorySnapshot.
	Directory string `json:"directory"`
	// SnapshotID is the snapshot from which the directory was made, and SnapshotToken is its
	// token.
	SnapshotID    string `json:"snapshot_id,omitempty"`
	SnapshotToken Token  `json:"snapshot_token,omitempty"`
	// Person is the name of the person who moved the profile; empty: it moved by itself.
	// Principal is who asked, as was proved.
	Person    string    `json:"person,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Note      string    `json:"note,omitempty"`
	At        time.Time `json:"at"`
}

// MoveRequest is what a launcher, or a person through it, asks a running home for: to give the
// profile up. It gives nobody any right. The next transition of the record ends it.
type MoveRequest struct {
	// To is the launcher that wants to be the home, and Floor is the highest token that it
	// knows of.
	To    string `json:"to"`
	Floor Token  `json:"floor,omitempty"`
	// Move is what will be recorded about the move; its From, Token and At are filled in later.
	Move Move `json:"move"`
}

// MoveError says why a profile cannot change its home now.
type MoveError struct {
	Profile string
	Why     string
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("profile %s keeps its home: %s", e.Profile, e.Why)
}

// movable returns nil if the home of a profile may change: nobody holds the profile, it is not
// in recovery, and its present home is not in doubt.
func (r Record) movable(q MoveRequest, seen Token) error {
	person := q.Move.Person != ""
	switch {
	case seen != r.Token:
		return &FencedError{Profile: r.ProfileID, Token: seen, Current: r.Token}
	case q.To == "" || q.Move.ID == "":
		return &MoveError{r.ProfileID, "nobody is named that is to have it"}
	case r.OtherHome != "":
		return &MoveError{r.ProfileID, fmt.Sprintf("%s and %s are both known as its home: a review has to say first which of them it is", r.Home, r.OtherHome)}
	case r.State == Held || r.State == SuspectedStale:
		return &MoveError{r.ProfileID, fmt.Sprintf("worker %s has it for task %s", r.OwnerWorkerID, r.TaskID)}
	case r.State == Quarantined || r.State == Inspected:
		return &MoveError{r.ProfileID, "it is being recovered: it goes to a person first, at the latest when its home has been gone for its --home-timeout, an hour by default"}
	case r.State == "":
		return &MoveError{r.ProfileID, "it has no record"}
	case person:
		return nil
	case q.Move.SnapshotID != r.SnapshotID || q.Move.SnapshotToken != r.SnapshotToken:
		return &MoveError{r.ProfileID, "it moves by itself only with its newest snapshot, " + r.SnapshotID}
	}
	return r.MayMove()
}

// Move makes another launcher the home, under a token above all that anybody knows of, so that
// everything of the old home is below it. seen is the token of the record on which the decision
// was based. A profile that waited for a task to resume then waits for a person, because the
// directory about which the decision was made stays behind. The caller knows that the old home
// is gone, or is the old home itself and has nothing open. Errors: *FencedError, *MoveError.
func (r Record) Move(q MoveRequest, seen Token, now time.Time) (Record, error) {
	if err := r.movable(q, seen); err != nil {
		return r, err
	}
	move, from := q.Move, r.State
	if move.Directory != DirectorySnapshot || move.SnapshotID != r.SnapshotID || !r.HasSnapshot() { // else it has the account as it was
		r.Account = Account{}
	}
	if err := r.raise(q.Floor); err != nil {
		return r, err
	}
	move.From, move.Token, move.At = r.Home, r.Token, now.UTC()
	r.Home, r.HomeToken, r.RememberedBy, r.Moved = q.To, r.Token, "", &move
	if from == Available { // else it says why a person has to decide
		r.Reason = ReasonMoved
	}
	fact, to := Moved, from
	if move.Person != "" {
		fact = MovedByHand
	}
	if from == ResumePending {
		to = ManualReview
		r.Decision, r.Reasons, r.DecisionVersion = DecisionManualReview, []string{"the task was to resume in a directory that stayed with " + move.From}, 0
	}
	r, err := r.transition(fact, to, now, EventMoved)
	if err == nil && to != from {
		r = r.emit(string(to), now)
	}
	return r, err
}

// Ask returns the record with a request to its running home to give the profile up. Its errors
// are those of Move.
func (r Record) Ask(q MoveRequest, seen Token) (Record, error) {
	if err := r.movable(q, seen); err != nil {
		return r, err
	}
	r = r.Clone()
	r.MoveRequest = &q
	return r, nil
}

// Withdraw returns the record without the request of that id. It returns false if there is no
// such request.
func (r Record) Withdraw(id string) (Record, bool) {
	if r.MoveRequest == nil || r.MoveRequest.Move.ID != id {
		return r, false
	}
	r = r.Clone()
	r.MoveRequest = nil
	return r, true
}

// GiveUp is Move as done by the home that was asked. The error is a *MoveError if nobody asked.
func (r Record) GiveUp(now time.Time) (Record, error) {
	if r.MoveRequest == nil {
		return r, &MoveError{r.ProfileID, "nobody asks for it any more"}
	}
	return r.Move(*r.MoveRequest, r.Token, now)
}
