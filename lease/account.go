package lease

import (
	"hash/fnv"
	"time"
)

// SignedIn says whether an account is signed in, as far as its sites said.
type SignedIn string

// The values of SignedIn.
const (
	SignedInYes     SignedIn = "yes"
	SignedInNo      SignedIn = "no"
	SignedInUnknown SignedIn = "unknown"
)

// Account is what a profile's sites said last about whether its account is signed in.
type Account struct {
	// SignedIn is what they said at SignedInCheckedAt, and have said since SignedInSince. A check to
	// which no site had an answer does not change it.
	SignedIn          SignedIn  `json:"signed_in,omitempty"`
	SignedInSince     time.Time `json:"signed_in_since,omitzero"`
	SignedInCheckedAt time.Time `json:"signed_in_checked_at,omitzero"`
	// SignedInTriedAt is when the last check had no answer; zero: it had one.
	SignedInTriedAt time.Time `json:"signed_in_tried_at,omitzero"`
	// SignedInToken is the token of the record at the last check: a higher one means that somebody
	// had the profile since.
	SignedInToken Token `json:"signed_in_token,omitempty"`
	// SignedInHow says how the answer was found, or why there never was one.
	SignedInHow string `json:"signed_in_how,omitempty"`
	// SignInAt is the origin of the site that said that the account is not signed in.
	SignInAt string `json:"sign_in_at,omitempty"`
	// AnotherAccount says that a site shows somebody else's account.
	AnotherAccount bool `json:"another_account,omitempty"`
	// SignInAttempts is how often a launcher began to sign the account in since a check last found it
	// signed in, and SignInBegunAt when it last did. An attempt counts before anything is typed.
	SignInAttempts int       `json:"sign_in_attempts,omitempty"`
	SignInBegunAt  time.Time `json:"sign_in_begun_at,omitzero"`
}

// Checked is what sites said at one check; the zero value if they were not asked.
type Checked struct {
	SignedIn SignedIn
	// How says how that was found. At is the origin of a site that said no, and Another that it
	// shows somebody else's account.
	How, At string
	Another bool
}

// Checked takes in what sites said about the account under the record's token. A change is an
// event.
func (r Record) Checked(c Checked, now time.Time) Record {
	if c.SignedIn == "" {
		return r
	}
	was := r.Account
	r.SignedInToken = r.Token
	if c.SignedIn == SignedInUnknown {
		r.SignedInTriedAt = now.UTC()
		if was.SignedInCheckedAt.IsZero() {
			r.SignedInHow = c.How
		}
		return r
	}
	r.SignedInCheckedAt, r.SignedInTriedAt, r.SignedInHow = now.UTC(), time.Time{}, c.How
	r.SignedIn, r.SignInAt, r.AnotherAccount = c.SignedIn, c.At, c.Another
	if c.SignedIn == SignedInYes {
		r.SignInAttempts, r.SignInBegunAt = 0, time.Time{}
	}
	r = r.markSnapshot()
	if was.SignedIn == c.SignedIn && was.AnotherAccount == c.Another {
		return r
	}
	r.SignedInSince = now.UTC()
	name := EventSignedIn
	switch {
	case c.Another:
		name = EventAnotherAccount
	case c.SignedIn == SignedInNo:
		name = EventSignedOut
	}
	r = r.Clone().emit(name, now)
	e := &r.Outbox[len(r.Outbox)-1]
	e.Reason, e.Decision, e.Reasons, e.DecisionVersion, e.SignInAt = c.How, "", nil, 0, c.At
	return r
}

// SignedOut tells whether the account is known not to be signed in.
func (a Account) SignedOut() bool { return a.SignedIn == SignedInNo }

// MostSignIns is how many attempts of launchers in a row may fail before a person has to sign in.
const MostSignIns = 2

// MaySignIn tells whether a launcher may try to sign in an account, by the records of all profiles that
// it has: person says that it may not until somebody has signed in by hand, and at is the earliest time
// otherwise.
func MaySignIn(profiles []Record) (at time.Time, person bool) {
	attempts := 0
	for _, r := range profiles {
		attempts += r.SignInAttempts
		if r.SignInAttempts > 0 {
			at = latest(at, r.SignInBegunAt.Add(checkAgain))
		}
	}
	return at, attempts >= MostSignIns
}

// BeginSignIn takes in that a launcher is about to try to sign the account in.
func (r Record) BeginSignIn(now time.Time) Record {
	r.SignInAttempts++
	r.SignInBegunAt = now.UTC()
	return r
}

const (
	// checkAfter is how long after a session its account is checked: the next task of a series is
	// not to find the profile occupied.
	checkAfter = 30 * time.Second
	// checkAgain is the least time after a check that did not find the account signed in.
	checkAgain = time.Hour
	// LeastCheckEvery and MostCheckEvery bound Settings.CheckEvery.
	LeastCheckEvery, MostCheckEvery = time.Minute, 30 * 24 * time.Hour
)

// NextCheck is when the profile's home is to ask by itself whether the account is signed in; zero:
// not in this state of the record. It asks once after each session, and then, while nobody uses the
// profile, every CheckEvery. After a check that had no answer, and between two that found the account
// signed out while nobody used it, there is an hour. AvailableAfter has to be by the caller's clock.
func (r Record) NextCheck() time.Time {
	if r.State != Available {
		return time.Time{}
	}
	last := latest(r.SignedInCheckedAt, r.SignedInTriedAt)
	at := r.AvailableAfter
	switch every := time.Duration(r.CheckEvery); {
	case r.SessionID != "" && r.SignedInToken != r.Token:
		at = latest(at, r.ReleasedAt.Add(checkAfter))
		if !r.SignedInTriedAt.IsZero() {
			at = latest(at, last.Add(checkAgain))
		}
	case every == 0:
		return time.Time{}
	case last.IsZero():
		at = latest(at, time.Unix(0, 0))
	default:
		if r.SignedIn != SignedInYes || !r.SignedInTriedAt.IsZero() {
			every = max(every, checkAgain)
		}
		at = latest(at, last.Add(every+r.jitter(every/10)))
	}
	return at
}

// jitter is a part of most that differs from profile to profile, so that not all are checked at the
// same time.
func (r Record) jitter(most time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.ProfileID)) // it never fails
	return time.Duration(float64(most) * float64(h.Sum32()%1000) / 1000)
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
