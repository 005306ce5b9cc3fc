package travel

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold/internal/test/leasetest"
	"leasehold/launcher/host"
	"leasehold/lease"
)

// TestARequestIsWithdrawnWhenItsTimeIsOver: who asks for a profile and has no time left knows for certain
// that the home does not follow the request, before the directory that was made for it is removed. The home
// marks its own as left for good, and there would be none.
func TestARequestIsWithdrawnWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		home    func(lease.Record) (lease.Record, error) // what it does as the time ends
		away    bool
		came    bool
		unknown bool
	}{
		"the home did nothing":   {},
		"the home has agreed":    {home: func(r lease.Record) (lease.Record, error) { return r.GiveUp(time.Now()) }, came: true},
		"the store is away, too": {away: true, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := leasetest.New(t)
			entry := store.Put(lease.Record{ProfileID: "p", State: lease.Available, Token: 7, Home: "there", SnapshotID: "snap_1", SnapshotToken: 7, Settings: lease.Settings{Mobility: lease.MobilityFree}})
			ctx, end := context.WithCancel(t.Context())
			store.Write = func(_, _ lease.Record, stored func()) error {
				stored()
				end() // the store took nearly all of the time to take the request
				store.Do(func() {
					store.Write = nil
					r := store.Records["p"].Record
					if tt.home != nil {
						var err error
						if r, err = tt.home(r); err != nil {
							t.Error(err)
						}
						store.Revision++
						store.Records["p"] = lease.Entry{Record: r, Revision: store.Revision}
					}
					store.Away = tt.away
				})
				return nil
			}
			s := &Service{host: &host.Host{ID: "here", Store: store}}
			q := s.newMove(lease.DirectorySnapshot)
			q.Move.SnapshotID, q.Move.SnapshotToken = "snap_1", 7
			now, err := s.askHome(ctx, move{entry: entry, q: q, ask: true})
			switch {
			case tt.came:
				if err != nil || now.Home != "here" {
					t.Errorf("%+v, %v: it came here", now, err)
				}
			case tt.unknown:
				if !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("%v: the home may follow the request yet", err)
				}
			default:
				if !errors.Is(err, errKept) || store.Records["p"].Record.MoveRequest != nil {
					t.Errorf("%v, and the request is %+v", err, store.Records["p"].Record.MoveRequest)
				}
			}
		})
	}
}
