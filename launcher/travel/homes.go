package travel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/profiledir"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// errLater says that nothing can be done yet. It is not a failure.
var errLater = errors.New("later")

// Settle brings the directories of this host in line with the homes of their profiles. A directory that was
// left for another home is marked and never opened again. A directory that was prepared for a profile that
// moved here is put into its place. A profile that another launcher asks for is given up.
//
// It starts what has to be done about the record's profile, in the background, and tells
// whether it has begun. It is called for each record that the store shows, before anything else
// is done with the profile.
func (t *Service) Settle(r lease.Record) bool {
	if !t.due(r) {
		return false
	}
	slot := t.host.Slots.OccupyPassing(r.ProfileID)
	if slot == nil {
		return false // its slot is occupied: the next look comes here again
	}
	t.work.Go(func() {
		defer slot.Vacate()
		log := t.host.Log.With().Str("profile", r.ProfileID).Logger()
		if err := t.settle(slot, r.ProfileID, log); err != nil && !errors.Is(err, errLater) && t.ctx.Err() == nil {
			log.Error().Err(err).Msg("the profile's directory is not in line with its home: it is tried again")
		}
	})
	return true
}

// due tells whether there is anything to do. It reads the files beside the directory, and may
// be wrong while the profile's slot is occupied.
func (t *Service) due(r lease.Record) bool {
	_, arriving, err := t.host.Root.Arriving(r.ProfileID)
	if err != nil {
		return false // the files kept here cannot be trusted: see recovery.Recoverer.Heal
	}
	d, left, err := t.host.Root.Departed(r.ProfileID)
	switch {
	case err != nil || r.State == "":
		return false
	case r.Home == t.host.ID && (arriving || left && d.Pending && r.HomeToken < d.Token && t.host.Presence.HomesHadTime()):
		return true
	case r.Home == t.host.ID:
		return r.MoveRequest != nil && !left
	}
	return arriving || t.leaves(r, d, left)
}

// leaves tells whether this launcher was the home, did not know of the move that the record
// shows, and has yet to mark its directory as left. A home that is contested, or that the
// record names only because a launcher remembers it, does not count.
func (t *Service) leaves(r lease.Record, d profiledir.Departure, left bool) bool {
	if r.Home == "" || r.OtherHome != "" || r.RememberedBy != "" || left && !d.Pending && d.Token >= r.HomeToken {
		return false
	}
	if _, err := t.host.Root.Path(r.ProfileID); err != nil {
		return false // there is no directory
	}
	return t.host.Recoverer.WasHome(r.ProfileID) && t.host.Recoverer.Remembers(r.ProfileID).Judge(r) == lease.Agrees
}

// settle does what has to be done about an occupied profile, according to the store's present
// record.
func (t *Service) settle(slot *slots.Slot, profile string, log zerolog.Logger) error {
	entry, err := t.host.Store.Get(t.ctx, profile)
	if err != nil {
		return errLater
	}
	r := entry.Record
	if !t.due(r) {
		return nil
	}
	slot.CloseWarm(slots.WarmWanted, "")
	lock, err := t.host.Root.Lock(profile)
	if errors.Is(err, profiledir.ErrLocked) && r.Home != t.host.ID { // an earlier browser has it open: that is closed first
		lock, err = t.host.Root.Adopt(profile)
	}
	if err != nil {
		return err
	}
	a, arriving, err := t.host.Root.Arriving(profile)
	switch {
	case err != nil:
	case arriving: // what else there is to do is done after the next look at the record, which this writes
		err = t.settleArrival(lock, a, log)
	case r.Home != t.host.ID:
		err = t.leave(lock, r, log)
	default:
		err = t.settleHere(lock, entry, log)
	}
	return errors.Join(err, lock.Unlock())
}

// settleArrival puts a prepared directory into its place if the profile came here by its move, and
// removes it otherwise. Only a write tells which: the home may have given the profile up after what a
// read shows, and then there is no other directory.
func (t *Service) settleArrival(lock *profiledir.Lock, a profiledir.Arrival, log zerolog.Logger) error {
	now, err := t.barrier(lock.Profile(), a.MoveID)
	switch {
	case err != nil:
		return err
	case now.Home == t.host.ID && now.Moved != nil && now.Moved.ID == a.MoveID:
		return t.arrive(lock, now, log)
	}
	return lock.DropArrival()
}

// leave marks the directory of a profile that lives elsewhere.
func (t *Service) leave(lock *profiledir.Lock, r lease.Record, log zerolog.Logger) error {
	d, left, err := t.host.Root.Departed(r.ProfileID)
	if err != nil || !t.leaves(r, d, left) {
		return err
	}
	t.o.Roster.See(r)
	if err := lock.Depart(profiledir.Departure{Home: r.Home, Token: r.HomeToken, At: time.Now().UTC()}); err != nil {
		return err
	}
	log.Warn().Uint64("token", uint64(r.HomeToken)).Str("home", r.Home).Msg("another launcher is the profile's home: the directory here is marked as left, stays as evidence, and is not opened any more")
	return nil
}

