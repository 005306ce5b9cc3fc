package profiles

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// blank is a profile that never had a lease.
func (ps *Service) blank(profile string) (api.Profile, error) {
	floor, err := ps.host.Root.Floor(profile)
	if damaged, ok := errors.AsType[*profiledir.DamagedError](err); ok { // the patrol sends it to a person
		return shown(lease.Record{
			ProfileID: profile, State: lease.Quarantined, Token: damaged.Claimed, Home: cmp.Or(damaged.Home, ps.host.ID), Reason: lease.ReasonNotAuthentic, Settings: lease.Settings{MaxActiveRuns: 1},
		}), nil
	}
	if err != nil {
		return api.Profile{}, err
	}
	return shown(lease.Record{ProfileID: profile, State: lease.Available, Token: floor, Home: ps.host.ID, Settings: lease.Settings{MaxActiveRuns: 1}}), nil
}

// shown is a record beside which nothing is seen.
func shown(r lease.Record) api.Profile { return api.Profile{Record: r.Public()} }

// Profile returns a profile. While the store cannot be reached, it is as this launcher saw it last,
// with the time since when. Such a record must not be used to decide anything.
func (ps *Service) Profile(ctx context.Context, profileID string) (api.Profile, error) {
	asking, cancel := context.WithTimeout(ctx, ps.reach.patience())
	defer cancel()
	r, err := ps.stored(asking, profileID)
	if unavailable(err) {
		return ps.remembered(ctx, profileID, err)
	}
	return r, err
}

// unavailable tells whether an error says that the store cannot be reached.
func unavailable(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Code == api.CodeStoreUnavailable
}

// stored returns a profile as the store has it now, for callers who act on it.
func (ps *Service) stored(ctx context.Context, profileID string) (api.Profile, error) {
	if err := lease.CheckProfileID(profileID); err != nil {
		return api.Profile{}, api.Invalid("profile_id", "%v", err)
	}
	entry, err := ps.host.Store.Get(ctx, profileID)
	if err == nil {
		return ps.host.Shown(entry.Record).Public(), nil
	}
	if !errors.Is(err, lease.ErrNotFound) {
		return api.Profile{}, host.Problem(err)
	}
	return ps.unseen(profileID)
}

// unseen returns a profile that has no record in the store, and at most a
// directory here.
func (ps *Service) unseen(profileID string) (api.Profile, error) {
	if _, err := ps.host.Root.Path(profileID); err != nil {
		return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", profileID)
	}
	return ps.noRecord(profileID)
}

// leastMemory is the lowest memory limit of a browser, in bytes. Below it even an empty browser
// would be ended at once.
const leastMemory = 128 << 20

// PutRecord stores settings in the record of a profile, which need not have a directory. remade
// says that the profile gets a new directory in the place of an earlier one.
func (ps *Service) PutRecord(ctx context.Context, profileID string, set api.ProfileSettings, remade bool) (lease.Record, error) {
	if err := ps.HealFirst(ctx, profileID); err != nil {
		return lease.Record{}, host.Problem(err)
	}
	floor, err := ps.host.Root.Floor(profileID)
	if err != nil {
		return lease.Record{}, host.Problem(err)
	}
	store := &numbered{Store: ps.host.Store}
	entry, err := lease.Change(ctx, store, profileID, func(e lease.Entry) (lease.Record, error) {
		r, was := e.Record, e.Record.State
		if was == "" {
			if err := ps.notFree(r); err != nil {
				return r, err
			}
			var err error
			if store.number, err = ps.host.MayMake(ctx, profileID); err != nil {
				return r, err
			}
			r.State, r.Home, r.Token, r.MaxActiveRuns = lease.Available, ps.host.ID, floor, 1
		}
		switch {
		case r.Home != "" && r.Home != ps.host.ID:
			return r, ps.host.Patrol.Home(r)
		case set.Token != 0 && set.Token != r.Token:
			return r, ps.host.Announcer.Stale(ctx, profileID, r.SessionID, set.Token, r.Token, "settings")
		case set.Token == 0 && !r.State.Free():
			return r, api.Refuse(api.CodeConflict, "profile %s is %s: its settings change with the current lease_token only", profileID, r.State).
				With("state", r.State).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		case set.MaxActiveRuns != nil && *set.MaxActiveRuns != r.MaxActiveRuns && !r.State.Free():
			return r, api.Refuse(api.CodeConflict, "profile %s is %s: max_active_runs changes when nobody uses it", profileID, r.State).
				With("state", r.State).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		case set.AccountID != nil && r.AccountID != "" && *set.AccountID != r.AccountID:
			return r, api.Refuse(api.CodeAccountMismatch, "profile %s belongs to account %s for good", profileID, r.AccountID).With("account_id", r.AccountID)
		}
		if account := applySettings(r, set).AccountName(); was == "" || account != r.AccountName() {
			if err := ps.MayGive(ctx, profileID, account); err != nil {
				return r, err
			}
		}
		if err := ps.CheckProxy(r, set.ProxyID); err != nil {
			return r, err
		}
		if remade {
			if err := host.Resumes(r); err != nil {
				return r, err
			}
			if was == lease.Available {
				var err error
				if r, err = r.Remake(principal.Of(ctx).Name, time.Now()); err != nil {
					return r, err
				}
			}
		}
		return withSettings(r, set)
	})
	if err != nil {
		return lease.Record{}, host.Problem(err)
	}
	ps.host.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("principal", principal.Of(ctx).Name).Msg("profile set")
	if set.KeepWarm != nil && !*set.KeepWarm {
		ps.host.Slots.CoolProfile(profileID, slots.WarmSetting)
	}
	return entry.Record, nil
}

