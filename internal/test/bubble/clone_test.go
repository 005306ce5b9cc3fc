package bubble

import (
	"context"
	"errors"

	"leasehold/launcher/profiledir"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// clone is the stand-in for launcher.CloneProfile: both profiles are occupied and locked, and
// the record comes before the directory.
func (p *process) clone(ctx context.Context, from, to string) (err error) {
	source, err := p.store.Get(ctx, from)
	if err != nil {
		return err
	}
	if source.Record.State != lease.Available || source.Record.Home != p.host.id {
		return errRefused
	}
	if k := p.recoverer.Remembers(to); k.Home != "" && k.Home != p.host.id {
		return errRefused
	}
	var locks []*profiledir.Lock
	for _, profile := range []string{from, to} {
		var slot *slots.Slot
		if slot = p.table.OccupyCold(profile); slot == nil {
			return errRefused
		}
		defer slot.Vacate()
		lock, err := p.root.Lock(profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Unlock()) }()
		locks = append(locks, lock)
	}
	path, err := p.root.Path(from)
	if err != nil {
		return err
	}
	_, err = locks[1].Import(ctx, path, func(dir string) error {
		number, err := p.presence.MakeReady(ctx)
		if err == nil {
			err = profiledir.MarkClone(dir, from)
		}
		if err != nil {
			return err
		}
		_, err = p.store.Get(ctx, to)
		if !errors.Is(err, lease.ErrNotFound) {
			return errors.Join(err, errRefused)
		}
		floor, err := p.root.Floor(to)
		if err == nil {
			e := lease.Entry{Record: lease.Record{ProfileID: to}, Number: number}
			r := lease.Record{ProfileID: to, State: lease.Available, Home: p.host.id, Token: floor, Settings: lease.Settings{MaxActiveRuns: 1}}
			_, err = p.store.Swap(ctx, e, r)
		}
		return err
	})
	if err == nil {
		p.w.count("clones")
	}
	return err
}
