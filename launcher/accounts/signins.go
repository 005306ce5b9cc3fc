package accounts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// signIns finds out, while nobody uses them, whether the accounts of the profiles of this host are
// signed in, whenever lease.Record.NextCheck says so. Who wants a profile meanwhile gets it at once.
type signIns struct {
	// known are the records of this host's profiles that can be asked about, with the ends of their
	// cooldowns by this host's clock.
	known func() []lease.Record
	// room tells whether one more browser keeps nobody from a place.
	room func() bool
	// check asks about a profile, and notes the answer in its record.
	check func(context.Context, string) error
	log   zerolog.Logger

	running sync.WaitGroup
	ended   chan ended
	// busy are the profiles that are being checked, and later those of which that failed, with when
	// it is tried again.
	busy  map[string]bool
	later map[string]time.Time
}

// ended is a check that is over.
type ended struct {
	profile string
	err     error
}

const (
	// checksAtOnce is how many profiles are checked at a time.
	checksAtOnce = 4
	// checkLook is the time between two looks at all profiles.
	checkLook = 15 * time.Second
	// checkRefused is when a check that was refused is tried again, and checkFailed one that failed
	// otherwise.
	checkRefused, checkFailed = time.Minute, time.Hour
)

// CheckUntil finds out whether accounts are signed in, until ctx ends.
func (a *Service) CheckUntil(ctx context.Context) {
	s := &signIns{known: a.asked, room: a.hasRoom, check: a.checkDue, log: a.host.Log, ended: make(chan ended), busy: map[string]bool{}, later: map[string]time.Time{}}
	s.run(ctx)
}

// run checks until ctx ends, and waits for the checks that are being made.
func (s *signIns) run(ctx context.Context) {
	defer s.running.Wait()
	every := time.NewTicker(checkLook)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.ended:
			s.over(e)
		case <-every.C:
		}
		s.look(ctx, time.Now())
	}
}

// look begins with the checks that are due, those first that have been due for the longest time.
func (s *signIns) look(ctx context.Context, now time.Time) {
	if len(s.busy) == checksAtOnce {
		return
	}
	var list []lease.Record
	for _, r := range s.known() {
		if at := r.NextCheck(); !at.IsZero() && !now.Before(at) && !s.busy[r.ProfileID] && !now.Before(s.later[r.ProfileID]) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b lease.Record) int { return a.NextCheck().Compare(b.NextCheck()) })
	for _, r := range list {
		if len(s.busy) == checksAtOnce || !s.room() {
			return
		}
		s.busy[r.ProfileID] = true
		s.running.Go(func() {
			e := ended{r.ProfileID, s.check(ctx, r.ProfileID)}
			select {
			case s.ended <- e:
			case <-ctx.Done():
			}
		})
	}
}

// over notes that a check is over.
func (s *signIns) over(e ended) {
	delete(s.busy, e.profile)
	delete(s.later, e.profile)
	var refused *api.Problem
	switch {
	case e.err == nil:
	case errors.Is(e.err, slots.ErrWanted), errors.As(e.err, &refused):
		s.later[e.profile] = time.Now().Add(checkRefused)
		s.log.Debug().Err(e.err).Str("profile", e.profile).Msg("whether the account is signed in is checked later")
	default:
		s.later[e.profile] = time.Now().Add(checkFailed)
		s.log.Warn().Err(e.err).Str("profile", e.profile).Msg("whether the account is signed in could not be checked")
	}
}

// asked are the profiles of this host of whose accounts somebody can be asked.
func (a *Service) asked() (all []lease.Record) {
	book := a.host.Sites.Book()
	rows, _, _ := a.host.Catalog.Rows()
	for _, row := range rows {
		r := row.Record
		r.AvailableAfter = row.CoolUntil
		if r.Home != a.host.ID || r.NextCheck().IsZero() || !a.host.Answers.CanBeAsked(r, book) || a.host.Queue.Wanted(r) {
			continue
		}
		if _, err := a.host.Root.Path(r.ProfileID); err == nil { // else it is archived or removed
			all = append(all, r)
		}
	}
	return all
}

// hasRoom tells whether there is a place that nobody waits for, without closing a warm browser.
func (a *Service) hasRoom() bool {
	use := a.host.Slots.Use()
	return use.Waiting == 0 && !host.IsFull(a.host.MaxBrowsers, use.Places, 0)
}

// checkDue makes the check of a profile that is due, and is vacant.
func (a *Service) checkDue(ctx context.Context, profileID string) error {
	r, slot, err := a.profiles.Occupy(ctx, profileID, a.host.Slots.OccupyVacant, func(r lease.Record) error {
		if at := r.NextCheck(); at.IsZero() || time.Now().Before(at) {
			return api.Refuse(api.CodeConflict, "profile %s was used or checked meanwhile", profileID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer slot.Vacate()
	wanted, done := slot.UntilWanted(ctx)
	defer done()
	_, _, err = a.signedIn(ctx, r, wanted.Done())
	return err
}