// MayGive refuses a caller who may not give a profile this account (see lease.Record.AccountName). Whoever uses a profile
// can have the sidecar sign in there with the account's secret: an account of other profiles is given by who manages
// one of these.
func (ps *Service) MayGive(ctx context.Context, profileID, account string) error {
	by := principal.Of(ctx)
	if by.Everywhere(principal.Manage) {
		return nil
	}
	rows, _, err := ps.rows(ctx)
	if err != nil {
		return err
	}
	others := ""
	for _, row := range rows {
		switch r := row.Record; {
		case r.ProfileID == profileID || r.AccountName() != account:
		case by.May(principal.Manage, r.ProfileID):
			return nil
		default:
			others = r.ProfileID
		}
	}
	if others == "" {
		return nil
	}
	p := api.Refuse(api.CodeForbidden, "account %s is that of profiles which you do not manage, and who uses profile %s could sign in as it: who manages one of them gives it. %s",
		account, profileID, by.Refusal(principal.Manage, others))
	p.Field = "account_id"
	return p
}

// notFree refuses to make a record of a profile that the store forgot while it was in use, in
// recovery or in review. The session or recovery that occupies it here, and so kept it from
// being healed, restates it.
func (ps *Service) notFree(r lease.Record) error {
	if _, home, err := ps.host.Recoverer.Forgot(r); err != nil {
		return err
	} else if home != "" {
		return ps.host.Patrol.Home(lease.Record{ProfileID: r.ProfileID, Home: home})
	}
	healed, forgotten := ps.host.Recoverer.Forgotten(r)
	if !forgotten || healed.State.Free() {
		return nil
	}
	p := api.Refuse(api.CodeConflict, "the lease store has forgotten profile %s, which is %s, and it is being restored: ask again in a moment", r.ProfileID, healed.State).
		With("state", healed.State).With("lease_token", healed.Token)
	p.RetryAfter = 1
	return p
}

// History returns the profile's events, oldest first. It has at least the event that led to the
// profile's present state.
func (ps *Service) History(ctx context.Context, profileID string) ([]lease.Event, error) {
	if _, err := ps.Profile(ctx, profileID); err != nil {
		return nil, err
	}
	entry, err := ps.host.Store.Get(ctx, profileID) // read before the stream: an event that is not on the stream yet is in its outbox
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return nil, host.Problem(err)
	}
	events, err := ps.host.Store.History(ctx, profileID)
	if err != nil {
		return nil, host.Problem(err)
	}
	return withOutbox(events, entry.Record.Outbox), nil
}

// withOutbox adds the events that are not on the stream yet, so that a caller who has seen a
// state also finds the event that led to it.
func withOutbox(events, outbox []lease.Event) []lease.Event {
	for _, e := range outbox {
		there := func(p lease.Event) bool { return p.Sequence == e.Sequence && p.Token == e.Token }
		if !slices.ContainsFunc(events, there) {
			events = append(events, e)
		}
	}
	return events
}