// settleHere finishes what was begun about a profile whose home is here.
func (t *Service) settleHere(lock *profiledir.Lock, entry lease.Entry, log zerolog.Logger) error {
	r := entry.Record
	d, left, err := t.host.Root.Departed(r.ProfileID)
	switch {
	case err != nil:
		return err
	case left && d.Pending:
		now, err := t.barrier(r.ProfileID, "")
		if err != nil {
			return err
		}
		if now.Home == t.host.ID && now.HomeToken < d.Token {
			log.Info().Uint64("token", uint64(d.Token)).Msg("the profile was not given up after all: its home is still here")
			return lock.Stay()
		}
		return errLater
	case r.MoveRequest != nil:
		return t.giveUp(lock, entry, log)
	}
	return nil
}

// barrier writes the record as it is, but without the request of that id: after this, no
// earlier write can be stored any more. It returns the record as it is now.
func (t *Service) barrier(profile, request string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(t.ctx, moveTimeout)
	defer cancel()
	stored, err := lease.ChangeExisting(ctx, t.host.Store, profile, func(e lease.Entry) (lease.Record, error) {
		next, _ := e.Record.Withdraw(request)
		return next, nil
	})
	return stored.Record, err
}

// arrive puts the prepared directory into its place. The session cookies of an earlier
// directory of the profile here do not belong to it, and go to the archive with that.
func (t *Service) arrive(lock *profiledir.Lock, r lease.Record, log zerolog.Logger) error {
	former, err := t.cookiesLeft(r.ProfileID)
	if err != nil {
		return err
	}
	archived, err := lock.Arrive(r, time.Now(), former, func(extras map[string][]byte) error { return t.host.Jar.Import(r.ProfileID, extras) })
	if err != nil {
		return err
	}
	log.Warn().Uint64("token", uint64(r.Token)).Str("old_home", r.Moved.From).Str("directory", r.Moved.Directory).Str("archived", archived).
		Msg("this launcher is the profile's home: its directory is in its place")
	t.host.Slots.Wake()
	t.overtake(t.ctx, r.ProfileID, r.Token)
	return nil
}

// giveUp gives a profile to the launcher that asks for it. It marks the directory as left
// before it changes the record, so that the directory is never opened after that.
func (t *Service) giveUp(lock *profiledir.Lock, entry lease.Entry, log zerolog.Logger) error {
	r := entry.Record
	if t.host.Presence.HomeReady() != nil {
		return errLater
	}
	decline := func(why error) error {
		log.Warn().Err(why).Str("to", r.MoveRequest.To).Msg("the profile is not given up")
		_, err := t.barrier(r.ProfileID, r.MoveRequest.Move.ID)
		return err
	}
	if r.MoveRequest.Move.Person == "" && t.hasPlace() { // it was asked while it was away, or had no place
		return decline(errors.New("its home is here, and has a place for it"))
	}
	if err := lock.MayOpen(); err != nil {
		return decline(err)
	}
	if err := t.host.SettleLock(lock, r); err != nil {
		return decline(err)
	}
	switch forgot, _, err := t.host.Recoverer.Forgot(r); {
	case err != nil:
		return decline(err)
	case forgot:
		return decline(errors.New("what is known of it here is not in its record yet, or what is kept of it cannot be believed"))
	}
	if path, err := t.host.Root.Path(r.ProfileID); err == nil {
		if u, err := profiledir.FindUser(path); err != nil || u != nil {
			return decline(fmt.Errorf("%v has it open without a lease (%w)", u, err))
		}
	}
	next, err := r.GiveUp(time.Now())
	if err != nil {
		return decline(err)
	}
	d := profiledir.Departure{Home: next.Home, Token: next.HomeToken, At: time.Now().UTC(), Pending: true}
	if err := lock.Depart(d); err != nil {
		return errors.Join(decline(err), err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, moveTimeout)
	defer cancel()
	stored, err := t.host.Store.Swap(ctx, entry, next)
	var moved *lease.MovedError
	switch {
	case errors.As(err, &moved): // it was not stored, and never will be
		return lock.Stay()
	case err != nil:
		return err // the note stays until the outcome is known
	}
	t.o.Roster.See(stored.Record)
	d.Pending = false
	log.Warn().Uint64("token", uint64(next.HomeToken)).Str("home", next.Home).Msg("the profile was given to another launcher: the directory here stays as evidence, and is not opened any more")
	return lock.Depart(d)
}
