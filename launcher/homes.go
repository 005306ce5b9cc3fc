package launcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/profiledir"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// homes brings the directories of this host in line with the homes of their profiles. A
// directory that was left for another home is marked and never opened again. A directory that
// was prepared for a profile that moved here is put into its place. A profile that another
// launcher asks for is given up.
type homes struct {
	*rooms
	ctx  context.Context
	work *sync.WaitGroup
}

// errLater says that nothing can be done yet. It is not a failure.
var errLater = errors.New("later")

// Settle starts what has to be done about the record's profile, in the background, and tells
// whether it has begun. It is called for each record that the store shows, before anything else
// is done with the profile.
func (h *homes) Settle(r lease.Record) bool {
	if !h.due(r) {
		return false
	}
	slot := h.slots.OccupyPassing(r.ProfileID)
	if slot == nil {
		return false // its slot is occupied: the next look comes here again
	}
	h.work.Go(func() {
		defer slot.Vacate()
		log := h.o.Log.With().Str("profile", r.ProfileID).Logger()
		if err := h.settle(slot, r.ProfileID, log); err != nil && !errors.Is(err, errLater) && h.ctx.Err() == nil {
			log.Error().Err(err).Msg("the profile's directory is not in line with its home: it is tried again")
		}
	})
	return true
}

// due tells whether there is anything to do. It reads the files beside the directory, and may
// be wrong while the profile's slot is occupied.
func (h *homes) due(r lease.Record) bool {
	_, arriving, err := h.o.Root.Arriving(r.ProfileID)
	if err != nil {
		return false // the files kept here cannot be trusted: see recovery.Recoverer.Heal
	}
	d, left, err := h.o.Root.Departed(r.ProfileID)
	switch {
	case err != nil || r.State == "":
		return false
	case r.Home == h.o.ID && (arriving || left && d.Pending && r.HomeToken < d.Token && h.presence.HomesHadTime()):
		return true
	case r.Home == h.o.ID:
		return r.MoveRequest != nil && !left
	}
	return arriving || h.leaves(r, d, left)
}

// leaves tells whether this launcher was the home, did not know of the move that the record
// shows, and has yet to mark its directory as left. A home that is contested, or that the
// record names only because a launcher remembers it, does not count.
func (h *homes) leaves(r lease.Record, d profiledir.Departure, left bool) bool {
	if r.Home == "" || r.OtherHome != "" || r.RememberedBy != "" || left && !d.Pending && d.Token >= r.HomeToken {
		return false
	}
	if _, err := h.o.Root.Path(r.ProfileID); err != nil {
		return false // there is no directory
	}
	return h.recoverer.WasHome(r.ProfileID) && h.recoverer.Remembers(r.ProfileID).Judge(r) == lease.Agrees
}

// settle does what has to be done about an occupied profile, according to the store's present
// record.
func (h *homes) settle(slot *slots.Slot, profile string, log zerolog.Logger) error {
	entry, err := h.o.Store.Get(h.ctx, profile)
	if err != nil {
		return errLater
	}
	r := entry.Record
	if !h.due(r) {
		return nil
	}
	slot.CloseWarm(slots.WarmWanted, "")
	lock, err := h.o.Root.Lock(profile)
	if errors.Is(err, profiledir.ErrLocked) && r.Home != h.o.ID { // an earlier browser has it open: that is closed first
		lock, err = h.o.Root.Adopt(profile)
	}
	if err != nil {
		return err
	}
	if r.Home != h.o.ID {
		err = h.leave(lock, r, log)
	} else {
		err = h.settleHere(lock, entry, log)
	}
	return errors.Join(err, lock.Unlock())
}

// leave marks the directory of a profile that lives elsewhere.
func (h *homes) leave(lock *profiledir.Lock, r lease.Record, log zerolog.Logger) error {
	if a, arriving, err := h.o.Root.Arriving(r.ProfileID); err != nil || arriving {
		if err == nil {
			_, err = h.barrier(r.ProfileID, a.MoveID)
		}
		if err == nil {
			err = lock.DropArrival()
		}
		if err != nil {
			return err
		}
	}
	d, left, err := h.o.Root.Departed(r.ProfileID)
	if err != nil || !h.leaves(r, d, left) {
		return err
	}
	h.o.Roster.See(r)
	if err := lock.Depart(profiledir.Departure{Home: r.Home, Token: r.HomeToken, At: time.Now().UTC()}); err != nil {
		return err
	}
	log.Warn().Uint64("token", uint64(r.HomeToken)).Str("home", r.Home).Msg("another launcher is the profile's home: the directory here is marked as left, stays as evidence, and is not opened any more")
	return nil
}

