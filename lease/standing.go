package lease

import (
	"cmp"
	"slices"
	"time"
)

// Standing is what a record says about the lease that belongs to a token.
type Standing int

// The standings.
const (
	Current Standing = iota // the lease is held
	Doubted                 // it is suspected: its holder may reassert it
	Behind                  // the record is older than the token: the store forgot
	Over                    // it has ended, or a higher token was granted
)

// Standing returns the standing of the lease with the token.
func (r Record) Standing(t Token) Standing {
	switch {
	case r.Token < t, r.Token == t && r.RememberedBy != "":
		return Behind
	case r.MaxActiveRuns <= 1 && r.Token > t:
		return Over // even if the record still lists a run with the token
	case !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Token == t }):
		return Over
	case r.State == Held:
		return Current
	case r.State == SuspectedStale:
		return Doubted
	}
	return Over
}

// standingFor is Standing for the holder itself, which also remembers its own grant. A store
// that forgot may have granted the same token a second time, to a launcher on another host that
// can open the directory, too: then the lease is over. It is also over if another host made the
// profile anew.
func (r Record) standingFor(own Record, t Token) Standing {
	if r.Home != "" && own.Home != "" && r.Home != own.Home {
		return Over
	}
	s := r.Standing(t)
	if (s == Current || s == Doubted) && (r.LauncherID != own.LauncherID || r.PresenceEpoch != own.PresenceEpoch) {
		return Over
	}
	return s
}

// Progress is what a session writes into its record between transitions. Empty fields leave
// those of the record as they are.
type Progress struct {
	LastKnownURL, LastKnownStep, LastSafeCheckpoint string
}

// or returns p with its empty fields taken from q.
func (p Progress) or(q Progress) Progress {
	return Progress{
		LastKnownURL:       cmp.Or(p.LastKnownURL, q.LastKnownURL),
		LastKnownStep:      cmp.Or(p.LastKnownStep, q.LastKnownStep),
		LastSafeCheckpoint: cmp.Or(p.LastSafeCheckpoint, q.LastSafeCheckpoint),
	}
}

func (p Progress) apply(r Record) Record {
	q := p.or(Progress{r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint})
	r.LastKnownURL, r.LastKnownStep, r.LastSafeCheckpoint = q.LastKnownURL, q.LastKnownStep, q.LastSafeCheckpoint
	return r
}

// Uphold returns what the holder of the token writes over r: its progress, and the whole lease
// if it is suspected or the store forgot it. own is the record as the holder last wrote or saw
// it. The error is a *FencedError if the lease is over.
func (r Record) Uphold(own Record, t Token, p Progress, now time.Time) (Record, error) {
	// A store that went back to earlier in this lease would give the numbers of its later events again.
	r.Sequence = max(r.Sequence, own.Sequence)
	switch r.standingFor(own, t) {
	case Over:
		return r, &FencedError{Profile: own.ProfileID, Token: t, Current: r.Token}
	case Doubted:
		return p.apply(r).Reassert(now)
	case Behind:
		own = r.replacedBy(own)
		own.Sequence = max(own.Sequence, r.Sequence)
		return p.apply(own), nil
	}
	return p.apply(r), nil
}

// Continue moves the lease with the token to a later stay of the same launcher; q has the
// presence epoch and the boot of that stay. The token stays the same, since nothing was
// granted. The caller has proved that the earlier process has ended and that its lease has not
// expired, so that nobody else could act in between. The error is a *FencedError unless this
// launcher held the record in an earlier stay of the same boot, with exactly one run.
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
