package lease

import (
	"fmt"
	"time"
)

// ReasonMoved is the reason in the record of a profile that came to another home.
const ReasonMoved = "moved"

// The ways in which a new home comes by the profile's directory.
const (
	DirectoryCopied   = "copied"   // of a directory that a person named
	DirectoryEmpty    = "empty"    // it is made anew: nothing of the account's session is in it
	DirectorySnapshot = "snapshot" // of a snapshot
)

// Move says how a profile came to its home, where another launcher was that before.
type Move struct {
	// ID is unique to the move. The new home knows by it whether a move that it prepared was
	// stored.
	ID string `json:"id"`
	// From is the launcher that was the home. It is Home itself where a home got the directory
	// anew.
	From string `json:"from"`
	// Token is the one under which the home changed. What is kept on another host under a
	// lower one was left.
	Token Token `json:"lease_token"`
	// Directory is one of DirectoryCopied, DirectoryEmpty and DirectorySnapshot.
	Directory string `json:"directory"`
	// SnapshotID is the snapshot that the directory is of, and SnapshotToken its token.
	SnapshotID    string `json:"snapshot_id,omitempty"`
	SnapshotToken Token  `json:"snapshot_token,omitempty"`
	// Person is what the person is called who moved it; empty: it moved by itself. Principal
	// is who asked, as was proved.
	Person    string    `json:"person,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Note      string    `json:"note,omitempty"`
	At        time.Time `json:"at"`
}

// MoveRequest is what a launcher, or a person through it, asks of a home that is there: to give
// the profile up. It gives nobody any right. The next transition of the record ends it.
type MoveRequest struct {
	// To is the launcher that is to be the home, and Floor the highest token that it knows of.
	To    string `json:"to"`
	Floor Token  `json:"floor,omitempty"`
	// Move is what will be said of the move; its From, Token and At are still to come.
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

// movable returns nil for a profile whose home may change: nobody holds it, it is not being
// recovered, and it is known whose it is.
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
		return &MoveError{r.ProfileID, "it is being recovered: it goes to a person first, at the latest when its home has been gone for some minutes (--home-timeout)"}
	case r.State == "":
		return &MoveError{r.ProfileID, "it has no record"}
	case !person && r.State != Available:
		return &MoveError{r.ProfileID, fmt.Sprintf("it is %s, and does not move by itself", r.State)}
	}
	return nil
}

// Move makes another launcher the home, under a token above all that anybody knows of, and
// above which everything of the old home is. seen is the token of the record that was decided
// on. What waited for a task to resume waits for a person then: the directory that the
// decision was about stays behind. The caller knows that the old home is gone, or is the old
// home itself, and has nothing open. Errors: *FencedError, *MoveError.
func (r Record) Move(q MoveRequest, seen Token, now time.Time) (Record, error) {
	if err := r.movable(q, seen); err != nil {
		return r, err
	}
	move, from := q.Move, r.State
	r.Token = max(r.Token, q.Floor) + 1
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

// Ask returns the record with a request to its home, which is there, to give the profile up.
// Errors are those of Move.
func (r Record) Ask(q MoveRequest, seen Token) (Record, error) {
	if err := r.movable(q, seen); err != nil {
		return r, err
	}
	r = r.Clone()
	r.MoveRequest = &q
	return r, nil
}

// Withdraw returns the record without the request of that id. false: it has none such.
func (r Record) Withdraw(id string) (Record, bool) {
	if r.MoveRequest == nil || r.MoveRequest.Move.ID != id {
		return r, false
	}
	r = r.Clone()
	r.MoveRequest = nil
	return r, true
}

// GiveUp is Move as the home does it that was asked. A *MoveError where nobody asked.
func (r Record) GiveUp(now time.Time) (Record, error) {
	if r.MoveRequest == nil {
		return r, &MoveError{r.ProfileID, "nobody asks for it any more"}
	}
	return r.Move(*r.MoveRequest, r.Token, now)
}
