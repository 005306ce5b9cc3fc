package cluster

import (
	"context"
	"fmt"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// awaitSilence waits until nobody else renews a presence under this launcher's id. If that
// presence has the epoch of this data directory, or a lower one, it belongs to this launcher's
// earlier process, which has ended. If it has a higher one, it belongs to a launcher on another
// data directory, or this directory is an old copy: the other launcher may still hold its
// leases, which this one would take for its own, so it is treated like any other launcher. It
// returns at once if the context ends.
func (p *Presence) awaitSilence(epoch uint64, waits func()) {
	var last lease.PresenceEntry
	var since boottime.Instant
	for said := false; p.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
		e, err := p.o.Store.Presence(ctx, p.o.LauncherID)
		cancel()
		now := p.o.Clock()
		switch {
		case err != nil: // opening the presence will meet the same error
			return
		case e.Revision == 0 || e.Presence.Closed || e.Presence.Epoch <= epoch:
			return
		case e.Revision != last.Revision || e.Presence.Nonce != last.Presence.Nonce:
			last, since = e, now
		case now.Sub(since) >= (lease.Timing{TTL: max(e.Presence.TTL(), p.o.Timing.TTL)}).ObserverWait():
			return
		}
		if !said {
			said = true
			p.set(nil, api.Refuse(api.CodeStoreUnavailable, "a launcher of another data directory has the id %s, or had it until a short while ago: nothing is granted until it is silent; give each launcher an id of its own (--launcher-id)", p.o.LauncherID))
			p.o.Log.Error().Uint64("epoch", e.Presence.Epoch).Uint64("own_epoch", epoch).
				Msg(fmt.Sprintf("a launcher of another data directory has the id %s, or this one is an old copy: this launcher waits until that one is silent", p.o.LauncherID))
			waits()
		}
		select {
		case <-time.After(reopenPause):
		case <-p.ctx.Done():
		}
	}
}
