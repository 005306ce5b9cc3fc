package lease

import (
	"slices"
	"time"
)

// Standing is what a record says of the lease that a token stands for.
type Standing int

// The standings.
const (
	Current Standing = iota
	Doubted          // suspected: the holder may reassert it
	Behind           // the record is older than the token: the store forgot
	Over             // ended, or superseded
)

// Standing tells how the lease with the token stands.
func (r Record) Standing(t Token) Standing {
	switch {
	case r.Token < t:
		return Behind
	case r.MaxActiveRuns <= 1 && r.Token > t:
		return Over // whatever the one run says
	case !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Token == t }):
		return Over
	case r.State == Held:
		return Current
	case r.State == SuspectedStale:
		return Doubted
	}
	return Over
}

// Progress is what a session tells the record between transitions. Empty fields
// leave the record's as they are.
type Progress struct {
	LastKnownURL, LastKnownStep, LastSafeCheckpoint string
}

func (p Progress) over(q Progress) Progress {
	if p.LastKnownURL == "" {
		p.LastKnownURL = q.LastKnownURL
	}
	if p.LastKnownStep == "" {
		p.LastKnownStep = q.LastKnownStep
	}
	if p.LastSafeCheckpoint == "" {
		p.LastSafeCheckpoint = q.LastSafeCheckpoint
	}
	return p
}

func (p Progress) apply(r Record) Record {
	q := p.over(Progress{r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint})
	r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint = q.LastKnownURL, q.LastKnownStep, q.LastSafeCheckpoint
	return r
}

// Uphold is what the holder of the token writes over r: its progress, and the
// lease where the store doubts or forgot it. own is the record as the holder last
// wrote or saw it. A *FencedError where the lease is over.
func (r Record) Uphold(own Record, t Token, p Progress, now time.Time) (Record, error) {
	switch r.standing(own, t) {
	case Over:
		return r, &FencedError{Profile: own.ProfileID, Token: t, Current: r.Token}
	case Doubted:
		return p.apply(r).Reassert(now)
	case Behind:
		own = own.Clone()
		own.Sequence = max(own.Sequence, r.Sequence)
		return p.apply(own), nil
	}
	return p.apply(r), nil
}

// standing is Standing, for a holder who remembers its own grant: on a directory
// that two hosts can open, a store that forgot may have granted the same token
// to the other.
func (r Record) standing(own Record, t Token) Standing {
	s := r.Standing(t)
	if (s == Current || s == Doubted) && (r.LauncherID != own.LauncherID || r.PresenceEpoch != own.PresenceEpoch) {
		return Over
	}
	return s
}

// Continue takes the lease with the token over into a later stay of the launcher
// that holds it: q's presence and boot. The token stays, since nothing was granted.
// The caller has proved that the holder before has ended, before its deadline, so
// that nobody else could act. A *FencedError where the record is not that of one
// run, held by this launcher in an earlier stay of the same boot.
func (r Record) Continue(t Token, q Request, now time.Time) (Record, error) {
	one := len(r.Runs) == 1 && len(r.LostRuns) == 0 && r.Runs[0].Token == t && r.Token == t
	if r.State != Held || !one || r.LauncherID != q.LauncherID || r.PresenceEpoch >= q.PresenceEpoch || r.BootID != q.BootID || q.BootID == "" {
		return r, &FencedError{Profile: r.ProfileID, Token: t, Current: r.Token}
	}
	r = r.Clone()
	r.PresenceEpoch = q.PresenceEpoch
	r.HeartbeatAt, r.ExpiresAt = now.UTC(), now.Add(q.TTL).UTC()
	r.TTLSeconds = q.TTL.Seconds()
	return r, nil
}
