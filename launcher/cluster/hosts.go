package cluster

import (
	"context"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// reporting is a store that adds this launcher's report about its host to the launcher's own
// presence, whenever that is renewed.
type reporting struct {
	lease.Store
	launcherID string
	report     func() lease.HostReport
}

// SwapPresence stores the presence with the report.
func (s reporting) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	if next.LauncherID == s.launcherID && !next.Closed {
		next.Host = s.report()
	}
	return s.Store.SwapPresence(ctx, prev, next)
}

// sighting is a launcher as it was last seen.
type sighting struct {
	lease.Presence
	revision uint64
	// changed is when its presence was last seen to change, by this host's clock. If another
	// launcher ended its stay, that does not count: it was not heard of itself.
	changed time.Time
}

// learn keeps what the store shows of the launchers.
func (p *Patrol) learn(all []lease.PresenceEntry) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.others
	p.others = make(map[string]sighting, len(all))
	for _, e := range all {
		s := sighting{e.Presence, e.Revision, now}
		known, ok := before[e.Presence.LauncherID]
		if ok && (known.Nonce == e.Presence.Nonce || e.EndedFrom(lease.PresenceEntry{Presence: known.Presence, Revision: known.revision})) {
			s.changed = known.changed
		}
		p.others[e.Presence.LauncherID] = s
	}
}

// Hosts are the launchers that the store showed last, in no order.
func (p *Patrol) Hosts() []api.Host {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	hosts := []api.Host{}
	for _, s := range p.others {
		hosts = append(hosts, api.Host{Presence: s.Presence, Here: !s.Closed && now.Sub(s.changed) < s.TTL()})
	}
	return hosts
}

// Lives tells whether, as far as this launcher has seen, another launcher's stay with this
// epoch still lasts. known is false for a launcher that the store has not shown yet.
func (p *Patrol) Lives(launcherID string, epoch uint64) (lives, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.others[launcherID]
	if !ok || s.Epoch < epoch { // it may have opened its presence just now
		return false, false
	}
	return s.Epoch == epoch && !s.Closed && time.Since(s.changed) < s.TTL(), true
}
