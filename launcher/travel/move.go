package travel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

const (
	// moveTimeout bounds each write of a move.
	moveTimeout = 10 * time.Second
	// giveUpTimeout is how long a home that is running may take to give a profile up.
	giveUpTimeout = 20 * time.Second
	// giveUpPoll is the time between two looks at whether it did.
	giveUpPoll = 100 * time.Millisecond
)

// move is everything needed to make this launcher the home of a profile.
type move struct {
	entry lease.Entry // as the caller saw it
	q     lease.MoveRequest
	// ask says that a running home is asked to give the profile up. Without it, only a home
	// that is gone loses the profile.
	ask  bool
	fill profiledir.Fill // makes the new directory
}

// newMove makes a request to move a profile to this launcher.
func (t *Service) newMove(directory string) lease.MoveRequest {
	return lease.MoveRequest{To: t.host.ID, Move: lease.Move{ID: id.New("mv"), Directory: directory}}
}

// moveHere makes this launcher the profile's home. The new directory is complete before the
// record is changed, and is put into its place afterwards. If anything fails before that,
// everything is as it was.
func (t *Service) moveHere(ctx context.Context, m move) (_ lease.Record, err error) {
	r := m.entry.Record
	if p := t.host.Elsewhere(r); p != nil {
		return r, p
	}
	if _, err := t.host.Granting(); err != nil {
		return r, err
	}
	if p := t.host.Presence.HomeReady(); p != nil {
		return r, p
	}
	if err := t.mayArrive(r.ProfileID, &m); err != nil {
		return r, err
	}
	// The rules of the record alone, before anything is copied.
	if _, err := r.Move(m.q, r.Token, time.Now()); err != nil {
		return r, t.notMoved(r, err)
	}
	if _, err := t.homeGone(r, m.ask); err != nil {
		return r, err
	}
	slot := t.host.Slots.OccupyCold(r.ProfileID)
	if slot == nil {
		return r, t.host.BusyHere(r, api.Manifest{ProfileID: r.ProfileID})
	}
	defer slot.Vacate()
	lock, err := t.host.LockUnused(r)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	arrival := profiledir.Arrival{MoveID: m.q.Move.ID, At: time.Now().UTC()}
	if err := lock.PrepareArrival(ctx, arrival, m.fill); err != nil {
		return r, host.NotOpened(r.ProfileID, err)
	}
	// From here on a caller who goes away does not leave it half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout+2*moveTimeout)
	defer cancel()
	moved, err := t.changeHome(ctx, m)
	if errors.Is(err, lease.ErrUnavailable) { // it may have been stored: Settle finds out
		return r, fmt.Errorf("it is not known yet whether profile %s came here: ask again: %w", r.ProfileID, err)
	}
	if err != nil {
		return r, errors.Join(t.notMoved(r, err), lock.DropArrival())
	}
	t.o.Roster.See(moved)
	log := t.host.Log.With().Str("profile", r.ProfileID).Logger()
	if err := t.arrive(lock, moved, log); err != nil {
		return moved, fmt.Errorf("this launcher is the home of profile %s, and its directory is not in its place yet: that is tried again: %w", r.ProfileID, err)
	}
	return moved, nil
}

// mayArrive refuses a profile if something on this host stands in the way of its arrival, and
// notes the highest token that is known here.
func (t *Service) mayArrive(profile string, m *move) error {
	floor, own, err := t.host.Root.Kept(profile)
	if err != nil {
		return api.Refuse(api.CodeConflict, "profile %s cannot come here: %v", profile, err).With("profile_id", profile)
	}
	if own.Home != "" && own.Home != t.host.ID {
		return api.Refuse(api.CodeConflict, "profile %s cannot come here: launcher %s has its directory in the same folder of profiles, %s", profile, own.Home, t.host.Root.Dir()).With("profile_id", profile)
	}
	d, _, err := t.host.Root.Departed(profile)
	if err != nil {
		return api.Refuse(api.CodeConflict, "profile %s cannot come here: %v", profile, err).With("profile_id", profile)
	}
	known := t.host.Recoverer.Remembers(profile)
	m.q.Floor = max(m.q.Floor, floor, d.Token, known.Token)
	return nil
}

// homeGone returns the presence of the record's home as it was when it went silent. It refuses
// a home that is not silent, unless ask says that the home is to be asked.
func (t *Service) homeGone(r lease.Record, ask bool) (*lease.PresenceEntry, error) {
	if r.Home == t.host.ID {
		return nil, nil // only the directory is missing here
	}
	seen, _, silent := t.host.Patrol.Silent(r.Home)
	switch {
	case silent:
		return &seen, nil
	case ask:
		return nil, nil
	}
	p := api.Refuse(api.CodeConflict, "launcher %s, the home of profile %s, is there, or was until a moment ago: it counts as gone when nothing was heard of it for %v; a home that is there is asked to give the profile up with ask_home", r.Home, r.ProfileID, t.o.Timing.ObserverWait().Round(time.Second)).
		With("profile_id", r.ProfileID).With("home_launcher", r.Home).With("reason", api.ReasonHomeThere)
	p.RetryAfter = int(t.o.Timing.ObserverWait().Seconds()) + 1
	return nil, p
}

