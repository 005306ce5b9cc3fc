package cluster

import (
	"context"
	"fmt"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// Two launchers may have one id: a data directory was copied, a unit file was, or a host was
// cloned. Both would take each other's leases for their own. So before a launcher opens a
// presence, it makes sure that whoever last used the id is gone, and without an open presence it
// writes nothing (see Writer).

// claim is what the store shows of a launcher id before a presence is opened under it.
type claim struct {
	presence lease.PresenceEntry
	// leases is the highest epoch under the id that a record names. A store that lost the
	// presence may still have leases of its stay.
	leases uint64
}

// opening is a store that notes the presence which this launcher opens, before it is sent.
type opening struct {
	lease.Store
	p *Presence
}

// SwapPresence stores the presence.
func (s opening) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	if !next.Closed {
		s.p.mu.Lock()
		s.p.sent = next
		s.p.mu.Unlock()
	}
	return s.Store.SwapPresence(ctx, prev, next)
}

// claim reads what the store shows of this launcher's id.
func (p *Presence) claim() (c claim, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	if c.presence, err = p.o.Store.Presence(ctx, p.o.LauncherID); err != nil || !p.o.SharedStore {
		return c, err
	}
	all, err := p.o.Store.List(ctx)
	for _, e := range all {
		if e.Record.LauncherID == p.o.LauncherID {
			c.leases = max(c.leases, e.Record.PresenceEpoch)
		}
	}
	return c, err
}

// free tells whether the last stay under the id is over, or was this launcher's own. epoch is the
// highest epoch that is kept in the data directory, which proves that only where no other host
// uses the store.
func (p *Presence) free(c claim, epoch uint64) bool {
	last, over := c.presence.Presence.Epoch, c.presence.Revision == 0 || c.presence.Presence.Closed
	if c.leases > last {
		last, over = c.leases, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	opened, own := p.stays[last]
	if !opened.IsZero() && c.presence.Presence.Epoch == last && !opened.Equal(c.presence.Presence.OpenedAt) {
		own = false // somebody opened the same epoch in a store that had forgotten it
	}
	if now := c.presence.Presence; now.Epoch == last && p.sent.Epoch == last && p.sent.OpenedAt.Equal(now.OpenedAt) {
		own = true // the write that opened it had no answer
	}
	return over || own || !p.o.SharedStore && last <= epoch
}

// awaitSilence waits until nobody else can act under this launcher's id, and returns what the
// store shows of it then. A stay that is not known to be this launcher's own is another's, who
// may still hold its leases: it has to be silent for as long as any other launcher before
// anything is done about it. epoch is the highest epoch that is kept in the data directory;
// waits is called when the wait begins. The error is that of the store, or the context's.
func (p *Presence) awaitSilence(epoch uint64, waits func()) (claim, error) {
	var last lease.PresenceEntry
	var since boottime.Instant
	for said := false; ; {
		c, err := p.claim()
		if err != nil || p.free(c, epoch) {
			return c, err
		}
		now, e := p.o.Clock(), c.presence
		switch {
		case !said, e.Revision != last.Revision, e.Presence.Nonce != last.Presence.Nonce:
			last, since = e, now
		case now.Sub(since) >= (lease.Timing{TTL: max(e.Presence.TTL(), p.o.Timing.TTL)}).ObserverWait():
			return c, nil
		}
		if !said {
			said = true
			p.set(nil, api.Refuse(api.CodeStoreUnavailable, "a launcher of another data directory has the id %s, or had it until a short while ago: nothing is granted or recovered here until it is silent; give each launcher an id of its own (--launcher-id)", p.o.LauncherID))
			p.o.Log.Error().Uint64("epoch", max(c.presence.Presence.Epoch, c.leases)).Uint64("own_epoch", epoch).
				Msg(fmt.Sprintf("a launcher of another data directory has the id %s, or this one is a copy: this launcher waits until that one is silent, and does nothing meanwhile", p.o.LauncherID))
			waits()
		}
		select {
		case <-time.After(reopenPause):
		case <-p.ctx.Done():
			return claim{}, p.ctx.Err()
		}
	}
}
