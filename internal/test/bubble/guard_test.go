package bubble

import (
	"context"
	"errors"
	"path/filepath"

	"leasehold/evidence"
	"leasehold/launcher/adopt"
	"leasehold/launcher/profiledir"
)

// noStore stores nothing: bundles of a guard wait in the spool for the next launcher.
type noStore struct{ evidence.Store }

func (noStore) List(context.Context, string) ([]evidence.Manifest, error) { return nil, nil }
func (noStore) Manifest(context.Context, string) ([]byte, error)          { return nil, errors.New("no store") }
func (noStore) Put(context.Context, *evidence.Sealed) error               { return errors.New("no store") }

// guard starts the guard of a launcher, which is a process of its own: the real adopt.Guard.
func (w *world) guard(p *process) {
	h := p.host
	root, err := profiledir.Open(h.profiles, key)
	w.must(err)
	l := &life{w: w, host: h, as: "guard", root: root, gone: make(chan struct{})}
	log := l.logger()
	ctx, cancel := context.WithCancel(context.Background())
	w.late.Go(func() {
		select {
		case <-w.over:
		case <-l.gone:
			<-w.over
		}
		cancel()
	})
	if w.dice(4) { // killed together with its launcher
		w.late.Go(func() {
			select {
			case <-p.gone:
				l.die()
			case <-w.over:
			}
		})
	}
	w.late.Go(func() {
		_ = adopt.Guard(ctx, adopt.GuardOptions{
			ID: h.id, DataDir: h.data, Root: root, Key: key, Gone: p.gone, Timeout: orphanTime, Clock: h.clock, Processes: kernel{l}, Log: log,
			Archive: func() (*evidence.Archive, error) {
				spool, err := evidence.OpenSpool(filepath.Join(h.data, "spool"))
				return evidence.NewArchive(spool, noStore{}, log), err
			},
		})
	})
}
