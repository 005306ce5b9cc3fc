package launcher

import (
	"cmp"
	"context"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// Hold gives a profile to a person and starts its browser. What a person does is not judged. A
// hold that does not end in order, by Release or by closing the browser, leads to
// manual_review; a hold of a profile in review returns the profile to the review.
func (l *Launcher) Hold(ctx context.Context, profileID string, h api.HoldRequest) (api.Session, error) {
	if _, err := l.Profile(ctx, profileID); err != nil {
		return api.Session{}, err
	}
	if err := cmp.Or(api.CheckPerson("holder", h.Holder, "the person who uses the profile"), api.CheckNote(h.Note)); err != nil {
		return api.Session{}, err
	}
	if h.LockTimeoutSeconds == 0 {
		h.LockTimeoutSeconds = api.DefaultHold.Seconds()
	}
	alone, warm := true, false
	return l.Acquire(ctx, api.Manifest{
		ProfileID: profileID, WorkerID: h.Holder, TaskID: id.New("by-hand"), LockTimeoutSeconds: h.LockTimeoutSeconds,
		Headless: h.Headless, DedicatedPort: true, OnClose: api.OnCloseKeep, RequiresExclusiveProfileLock: &alone, KeepWarm: &warm,
		ByHand: &api.ByHand{Holder: h.Holder, Note: h.Note, TokenSeen: h.Token},
	})
}

// outdated refuses a person who saw a token that is not the record's any more.
func (g *grants) outdated(ctx context.Context, r lease.Record, m api.Manifest) error {
	if m.ByHand == nil || m.ByHand.TokenSeen == r.Token {
		return nil
	}
	if m.ByHand.TokenSeen == 0 {
		return api.Invalid("lease_token", "want the token that the person saw: it is %d now", r.Token)
	}
	return g.announcer.Stale(ctx, r.ProfileID, r.SessionID, m.ByHand.TokenSeen, r.Token, "hold")
}
