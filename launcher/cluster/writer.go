package cluster

import (
	"context"
	"fmt"

	"leasehold/evidence"
	"leasehold/internal/objects"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// Writer returns the store through which everything in this launcher but the presence itself
// writes. It stores a record only if this launcher may act on it (see MayAct), or to end one of its own stays
// in order, and a presence only while it has one itself. Nor does it store more of one profile than
// its pace, so that nothing that answers to its own writes goes on without an end. Otherwise the
// error is an *api.Problem and a lease.ErrUnavailable, as if the store did not answer.
func (p *Presence) Writer(s lease.Store) lease.Store { return writer{s, p} }

type writer struct {
	lease.Store
	p *Presence
}

func (w writer) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	if err := w.p.MayAct(prev.Record); err != nil && !w.p.ends(prev.Record) {
		return lease.Entry{}, fmt.Errorf("lease of %s: %w: %w", next.ProfileID, lease.ErrUnavailable, err)
	}
	if ok, stops := w.p.pace.allows(prev.Record, next, w.p.o.Clock()); !ok {
		err := api.Refuse(api.CodeStoreUnavailable, "this launcher has changed the record of profile %s %d times within an hour, or raised its token %d times, although nobody was given it: the next change waits some minutes; the log says what it repeats",
			next.ProfileID, ownWrites, ownRises)
		if stops {
			w.p.o.Log.Error().Err(err).Str("profile", next.ProfileID).Uint64("token", uint64(prev.Record.Token)).Str("state", string(next.State)).Msg("writes of a profile are stopped: they repeat themselves")
		}
		return lease.Entry{}, fmt.Errorf("lease of %s: %w: %w", next.ProfileID, lease.ErrUnavailable, err)
	}
	return w.Store.Swap(ctx, prev, next)
}

func (w writer) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	if err := w.p.MayAct(lease.Record{}); err != nil {
		return lease.PresenceEntry{}, fmt.Errorf("presence of launcher %s: %w: %w", next.LauncherID, lease.ErrUnavailable, err)
	}
	return w.Store.SwapPresence(ctx, prev, next)
}

// Bundles returns the store of evidence through which this launcher stores and removes bundles: only
// while it may act at all. Otherwise the error is an *api.Problem, and what is in the spool waits
// there.
func (p *Presence) Bundles(s evidence.Store) evidence.Store { return bundles{s, p} }

type bundles struct {
	evidence.Store
	p *Presence
}

func (b bundles) Put(ctx context.Context, s *evidence.Sealed) error {
	if err := b.p.MayAct(lease.Record{}); err != nil {
		return fmt.Errorf("evidence %s: %w", s.Manifest.EvidenceID, err)
	}
	return b.Store.Put(ctx, s)
}

func (b bundles) Delete(ctx context.Context, m evidence.Manifest) error {
	if err := b.p.MayAct(lease.Record{}); err != nil {
		return fmt.Errorf("evidence %s: removing it: %w", m.EvidenceID, err)
	}
	return b.Store.Delete(ctx, m)
}

// Objects returns the profile store's objects as Bundles returns those of evidence.
func (p *Presence) Objects(o objects.Objects) objects.Objects { return profiles{o, p} }

type profiles struct {
	objects.Objects
	p *Presence
}

func (o profiles) Put(ctx context.Context, key string, content []byte, version string) error {
	if err := o.p.MayAct(lease.Record{}); err != nil {
		return err
	}
	return o.Objects.Put(ctx, key, content, version)
}

func (o profiles) Delete(ctx context.Context, key string) error {
	if err := o.p.MayAct(lease.Record{}); err != nil {
		return err
	}
	return o.Objects.Delete(ctx, key)
}

// MayAct tells whether this launcher may begin anything with the profile of the record: take a
// snapshot of it, recover it, change its record. It needs a store that is the only one, and an
// open presence, which proves that no other launcher has the same id; and the record's last lease
// may not be of a later stay under that id. The error is an *api.Problem.
func (p *Presence) MayAct(r lease.Record) error {
	if err := p.Doubt(); err != nil {
		return err
	}
	k, err := p.Current()
	switch {
	case err != nil:
		return err
	case p.o.Clock() >= k.Deadline():
		return api.Refuse(api.CodeStoreUnavailable, "the presence of this launcher was not renewed in time: nothing is changed until another one is open")
	case r.LauncherID == p.o.LauncherID && r.PresenceEpoch > k.Epoch():
		return api.Refuse(api.CodeStoreUnavailable, "profile %s was granted in epoch %d of launcher %s, and this one is in epoch %d: another launcher has the same id; give each one its own (--launcher-id)",
			r.ProfileID, r.PresenceEpoch, r.LauncherID, k.Epoch())
	}
	return nil
}

// Doubt returns why the store may not be the only one.
func (p *Presence) Doubt() error {
	if p.o.Doubt == nil {
		return nil
	}
	return p.o.Doubt()
}

// ends tells whether the record is of a session of this launcher's own that has yet to end. Its
// end is written even if the presence is lost.
func (p *Presence) ends(r lease.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, own := p.stays[r.PresenceEpoch]
	return own && r.LauncherID == p.o.LauncherID && r.Unfinished()
}