// settleHere finishes what was begun about a profile whose home is here.
func (h *homes) settleHere(lock *profiledir.Lock, entry lease.Entry, log zerolog.Logger) error {
	r := entry.Record
	if a, arriving, err := h.o.Root.Arriving(r.ProfileID); err != nil || arriving {
		switch {
		case err != nil:
			return err
		case r.Moved != nil && r.Moved.ID == a.MoveID:
			return h.arrive(lock, r, log)
		}
		if _, err := h.barrier(r.ProfileID, a.MoveID); err != nil {
			return err
		}
		return lock.DropArrival()
	}
	d, left, err := h.o.Root.Departed(r.ProfileID)
	switch {
	case err != nil:
		return err
	case left && d.Pending:
		now, err := h.barrier(r.ProfileID, "")
		if err != nil {
			return err
		}
		if now.Home == h.o.ID && now.HomeToken < d.Token {
			log.Info().Uint64("token", uint64(d.Token)).Msg("the profile was not given up after all: its home is still here")
			return lock.Stay()
		}
		return errLater
	case r.MoveRequest != nil:
		return h.giveUp(lock, entry, log)
	}
	return nil
}

// barrier writes the record as it is, but without the request of that id: after this, no
// earlier write can be stored any more. It returns the record as it is now.
func (h *homes) barrier(profile, request string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(h.ctx, moveTimeout)
	defer cancel()
	stored, err := lease.ChangeExisting(ctx, h.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		next, _ := e.Record.Withdraw(request)
		return next, nil
	})
	return stored.Record, err
}

// arrive puts the prepared directory into its place. The session cookies of an earlier
// directory of the profile here do not belong to it.
func (h *homes) arrive(lock *profiledir.Lock, r lease.Record, log zerolog.Logger) error {
	a, _, err := h.o.Root.Arriving(r.ProfileID)
	if err == nil && len(a.Extras) > 0 {
		err = h.jar.Import(r.ProfileID, a.Extras)
	} else if err == nil {
		err = h.jar.Drop(r.ProfileID)
	}
	if err != nil {
		return err
	}
	archived, err := lock.Arrive(r, time.Now())
	if err != nil {
		return err
	}
	log.Warn().Uint64("token", uint64(r.Token)).Str("old_home", r.Moved.From).Str("directory", r.Moved.Directory).Str("archived", archived).
		Msg("this launcher is the profile's home: its directory is in its place")
	h.slots.Wake()
	h.overtake(h.ctx, r.ProfileID, r.Token)
	return nil
}

// giveUp gives a profile to the launcher that asks for it. It marks the directory as left
// before it changes the record, so that the directory is never opened after that.
func (h *homes) giveUp(lock *profiledir.Lock, entry lease.Entry, log zerolog.Logger) error {
	r := entry.Record
	if h.presence.HomeReady() != nil {
		return errLater
	}
	decline := func(why error) error {
		log.Warn().Err(why).Str("to", r.MoveRequest.To).Msg("the profile is not given up")
		_, err := h.barrier(r.ProfileID, r.MoveRequest.Move.ID)
		return err
	}
	if r.MoveRequest.Move.Person == "" && h.hasPlace() { // it was asked while it was away, or had no place
		return decline(errors.New("its home is here, and has a place for it"))
	}
	if err := lock.MayOpen(); err != nil {
		return decline(err)
	}
	if err := h.settleLock(lock, r); err != nil {
		return decline(err)
	}
	if path, err := h.o.Root.Path(r.ProfileID); err == nil {
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
	ctx, cancel := context.WithTimeout(h.ctx, moveTimeout)
	defer cancel()
	stored, err := h.o.Store.Swap(ctx, entry, next)
	var moved *lease.MovedError
	switch {
	case errors.As(err, &moved): // it was not stored, and never will be
		return lock.Stay()
	case err != nil:
		return err // the note stays until the outcome is known
	}
	h.o.Roster.See(stored.Record)
	d.Pending = false
	log.Warn().Uint64("token", uint64(next.HomeToken)).Str("home", next.Home).Msg("the profile was given to another launcher: the directory here stays as evidence, and is not opened any more")
	return lock.Depart(d)
}
