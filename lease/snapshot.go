package lease

import "time"

// AtRest tells whether the profile's directory is in a state that somebody intended: the last
// thing that happened to the profile was the proper end of a session, or nobody has had it
// since it was made. The profile is free, and not because of a recovery or a person's decision.
func (r Record) AtRest() bool {
	inOrder := r.SessionID == "" || !r.ReleasedAt.IsZero()
	return r.State == Available && inOrder && r.Decision == "" && r.Review == nil
}

// ReasonRemade is the reason in the record of a profile that got a new directory.
const ReasonRemade = "remade"

// Remake raises the token of a profile that nobody uses, and that gets a directory to replace
// one that was archived or removed, or was never made. How the last session on the old
// directory ended says nothing about the new one. Neither does a snapshot of the old one, which
// may still be on its way. by is who asked, as was proved.
func (r Record) Remake(by string, now time.Time) (Record, error) {
	if err := r.raise(0); err != nil {
		return r, err
	}
	r.Reason, r.Decision, r.Reasons, r.DecisionVersion, r.Review = ReasonRemade, "", nil, 0, nil
	r.Account = Account{}
	r, err := r.transition(Remade, r.State, now, EventRemade)
	if err == nil {
		r.Outbox[len(r.Outbox)-1].Principal = by
	}
	return r, err
}

// Open notes that a browser is about to be opened on the profile without a session. It may change what
// the newest snapshot has under the same token. The error is a *MoveError if another launcher
// asks for the profile: it gets a snapshot from before.
func (r Record) Open() (Record, error) {
	if r.MoveRequest != nil {
		return r, &MoveError{r.ProfileID, "launcher " + r.MoveRequest.To + " asks for it"}
	}
	r.Opened++
	return r, nil
}

// Unchanged notes that the browser that Open had counted last, when it came to opened, has ended in
// order and changed nothing: a snapshot of before has the profile as it is now.
func (r Record) Unchanged(opened uint64) Record {
	if r.Opened == opened && r.SnapshotOpened == opened-1 {
		r.SnapshotOpened = opened
	}
	return r
}

// Snapshotted names the profile's newest snapshot, which was made under a token, and read when the
// record's Opened was opened. The error is a *FencedError unless that is the record's own token: a
// snapshot with another token does not have the profile's present state.
func (r Record) Snapshotted(snapshotID string, token Token, opened uint64) (Record, error) {
	if token != r.Token || !r.AtRest() {
		return r, &FencedError{Profile: r.ProfileID, Token: token, Current: r.Token}
	}
	r.SnapshotID, r.SnapshotToken, r.SnapshotOpened = snapshotID, token, opened
	return r.markSnapshot(), nil
}

// markSnapshot notes whether the newest snapshot is of a signed-in account. Of one that nobody asked
// about since its last session it is not known, and the snapshot counts until it is.
func (r Record) markSnapshot() Record {
	switch {
	case !r.HasSnapshot():
		return r
	case r.SignedInToken == r.Token && r.SignedIn == SignedInYes:
		r.SignedInSnapshotID = r.SnapshotID
	}
	r.SnapshotSignedOut = r.SignedOut()
	return r
}

// UsualSnapshot is the snapshot that is meant where none is named: the newest, or, where that was made
// while the account was signed out, the newest of a signed-in one.
func (r Record) UsualSnapshot() string {
	if r.SnapshotSignedOut && r.SignedInSnapshotID != "" {
		return r.SignedInSnapshotID
	}
	return r.SnapshotID
}

// WithoutSnapshot names no snapshot: the profile's directory was archived or removed, and
// nobody gets its content from a snapshot, unless a person says so.
func (r Record) WithoutSnapshot() Record {
	r.SnapshotID, r.SnapshotToken, r.SnapshotSignedOut, r.SignedInSnapshotID = "", 0, false, ""
	return r
}

// HasSnapshot tells whether the newest snapshot has the profile's present state: it was made under the
// present token, and no browser was opened on the profile since it was read.
func (r Record) HasSnapshot() bool {
	return r.SnapshotID != "" && r.SnapshotToken == r.Token && r.SnapshotOpened == r.Opened
}

// ReasonSnapshotRestored is the reason in the record of a profile to which a person restored a
// snapshot.
const ReasonSnapshotRestored = "snapshot_restored"

// RestoreSnapshot raises the token of a profile that nobody uses, after a person restored a
// snapshot into its directory. A profile in review stays there.
func (r Record) RestoreSnapshot(snapshotID string, person Review, now time.Time) (Record, error) {
	if person.TokenSeen != r.Token {
		return r, &FencedError{Profile: r.ProfileID, Token: person.TokenSeen, Current: r.Token}
	}
	if err := r.raise(0); err != nil {
		return r, err
	}
	if r.State == Available {
		r.Reason = ReasonSnapshotRestored
	}
	r.Account = Account{}
	r, err := r.transition(SnapshotRestored, r.State, now)
	if err != nil {
		return r, err
	}
	r = r.emit(EventSnapshotRestored, now)
	last := &r.Outbox[len(r.Outbox)-1]
	last.Reviewer, last.Principal, last.Note, last.SnapshotID = person.Reviewer, person.Principal, person.Note, snapshotID
	return r, nil
}
