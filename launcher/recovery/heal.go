package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/signed"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// kept is what this host keeps about a profile, besides its directory.
type kept struct {
	floor lease.Token // if the floor file is damaged, the token that it claims
	own   lease.Record
	// known is the highest token that this launcher knows of, from the floor or its roster.
	known lease.Token
	// reason is why it cannot be trusted, as the record then says; problem is the same for a
	// person. Empty and nil: it can be trusted.
	reason  string
	problem error
}

// kept reads what this host keeps about the record's profile, and judges it by its signatures
// and by the record. mine says that this launcher is the home: on a shared folder, every
// launcher is responsible for its own profiles, under a key of its own.
func (r *Recoverer) kept(rec lease.Record) (k kept, mine bool, err error) {
	k.floor, k.own, err = r.o.Root.Kept(rec.ProfileID)
	atFloor := k.own
	seen := r.o.Roster.Of(rec.ProfileID)
	home := k.ownKnown().Later(seen).Home
	var damaged *profiledir.DamagedError
	if errors.As(err, &damaged) {
		k.floor, k.own.Home = damaged.Claimed, damaged.Home
		home = cmp.Or(seen.Home, damaged.Home)
	} else if err != nil {
		return k, false, err
	}
	k.known = k.floor
	d, left, departed := r.o.Root.Departed(rec.ProfileID)
	left = left && !d.Pending
	if left {
		since, sinceSeen := rec.HomeToken, lease.Record{}
		if !seen.Unproved && seen.Home == r.o.LauncherID {
			since, sinceSeen = max(since, seen.HomeToken), seen.Record()
		}
		if since <= d.Token {
			// This holds whatever the record says: the record is older than the move, or agrees
			// with it.
			k.own.Home = d.Home
			return k, false, nil
		}
		// A person has made this launcher the home again, and the directory still counts as
		// left: what is kept beside it is older than the move, and only its settings may still
		// hold.
		if sinceSeen.State != "" && k.own.State != "" {
			sinceSeen.Settings = k.own.Settings
		}
		k.own, home = sinceSeen, sinceSeen.Home
	}
	if home = cmp.Or(rec.Home, home); home != "" && home != r.o.LauncherID {
		k.own.Home = home
		return k, false, nil
	}
	if seen.Home == r.o.LauncherID && !seen.Unproved {
		k.know(seen)
	}
	if err == nil {
		_, _, err = r.o.Root.Running(rec.ProfileID)
	}
	if err == nil {
		err = r.o.Jar.Check(rec.ProfileID)
	}
	if err == nil {
		err = departed
	}
	if err == nil {
		_, _, err = r.o.Root.Arriving(rec.ProfileID)
	}
	replaced := ""
	if err == nil && !left {
		replaced, err = r.o.Root.Replaced(rec.ProfileID)
	}
	var foreign *profiledir.ForeignLockError
	if err == nil && !left && rec.State.Free() {
		if err = r.o.Root.ForeignLock(rec.ProfileID); errors.As(err, &foreign) {
			if err = nil; foreign.Gone(r.ApprovedLock(rec)) {
				foreign = nil
			}
		}
	}
	var stored lease.Token
	if r.o.Stored != nil {
		stored = r.o.Stored(rec.ProfileID)
	}
	before := max(rec.Token, k.floor)
	k.known = max(k.known, stored)
	switch {
	case errors.Is(err, signed.ErrNotAuthentic):
		k.reason, k.problem = lease.ReasonNotAuthentic, err
	case err != nil:
		return k, true, err
	case stored > before:
		k.reason = lease.ReasonRolledBack
		k.problem = fmt.Errorf("the floor is %d, the record has token %d, and the profile store has seen token %d: both were put back to an older state, and sessions that came after it are forgotten", k.floor, rec.Token, stored)
	case replaced != "":
		k.reason, k.problem = lease.ReasonRolledBack, errors.New(replaced)
	case foreign != nil:
		k.reason, k.problem = lease.ReasonForeignLock, foreign
	case left: // the floor of a directory that was left stays where it was
	case !rec.ExplainsFloor(k.floor, atFloor):
		k.reason = lease.ReasonRolledBack
		k.problem = fmt.Errorf("the floor is %d, and the record, which is %s, has token %d: the floor is gone, or an older one was put in its place", k.floor, rec.State, rec.Token)
	case rec.Token < k.known && k.known > max(k.floor, seen.HomeToken)+lease.FloorLag:
		k.reason = lease.ReasonRolledBack
		k.problem = fmt.Errorf("the floor is %d, and this launcher has seen the profile with token %d, which the lease store forgot: the floor is gone, or an older one was put in its place", k.floor, k.known)
	}
	return k, true, nil
}

