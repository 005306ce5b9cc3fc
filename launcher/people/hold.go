package people

import (
	"cmp"
	"context"

	"leasehold/internal/id"
	"leasehold/launcher/api"
)

// Hold gives a profile to a person and starts its browser. What a person does is not judged. A
// hold that does not end in order, by Release or by closing the browser, leads to
// manual_review; a hold of a profile in review returns the profile to the review.
func (p *Service) Hold(ctx context.Context, profileID string, h api.HoldRequest) (api.Session, error) {
	if _, err := p.profiles.Profile(ctx, profileID); err != nil {
		return api.Session{}, err
	}
	if err := cmp.Or(api.CheckPerson("holder", h.Holder, "the person who uses the profile"), api.CheckNote(h.Note)); err != nil {
		return api.Session{}, err
	}
	if h.LockTimeoutSeconds == 0 {
		h.LockTimeoutSeconds = api.DefaultHold.Seconds()
	}
	alone, warm := true, false
	return p.grants.Acquire(ctx, api.Manifest{
		ProfileID: profileID, WorkerID: h.Holder, TaskID: id.New("by-hand"), LockTimeoutSeconds: h.LockTimeoutSeconds,
		Headless: h.Headless, DedicatedPort: true, OnClose: api.OnCloseKeep, RequiresExclusiveProfileLock: &alone, KeepWarm: &warm,
		ByHand: &api.ByHand{Holder: h.Holder, Note: h.Note, TokenSeen: h.Token},
	})
}