// changeHome stores the move: directly if the home is gone, otherwise by asking the home.
func (t *Service) changeHome(ctx context.Context, m move) (lease.Record, error) {
	r := m.entry.Record
	gone, err := t.homeGone(r, m.ask)
	if err != nil {
		return r, err
	}
	if gone == nil && r.Home != t.host.ID {
		return t.askHome(ctx, m)
	}
	if gone != nil {
		if err := t.closePresence(ctx, r, *gone); err != nil {
			return r, err
		}
	}
	next, err := r.Move(m.q, r.Token, time.Now())
	if err != nil {
		return r, err
	}
	stored, err := t.host.Store.Swap(ctx, m.entry, next)
	return stored.Record, err
}

// closePresence ends the stay of a home that is gone, so that its presence cannot be renewed.
// If the home is just coming back, it has to begin a new stay, and grants nothing at first.
func (t *Service) closePresence(ctx context.Context, r lease.Record, gone lease.PresenceEntry) error {
	var err error
	if gone.Presence.Closed {
		var now lease.PresenceEntry
		if now, err = t.host.Store.Presence(ctx, r.Home); err == nil && now.Revision != gone.Revision {
			err = &lease.PresenceMovedError{Launcher: r.Home, Current: &now}
		}
	} else {
		_, err = t.host.Store.SwapPresence(ctx, gone, gone.Presence.Close(r.Home, t.host.ID, r.PresenceEpoch, time.Now()))
	}
	var moved *lease.PresenceMovedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &moved):
		return api.Refuse(api.CodeConflict, "launcher %s, the home of profile %s, has just come back", r.Home, r.ProfileID).
			With("profile_id", r.ProfileID).With("home_launcher", r.Home).With("reason", api.ReasonHomeThere)
	}
	return api.Refuse(api.CodeStoreUnavailable, "the presence of launcher %s cannot be closed, so it may come back: %v", r.Home, err)
}

// errKept says that the home did not give the profile up.
var errKept = errors.New("the home did not give it up")

// askHome asks the home to give the profile up, waits until it has or the time is over, and
// then withdraws the request.
func (t *Service) askHome(ctx context.Context, m move) (lease.Record, error) {
	r := m.entry.Record
	asked, err := r.Ask(m.q, r.Token)
	if err != nil {
		return r, err
	}
	if _, err := t.host.Store.Swap(ctx, m.entry, asked); err != nil {
		if errors.Is(err, lease.ErrUnavailable) {
			return t.withdraw(ctx, m)
		}
		return r, err
	}
	for end := time.Now().Add(giveUpTimeout); time.Now().Before(end); {
		select {
		case <-time.After(giveUpPoll):
		case <-ctx.Done(): // the request is in the record: the home may follow it at any moment
			return t.withdraw(ctx, m)
		}
		e, err := t.host.Store.Get(ctx, r.ProfileID)
		if err != nil {
			continue
		}
		switch now := e.Record; {
		case came(now, m.q):
			return now, nil
		case now.MoveRequest == nil || now.MoveRequest.Move.ID != m.q.Move.ID:
			return t.withdraw(ctx, m) // a read may return an old record; a write does not
		}
	}
	return t.withdraw(ctx, m)
}

// came tells whether the move has brought the profile here.
func came(r lease.Record, q lease.MoveRequest) bool {
	return r.Home == q.To && r.Moved != nil && r.Moved.ID == q.Move.ID
}

// withdraw takes the request back. The returned record tells whether the home had agreed
// before.
func (t *Service) withdraw(ctx context.Context, m move) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	stored, err := lease.ChangeExisting(ctx, t.host.Store, m.entry.Record.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if came(e.Record, m.q) {
			return e.Record, errCame
		}
		if next, ok := e.Record.Withdraw(m.q.Move.ID); ok {
			return next, nil
		}
		return e.Record.Clone(), nil // after this write, no earlier one can be stored any more
	})
	switch {
	case errors.Is(err, errCame):
		return stored.Record, nil
	case err != nil:
		return stored.Record, fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return stored.Record, errKept
}

var errCame = errors.New("it came here")

// notMoved turns the reason against a move into a refusal.
func (t *Service) notMoved(r lease.Record, err error) error {
	var kept *lease.MoveError
	var moved *lease.MovedError
	refuse := func(format string, args ...any) error {
		return api.Refuse(api.CodeConflict, format, args...).With("profile_id", r.ProfileID).With("state", r.State).With("home_launcher", r.Home)
	}
	switch {
	case errors.As(err, &kept):
		return refuse("%v", err)
	case errors.As(err, &moved):
		return refuse("profile %s has changed meanwhile: look again", r.ProfileID)
	case errors.Is(err, errKept):
		return refuse("launcher %s, the home of profile %s, is there and did not give it up within %v: it is in use, or that launcher does not answer", r.Home, r.ProfileID, giveUpTimeout)
	}
	return err
}