// unsaid tells whether the record has to say more than it does: it lacks what is known here, or it
// does not say that what is kept here cannot be trusted.
func (k kept) unsaid(rec lease.Record) bool {
	if k.reason != "" {
		return !rec.Distrusts(max(k.floor, k.known))
	}
	return rec.Lacks(k.own, k.known)
}

// ownKnown is what is kept of the profile beside its directory, in the form of a memory.
func (k kept) ownKnown() lease.Known {
	known := k.own.Known()
	known.Token = k.floor
	return known
}

// know adds what this launcher has seen of a profile whose home it is. A profile that never had
// a lease may have no floor. Its account and proxy are settings, which may change after the floor
// was written, and so may the number of its last event.
func (k *kept) know(seen lease.Known) {
	k.known = max(k.known, seen.Token)
	k.own.Sequence = max(k.own.Sequence, seen.Sequence)
	if k.own.State == "" {
		k.own = seen.Record()
	}
	k.own.AccountID, k.own.ProxyID = cmp.Or(k.own.AccountID, seen.AccountID), cmp.Or(k.own.ProxyID, seen.ProxyID)
}

// complete adds the account and the proxy, which never change once they are set, to a record
// that lacks them, and since when this launcher is the home: without that, a directory that was left
// here earlier would say that another one is.
func (k kept) complete(rec lease.Record) lease.Record {
	rec.HomeToken = max(rec.HomeToken, k.own.HomeToken)
	rec.AccountID, rec.ProxyID = cmp.Or(rec.AccountID, k.own.AccountID), cmp.Or(rec.ProxyID, k.own.ProxyID)
	return rec
}

// Forgot tells whether the store knows less of a profile than this host does, or whether what
// this host keeps about it cannot be trusted. Heal deals with both. On a shared folder every
// launcher is responsible for its own profiles: if what is kept here belongs to another one,
// home is that launcher, and the result is false. It is also false once the record says that a
// person has to decide: if it were not, what Heal writes would be healed again, without an end,
// for as long as the floor cannot be written.
func (r *Recoverer) Forgot(rec lease.Record) (forgot bool, home string, err error) {
	k, mine, err := r.kept(rec)
	if !mine {
		return false, k.own.Home, err
	}
	return k.unsaid(rec), "", err
}

// Forgotten returns the record of a profile that the store has forgotten, as Heal would restate
// it, for people to see. rec is what the store has. ok is false if there is nothing to heal, or
// the profile is another launcher's.
func (r *Recoverer) Forgotten(rec lease.Record) (healed lease.Record, ok bool) {
	k, mine, err := r.kept(rec)
	if err != nil || !mine || !k.unsaid(rec) {
		return rec, false
	}
	if rec.Home = r.o.LauncherID; k.reason != "" {
		rec, err = k.complete(rec).Distrust(k.reason, max(k.floor, k.known), k.own.Sequence, time.Now())
	} else {
		rec, err = rec.Heal(k.own, k.known, time.Now())
	}
	return rec, err == nil
}

