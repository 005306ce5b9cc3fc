package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/boottime"
)

// Keeper renews the presence of a launcher, and with it every lease that depends on it. The
// Keeper's context is alive, and the fences of its leases are open, only while the launcher may
// act: both end, by the launcher's own clock, before any other launcher may act.
type Keeper struct {
	o KeeperOptions
	// stay belongs to run until done is closed. Only its epoch, deadline and fences may be read
	// at any time.
	stay *Stay

	ctx  context.Context
	lose context.CancelCauseFunc
	stop context.CancelFunc
	wake chan struct{}
	// moved has an element when a renewal has moved the deadline.
	moved chan struct{}
	done  chan struct{}
}

// KeeperOptions are what a Keeper works with. No field may be left out.
type KeeperOptions struct {
	Store  Store
	Timing Timing
	Clock  boottime.Clock
	// Expiring is called when a renewal has taken half of the time that remained
	// before the deadline; left is the other half.
	Expiring func(left time.Duration)
}

// Keep opens a presence of the launcher that own describes, with a higher epoch than epoch, and
// renews it until Stop. It replaces prev, which the caller read and knows to be over: if another
// write came first, the error is a *PresenceMovedError. Any other error is ErrUnavailable. Stop
// or Leave has to be called once, even after the presence was lost.
func Keep(ctx context.Context, own Presence, prev PresenceEntry, epoch uint64, o KeeperOptions) (*Keeper, error) {
	own.TTLSeconds = o.Timing.TTL.Seconds()
	next := prev.Presence.Open(own, epoch, time.Now())
	sent := o.Clock()
	opened, err := o.Store.SwapPresence(ctx, prev, next)
	if err != nil {
		return nil, err
	}
	return keep(ctx, opened, sent, o), nil
}

func keep(ctx context.Context, opened PresenceEntry, sent boottime.Instant, o KeeperOptions) *Keeper {
	k := &Keeper{o: o, stay: Begin(opened, sent, o.Timing, o.Clock), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), done: make(chan struct{})}
	k.ctx, k.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	go k.run(running)
	return k
}

// Epoch is the number of the stay. Its leases name it.
func (k *Keeper) Epoch() uint64 { return k.stay.Epoch() }

// OpenedAt is when the stay was opened, which distinguishes it from another one that somebody
// opened under the same epoch.
func (k *Keeper) OpenedAt() time.Time { return k.stay.own.OpenedAt }

// Deadline is when the launcher has to have stopped, unless a renewal moves it.
func (k *Keeper) Deadline() boottime.Instant { return k.stay.Deadline() }

// Moved receives after each renewal. One reader may wait for it.
func (k *Keeper) Moved() <-chan struct{} { return k.moved }

// Fence returns a fence, not shut yet, for a lease that depends on this presence.
func (k *Keeper) Fence(t Token) *Fence { return k.stay.Fence(t) }

// Context ends when the presence is lost. Its cause is then an ErrExpired.
func (k *Keeper) Context() context.Context { return k.ctx }

// RenewNow renews at once. If the store was lost or went back, that writes the presence again.
func (k *Keeper) RenewNow() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Stop ends the renewals and waits until they have ended. It leaves the presence in the store
// as it is: leases of it that are still held will be suspected after a while.
func (k *Keeper) Stop() {
	k.stop()
	<-k.done
}

// Leave stops the renewals, shuts the fences, and closes the presence in the store, so that
// others need not wait before they act. The error says that it could not be closed.
func (k *Keeper) Leave(ctx context.Context) error {
	k.Stop()
	k.stay.End() // others may act as soon as the presence is closed
	prev, next, due := k.stay.Closed(time.Now())
	if !due {
		return nil
	}
	_, err := k.o.Store.SwapPresence(ctx, prev, next)
	if _, ok := errors.AsType[*PresenceMovedError](err); ok { // others will see that it is not renewed
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
			// Nothing may be written as a holder from now on.
			k.stay.End()
			k.lose(err)
			return
		}
		select {
		case k.moved <- struct{}{}:
		default:
		}
		timer.Reset(k.o.Timing.Renewal())
	}
}

// renew writes until a renewal is stored, the stay is known to be over, or the deadline
// passes.
func (k *Keeper) renew(ctx context.Context) error {
	remaining := k.Deadline().Sub(k.o.Clock())
	if remaining <= 0 {
		return ErrExpired
	}
	ctx, cancel := context.WithTimeout(ctx, remaining)
	defer cancel()
	half := time.AfterFunc(remaining/2, func() { k.o.Expiring(remaining / 2) })
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
			// SwapPresence tries until its context ends. So either the deadline has come, or
			// the store refuses the write. In that case the remaining time is needed to close
			// everything.
			return fmt.Errorf("%w: %w", ErrExpired, err)
		}
	}
}
