package launcher

import (
	"context"
	"errors"
	"time"

	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// CheckProfile makes the session check of a profile that is not in use: of a free one, or of
// one in review, since the person who decides may want to know the result.
func (ds *directories) CheckProfile(ctx context.Context, profileID string) (_ api.SessionChecked, err error) {
	r, done, err := ds.borrowIn(ctx, profileID, lease.Available, lease.ManualReview)
	if err != nil {
		return api.SessionChecked{}, err
	}
	defer done()
	if r.SessionCheck == nil {
		return api.SessionChecked{}, api.Invalid("session_check", "profile %s has none: set one (leasehold profiles create %s --session-check URL)", profileID, profileID)
	}
	path, err := ds.o.Root.Path(profileID)
	if err != nil {
		return api.SessionChecked{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err := ds.grants.checkDir(profileID, path); err != nil {
		return api.SessionChecked{}, err
	}
	if err := ds.browserFits(ctx, path); err != nil {
		return api.SessionChecked{}, err
	}
	slot := ds.slots.Find(profileID)
	if p := slot.TakePlace(&slots.Waiter{}); p != nil {
		return api.SessionChecked{}, p
	}
	lock, err := ds.lockUnused(r)
	if err != nil {
		return api.SessionChecked{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := lock.Chown(); err != nil {
		return api.SessionChecked{}, api.Refuse(api.CodeBrowserStartFailed, "profile %s cannot be given to the user of its browser: %v", profileID, err)
	}
	log := ds.o.Log.With().Str("profile", profileID).Uint64("token", uint64(r.Token)).Logger()
	log.Info().Str("principal", principal.Of(ctx).Name).Msg("session check asked for")
	// A caller who goes away must not leave a browser half closed.
	found, err := ds.checker.Run(context.WithoutCancel(ctx), accountcheck.Request{
		Profile: profileID, Path: path, Lock: lock, Token: r.Token, Check: r.SessionCheck, Sites: ds.o.Sites.Book(), ProxyID: r.ProxyID,
		Memory: r.BrowserMemory, KeepCookies: true, Log: log,
	})
	if err != nil {
		return api.SessionChecked{}, err
	}
	s := found.Session
	return api.SessionChecked{ProfileID: profileID, SignedIn: string(s.Answer), How: s.How, Status: s.Status, At: time.Now().UTC()}, nil
}
