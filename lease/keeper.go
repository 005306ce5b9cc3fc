package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/boottime"
)

// Keeper renews a launcher's presence, and with it every lease that hangs on it.
// Its context is alive, and the fences of its leases are open, only while the
// launcher may act: it stops the launcher, by the launcher's own clock, before
// anybody else may.
type Keeper struct {
	o KeeperOptions
	// stay is run's until done is closed, but for what is safe to ask of it
	// always: its epoch, deadline and fences.
	stay *Stay

	ctx  context.Context
	lose context.CancelCauseFunc
	stop context.CancelFunc
	wake chan struct{}
	done chan struct{}
}

// KeeperOptions are what a Keeper works with. All fields are needed.
type KeeperOptions struct {
	Store  Store
	Timing Timing
	Clock  boottime.Clock
	// Expiring is called when half of the time passed without a renewal.
	Expiring func(left time.Duration)
}

// Keep opens a presence of the launcher that own describes, above epoch, and
// renews it until Stop, which the caller calls once, whatever happens. The error
// is ErrUnavailable.
func Keep(ctx context.Context, own Presence, epoch uint64, o KeeperOptions) (*Keeper, error) {
	own.TTLSeconds = o.Timing.TTL.Seconds()
	prev, err := o.Store.Presence(ctx, own.LauncherID)
	if err != nil {
		return nil, err
	}
	for {
		next := prev.Presence.Open(own, epoch, time.Now())
		sent := o.Clock()
		opened, err := o.Store.SwapPresence(ctx, prev, next)
		var moved *PresenceMovedError
		switch {
		case err == nil:
			return keep(ctx, opened, sent, o), nil
		case !errors.As(err, &moved):
			return nil, err
		case moved.Current != nil:
			prev = *moved.Current
		default:
			if prev, err = o.Store.Presence(ctx, own.LauncherID); err != nil {
				return nil, err
			}
		}
	}
}

func keep(ctx context.Context, opened PresenceEntry, sent boottime.Instant, o KeeperOptions) *Keeper {
	k := &Keeper{o: o, stay: Begin(opened, sent, o.Timing, o.Clock), wake: make(chan struct{}, 1), done: make(chan struct{})}
	k.ctx, k.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	go k.run(running)
	return k
}

// Epoch names the stay; leases carry it.
func (k *Keeper) Epoch() uint64 { return k.stay.Epoch() }

// Deadline is when the launcher stops, unless a renewal moves it.
func (k *Keeper) Deadline() boottime.Instant { return k.stay.Deadline() }

// Fence returns an open fence for a lease that hangs on this presence.
func (k *Keeper) Fence(t Token) *Fence { return k.stay.Fence(t) }

// Context ends, with ErrExpired as its cause, when the presence is lost.
func (k *Keeper) Context() context.Context { return k.ctx }

// Hurry renews at once: after the store was lost or went back, the presence has
// to be stated again.
func (k *Keeper) Hurry() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Stop ends the renewals and waits. The presence stays as it is: leases of it that
// are still held are seen as silent in time.
func (k *Keeper) Stop() {
	k.stop()
	<-k.done
}

// Leave stops, shuts the fences, and says in the store that the stay is over, so
// that nobody waits for it.
func (k *Keeper) Leave(ctx context.Context) error {
	k.Stop()
	k.stay.End() // others may act as soon as it is said
	prev, next, due := k.stay.Closed(time.Now())
	if !due {
		return nil
	}
	_, err := k.o.Store.SwapPresence(ctx, prev, next)
	var moved *PresenceMovedError
	if errors.As(err, &moved) { // silence will tell
		return nil
	}
	return err
}

func (k *Keeper) run(ctx context.Context) {
	defer close(k.done)
	timer := time.NewTimer(k.o.Timing.Renewal())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.wake:
		}
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// Nothing that is sent from now on may count as a holder's.
			k.stay.End()
			k.lose(err)
			return
		}
		timer.Reset(k.o.Timing.Renewal())
	}
}

// renew writes until the write is applied, the stay is known to be over, or the
// deadline passes.
func (k *Keeper) renew(ctx context.Context) error {
	left := k.Deadline().Sub(k.o.Clock())
	if left <= 0 {
		return ErrExpired
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	half := time.AfterFunc(left/2, func() { k.o.Expiring(left / 2) })
	defer half.Stop()
	for {
		prev, next, err := k.stay.Next(time.Now())
		if err != nil {
			return err
		}
		sent := k.o.Clock()
		stored, err := k.o.Store.SwapPresence(ctx, prev, next)
		var moved *PresenceMovedError
		switch {
		case err == nil:
			return k.stay.Renewed(stored, sent)
		case errors.As(err, &moved) && moved.Current != nil:
			k.stay.Shown(*moved.Current)
		case errors.As(err, &moved):
			current, err := k.o.Store.Presence(ctx, next.LauncherID)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrExpired, err)
			}
			k.stay.Shown(current)
		default:
			// Swap tries until its context ends: the deadline is here, or the
			// store refuses, and time is needed to close everything.
			return fmt.Errorf("%w: %w", ErrExpired, err)
		}
	}
}