// sharedReady refuses, with an api.Problem, a profile whose directory another host could have open.
func (r *Recoverer) sharedReady(profile string) error {
	path, err := r.o.Root.Path(profile)
	if err != nil || r.o.SharedReady == nil { // there is no directory, or none is shared
		return nil
	}
	return r.o.SharedReady(path)
}

// Heal restates a profile that the store has forgotten, from the record that this host kept
// beside it, and returns the record as it is then. If the kept record cannot be trusted, the
// profile is quarantined for a person. While another host could have the directory open, it is
// refused with an api.Problem, and nothing is stored. The caller occupies the profile.
func (r *Recoverer) Heal(ctx context.Context, profile string) (lease.Record, error) {
	var k kept
	entry, err := lease.Change(ctx, r.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		rec := e.Record
		mine := false
		var err error
		if k, mine, err = r.kept(rec); err != nil {
			return rec, err
		}
		if !mine || !k.unsaid(rec) {
			return rec, errAlready
		}
		if err := r.sharedReady(profile); err != nil {
			return rec, err
		}
		token, sequence, err := r.lastEvent(ctx, profile)
		if err != nil {
			return rec, err
		}
		rec.Home = r.o.LauncherID
		k.own.Sequence = max(k.own.Sequence, sequence)
		if k.reason != "" {
			rec = k.complete(rec)
			return rec.Distrust(k.reason, max(k.floor, k.known, token), k.own.Sequence, time.Now())
		}
		return rec.Heal(k.own, max(k.known, token), time.Now())
	})
	if errors.Is(err, errAlready) {
		return entry.Record, nil
	}
	log := r.o.Log.With().Str("profile", profile).Uint64("floor", uint64(k.floor)).Uint64("token", uint64(entry.Record.Token)).Str("state", string(entry.Record.State)).Logger()
	switch {
	case err != nil && k.reason != "":
		return entry.Record, fmt.Errorf("%w; the profile goes to a person as soon as that can be stored, and nobody gets it until then: %w", k.problem, err)
	case err != nil:
		return entry.Record, fmt.Errorf("the lease store forgot profile %s, token %d: %w", profile, k.floor, err)
	case k.reason == lease.ReasonForeignLock: // of the launcher's own files, nothing is wrong
		log.Warn().Str("reason", k.reason).AnErr("problem", k.problem).Msg("nobody can tell whether a browser has the profile: it goes to a person")
		return entry.Record, nil
	case k.reason != "":
		r.distrusts.WithLabelValues(k.reason).Inc()
		log.Error().Str("reason", k.reason).AnErr("problem", k.problem).Msg("what is kept of the profile cannot be believed: it goes to a person")
		return entry.Record, r.o.Jar.SetAside(profile)
	}
	r.heals.Inc()
	log.Warn().Msg("the lease store had forgotten the profile: it is restored from this host's own record")
	return entry.Record, nil
}

// lastEvent returns the highest token of a profile in the event stream, and the highest
// sequence under it. Events at or below that position would not be published again.
func (r *Recoverer) lastEvent(ctx context.Context, profile string) (token lease.Token, sequence uint64, err error) {
	events, err := r.o.Store.History(ctx, profile)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range events {
		if e.Sequence == 0 || e.Token > lease.MaxClaim { // it is not about a transition, or nobody's
			continue
		}
		token, sequence = max(token, e.Token), max(sequence, e.Sequence)
	}
	return token, sequence, nil
}

// distrusted says, at the end of a session, why what this host keeps about the profile cannot
// be trusted; empty if it can be.
func (r *Recoverer) distrusted(ctx context.Context, profile, sessionID string) (reason string, problem error) {
	e, err := r.o.Store.Get(ctx, profile)
	if err != nil || e.Record.SessionID != sessionID {
		return "", nil // the step that changes the record meets the same error
	}
	k, mine, err := r.kept(e.Record)
	if err != nil || !mine {
		return "", nil // the next reader meets the same error
	}
	return k.reason, k.problem
}
