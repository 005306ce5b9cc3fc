package api

import (
	"fmt"
	"time"

	"leasehold/lease"
)

// WrongHome refuses what only the profile's home can do. location is where the home can be
// reached; empty: it is not known. there says whether the home is running now.
func WrongHome(profileID, launcherID, location string, there bool) *Problem {
	p := Refuse(CodeWrongHome, "profile %s lives on the host of launcher %s", profileID, launcherID).With("home_launcher", launcherID)
	switch {
	case !there:
		p.Detail += ", which is not there now"
	case location != "":
		p.Detail += ": " + location
		p = p.With("location", location)
	}
	return p
}

// HomeNote says what one should know about the home of a profile that nobody holds: that it is
// gone, and what to do then; empty: nothing.
func HomeNote(r Profile) string {
	if r.HomeSilentSince.IsZero() || r.State == lease.Held || r.State == lease.SuspectedStale {
		return ""
	}
	said := fmt.Sprintf("launcher %s, its home, was last heard of at %s: nobody gets the profile until that one is back, or", r.Home, r.HomeSilentSince.UTC().Format(time.RFC3339))
	if r.State == lease.Quarantined || r.State == lease.Inspected {
		return said + " has been silent for its --home-timeout (an hour by default); then the profile is a person's to decide, and can get another home"
	}
	return fmt.Sprintf("%s a person gives it another home (leasehold profiles rehome %s)", said, r.ProfileID)
}

// SignedInNote says whether the account is signed in, since when, and how that was found; empty: that
// was never known.
func SignedInNote(r lease.Record) string {
	if r.SignedInCheckedAt.IsZero() {
		return ""
	}
	text := string(r.SignedIn)
	if r.AnotherAccount {
		text += ", it is another account"
	}
	text += fmt.Sprintf(", since %s, checked at %s (%s)", r.SignedInSince.UTC().Format(time.RFC3339), r.SignedInCheckedAt.UTC().Format(time.RFC3339), r.SignedInHow)
	if !r.SignedInTriedAt.IsZero() {
		text += ", without an answer at " + r.SignedInTriedAt.UTC().Format(time.RFC3339)
	}
	return text
}

// SnapshotNote says which snapshot of the profile is the newest, and whether the profile was
// used since; empty: there is none.
func SnapshotNote(r lease.Record) string {
	out := ""
	if r.SnapshotSignedOut {
		out = ", signed out"
		if usual := r.UsualSnapshot(); usual != r.SnapshotID {
			out += "; the newest that is signed in is " + usual
		}
	}
	switch {
	case r.SnapshotID == "":
		return ""
	case r.HasSnapshot():
		return fmt.Sprintf("%s of token %d: the profile as it is now%s", r.SnapshotID, r.SnapshotToken, out)
	}
	return fmt.Sprintf("%s of token %d; what was done since is not in it%s", r.SnapshotID, r.SnapshotToken, out)
}

// MoveNote says how a profile came to its home; empty: it was always there.
func MoveNote(r lease.Record) string {
	m := r.Moved
	if m == nil {
		return ""
	}
	s := fmt.Sprintf("left launcher %s for %s under token %d at %s", m.From, r.Home, m.Token, m.At.UTC().Format(time.RFC3339))
	if m.From == r.Home {
		s = fmt.Sprintf("launcher %s got its directory anew under token %d at %s", r.Home, m.Token, m.At.UTC().Format(time.RFC3339))
	}
	switch m.Directory {
	case lease.DirectoryEmpty:
		s += ", with an empty directory"
	case lease.DirectoryCopied:
		s += ", with a copy that a person named"
	case lease.DirectorySnapshot:
		s += fmt.Sprintf(", with snapshot %s of token %d", m.SnapshotID, m.SnapshotToken)
	}
	if m.Person != "" {
		s += fmt.Sprintf(", by %s", m.Person)
	}
	if m.Note != "" {
		s += ": " + m.Note
	}
	return s
}
