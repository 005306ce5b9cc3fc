package travel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"leasehold/internal/test/leasetest"
	"leasehold/launcher/host"
	"leasehold/lease"
)

// TestARestoreWhoseAnswerIsLost is asked for again before anything is put back: the record may have it.
func TestARestoreWhoseAnswerIsLost(t *testing.T) {
	before := lease.Record{ProfileID: "p", State: lease.Available, Token: 7}
	person := lease.Review{Reviewer: "ann", TokenSeen: 7}
	for name, tt := range map[string]struct {
		lost   int  // so many writes get no answer
		stored bool // the first of them is stored all the same
		other  bool // somebody else has the profile after that
		want   error
	}{
		"and it is stored":                {lost: 1, stored: true},
		"and it is not stored":            {lost: 1},
		"and nothing is answered":         {lost: 1 << 20, want: errNotKnown},
		"and somebody else was faster":    {lost: 1, other: true, want: &lease.FencedError{Profile: "p", Token: 7, Current: 9}},
		"which is an answer, not a loss.": {other: true, want: &lease.FencedError{Profile: "p", Token: 7, Current: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := leasetest.New(t)
				store.Put(before)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				n := 0
				taken := before
				taken.Token, taken.State = 9, lease.Held
				if tt.other && tt.lost == 0 {
					store.Put(taken)
				}
				store.Write = func(_, _ lease.Record, put func()) error {
					if n++; n > tt.lost {
						put()
						return nil
					}
					if leave(); tt.stored {
						put()
					}
					if tt.other {
						store.Put(taken)
					}
					return lease.ErrUnavailable
				}
				s := &Service{host: &host.Host{Store: store}}
				entry, err := s.recordRestore(ctx, "p", "snap_1", person)
				var fenced, want *lease.FencedError
				if errors.As(tt.want, &want) {
					if !errors.As(err, &fenced) || *fenced != *want {
						t.Errorf("%v, want %v", err, want)
					}
					return
				}
				if !errors.Is(err, tt.want) {
					t.Fatalf("%v, want %v", err, tt.want)
				}
				if tt.want == nil && (entry.Record.Token != 8 || entry.Record.Reason != lease.ReasonSnapshotRestored || len(store.Named(lease.EventSnapshotRestored)) != 1) {
					t.Errorf("%+v, told %d times", entry.Record, len(store.Named(lease.EventSnapshotRestored)))
				}
			})
		})
	}
}

// unanswering answers no question.
type unanswering struct{ lease.Store }

func (unanswering) Get(context.Context, string) (lease.Entry, error) {
	return lease.Entry{}, lease.ErrUnavailable
}

// TestARestoreThatWasNeverAsked of the store is certainly not in the record.
func TestARestoreThatWasNeverAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{host: &host.Host{Store: unanswering{leasetest.New(t)}}}
		if _, err := s.recordRestore(t.Context(), "p", "snap_1", lease.Review{Reviewer: "ann"}); !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, errNotKnown) {
			t.Errorf("%v", err)
		}
	})
}
