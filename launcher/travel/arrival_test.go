package travel

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/test/leasetest"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/host"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// lagging is a store whose replica shows an old record, until somebody writes.
type lagging struct {
	*leasetest.Store
	old lease.Entry
}

func (s lagging) Get(context.Context, string) (lease.Entry, error) { return s.old, nil }

// A directory that was prepared for a move is removed only once a write has shown that the move was not
// stored: what a read shows may be from before the home gave the profile up, and then there is no other
// directory.
func TestAPreparedDirectoryIsNotLostToAnOldRecord(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{true, false} {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		root, err := profiledir.Open(filepath.Join(t.TempDir(), "profiles"), testkey.Key)
		must(err)
		store := leasetest.New(t)
		work := &sync.WaitGroup{}
		s := &Service{ctx: t.Context(), work: work, host: &host.Host{
			ID: "here", Root: root, Jar: sessionfile.NewJar(t.TempDir(), testkey.Key),
			Slots: slots.NewTable(t.Context(), work, slots.Options{Root: root, Metrics: prometheus.NewRegistry()}),
		}}
		q := s.newMove(lease.DirectorySnapshot)
		q.Move.SnapshotID, q.Move.SnapshotToken = "snap_1", 7
		r := lease.Record{ProfileID: "p", State: lease.Available, Token: 7, Home: "there", SnapshotID: "snap_1", SnapshotToken: 7, Settings: lease.Settings{Mobility: lease.MobilityFree}}
		r, err = r.Ask(q, 7)
		must(err)
		old := store.Put(r)
		s.host.Store = lagging{store, old}
		if given {
			r, err = r.GiveUp(time.Now())
			must(err)
			store.Put(r)
		}
		lock, err := root.Lock("p")
		must(err)
		must(lock.PrepareArrival(t.Context(), profiledir.Arrival{MoveID: q.Move.ID, At: time.Now()}, profiledir.Empty))
		must(lock.Unlock())
		if !s.Settle(old.Record) {
			t.Fatal("nothing is done about a directory that was prepared")
		}
		work.Wait()
		_, arriving, err := root.Arriving("p")
		must(err)
		_, missing := root.Path("p")
		if came := missing == nil; came != given || arriving || missing != nil && !errors.Is(missing, profiledir.ErrNoProfile) {
			t.Errorf("given up %v: its directory is in its place: %v, on its way: %v, %v", given, came, arriving, missing)
		}
		if now := store.Records["p"].Record; now.MoveRequest != nil || given != (now.Home == "here") {
			t.Errorf("given up %v: the record is %+v", given, now)
		}
		if left, err := filepath.Glob(filepath.Join(root.Dir(), ".leasehold", ".arrival-*")); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}