// Review applies a person's decision to a profile in manual review.
func (ps *Service) Review(ctx context.Context, profileID string, req api.ReviewRequest) (api.Profile, error) {
	if _, err := ps.Profile(ctx, profileID); err != nil {
		return api.Profile{}, err
	}
	if req.Decision != lease.ReviewApprove && req.Decision != lease.ReviewKeep {
		return api.Profile{}, api.Invalid("decision", "%q: want approve or keep", req.Decision)
	}
	if err := cmp.Or(api.CheckPerson("reviewer", req.Reviewer, "who decides"), api.CheckNote(req.Note)); err != nil {
		return api.Profile{}, err
	}
	entry, err := lease.Change(ctx, ps.host.Store, profileID, func(e lease.Entry) (lease.Record, error) {
		if e.Record.State != lease.ManualReview {
			return e.Record, api.Refuse(api.CodeNotInReview, "profile %s is %s, not in manual_review", profileID, e.Record.State).With("state", e.Record.State)
		}
		if req.Sequence != 0 && req.Sequence != e.Record.Sequence {
			return e.Record, api.Refuse(api.CodeStaleToken, "profile %s has changed since it was read: the number of its last event is %d, not %d. Read it again", profileID, e.Record.Sequence, req.Sequence).With("current_token", e.Record.Token)
		}
		return e.Record.Reviewed(lease.Review{
			Decision: req.Decision, Reviewer: req.Reviewer, Principal: principal.Of(ctx).Name, Note: req.Note, TokenSeen: req.Token,
			EvidenceID: req.EvidenceID, Home: req.Home,
		}, ps.o.Cooldown, time.Now())
	})
	if fenced, ok := errors.AsType[*lease.FencedError](err); ok {
		return api.Profile{}, ps.host.Announcer.Stale(ctx, profileID, entry.Record.SessionID, req.Token, fenced.Current, "review")
	}
	if incident, ok := errors.AsType[*lease.IncidentError](err); ok {
		return api.Profile{}, api.Refuse(api.CodeStaleToken, "%v", err).With("current_token", entry.Record.Token).With("evidence_id", incident.Current)
	}
	if _, ok := errors.AsType[*lease.HomeError](err); ok {
		return api.Profile{}, api.Invalid("home", "%v", err)
	}
	if err != nil {
		return api.Profile{}, host.Problem(err)
	}
	ps.host.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("decision", req.Decision).Str("reviewer", req.Reviewer).Str("principal", principal.Of(ctx).Name).Msg("reviewed")
	ps.host.Slots.Wake()
	return ps.host.Shown(entry.Record).Public(), nil
}

// Inspection returns what the profile's last recovery found here; nothing if its record is about
// another recovery.
func (ps *Service) Inspection(ctx context.Context, profileID string) (api.Inspection, error) {
	r, err := ps.Profile(ctx, profileID)
	if err != nil {
		return api.Inspection{}, err
	}
	return ps.host.Recoverer.Inspection(r.Record)
}

// forgotten is what is shown of a profile that the store has forgotten: the record as its home
// would restate it. ok is false for a profile that never had a record.
func (ps *Service) forgotten(profile string) (_ api.Profile, ok bool) {
	healed, ok := ps.host.Recoverer.Forgotten(lease.Record{ProfileID: profile})
	return ps.host.Shown(healed).Public(), ok
}

// noRecord returns what to show of a profile that has no record in the store: what is known of
// it here, or a blank one if there is only its directory.
func (ps *Service) noRecord(profile string) (api.Profile, error) {
	if r, ok := ps.forgotten(profile); ok {
		return r, nil
	}
	return ps.blank(profile)
}

// current returns the record of a profile that is to be used or copied. If the store forgot it,
// it is restated first.
func (ps *Service) current(ctx context.Context, profile string) (lease.Record, error) {
	if err := lease.CheckProfileID(profile); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	if err := ps.HealFirst(ctx, profile); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, host.Problem(err)
	}
	p, err := ps.stored(ctx, profile)
	return p.Record, err
}

// numbered is a lease store that makes records only in the store whose number host.Host.MayMake returned.
type numbered struct {
	lease.Store
	number uint64
}

func (n *numbered) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	prev.Number = n.number
	return n.Store.Swap(ctx, prev, next)
}
