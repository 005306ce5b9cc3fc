package recovery

import (
	"context"
	"errors"
	"time"

	"leasehold/lease"
)

// Remembers returns what this launcher remembers of a profile: from its roster or, if it is or
// was the profile's home, from the files beside the directory.
func (r *Recoverer) Remembers(profile string) lease.Known {
	seen := r.o.Roster.Of(profile)
	floor, own, err := r.o.Root.Kept(profile)
	if d, left, _ := r.o.Root.Departed(profile); left && !d.Pending {
		if seen.Token >= d.Token {
			return seen
		}
		return lease.Known{ProfileID: profile, Home: d.Home, HomeToken: d.Token, Token: d.Token, State: lease.Available, AccountID: own.AccountID, ProxyID: own.ProxyID, Sequence: seen.Sequence}
	}
	if err != nil || own.Home != r.o.LauncherID {
		return seen // a floor that cannot be trusted is dealt with by Heal
	}
	return kept{floor: floor, own: own}.ownKnown().Later(seen)
}

// Elsewhere tells whether the record names another launcher as the home.
func (r *Recoverer) Elsewhere(rec lease.Record) bool {
	return rec.Home != "" && rec.Home != r.o.LauncherID
}

// WasHome tells whether, by the files beside the directory, this launcher was the profile's
// home. On a folder that several launchers share, another launcher's files do not count.
func (r *Recoverer) WasHome(profile string) bool {
	_, own, err := r.o.Root.Kept(profile)
	return err == nil && own.Home == r.o.LauncherID
}

// Restate writes into the lease store what this launcher remembers of a profile, if the store
// has forgotten or contradicts it:
//
//   - A forgotten profile of another launcher is recalled: it is quarantined until its home is
//     back, or a person decides. This launcher's own profiles are restored by Heal.
//   - A profile that was made anew under another home is contested: its user is fenced, and a
//     person decides.
//
// It writes nothing if the store agrees with what is remembered. The profile need not be
// occupied: whoever is at work on it sees the record change.
func (r *Recoverer) Restate(ctx context.Context, profile string) error {
	k := r.Remembers(profile)
	if k.Unproved {
		return nil
	}
	judged := lease.Agrees
	other := ""
	entry, err := lease.Change(ctx, r.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		rec := e.Record
		if judged = k.Judge(rec); judged == lease.Agrees || judged == lease.Forgets && k.Home == r.o.LauncherID {
			return rec, errAlready
		}
		token, sequence, err := r.lastEvent(ctx, profile)
		if err != nil {
			return rec, err
		}
		if judged == lease.Forgets {
			return rec.Recall(k, r.o.LauncherID, token, sequence, time.Now())
		}
		other = rec.Home
		own := lease.Record{}
		if k.Home == r.o.LauncherID {
			if _, own, err = r.o.Root.Kept(profile); err != nil {
				return rec, err
			}
		}
		return rec.Contest(k, own, token, sequence, time.Now())
	})
	if errors.Is(err, errAlready) {
		return nil
	}
	if err != nil {
		return err
	}
	log := r.o.Log.With().Str("profile", profile).Str("home", k.Home).Uint64("token", uint64(entry.Record.Token)).Logger()
	if judged == lease.Forgets {
		r.recalls.Inc()
		log.Warn().Msg("the lease store had forgotten a profile of another launcher: nobody gets it until that one is back, or a person decides")
		return nil
	}
	r.contests.Inc()
	log.Error().Str("other_home", other).Uint64("remembered_token", uint64(k.Token)).
		Msg("the lease store had forgotten the profile, and another launcher made it anew: both stop, and a person decides which of them is its home")
	return nil
}
