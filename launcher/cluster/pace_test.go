package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"leasehold/lease"
)

// TestWhatRepeatsItselfIsStopped, whatever it is, and goes on slowly; a grant in between, or
// another profile, has nothing to do with it.
func TestWhatRepeatsItselfIsStopped(t *testing.T) {
	for name, tt := range map[string]struct {
		next func(lease.Record) lease.Record
		most int
	}{
		"it raises the token": {func(r lease.Record) lease.Record { r.Token++; return r }, ownRises},
		"it writes":           {func(r lease.Record) lease.Record { r.Reason = "again"; return r }, ownWrites},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.keep(shares)
				<-p.opened
				store := p.Writer(w.store)
				// written counts the writes of the profile until one is refused.
				written := func(profile string, next func(lease.Record) lease.Record) (n int) {
					for ; n <= ownWrites; n++ {
						_, err := lease.Change(w.Context(), store, profile, func(e lease.Entry) (lease.Record, error) { return next(e.Record), nil })
						switch {
						case errors.Is(err, lease.ErrUnavailable) && strings.Contains(err.Error(), "nobody was given it"):
							return n
						case err != nil:
							w.Fatal(err)
						}
					}
					return n
				}
				w.store.do(func() {
					for _, profile := range []string{"p", "q"} {
						w.store.store(lease.Record{ProfileID: profile, Home: "here", State: lease.ManualReview, Token: 3})
					}
				})
				for round := range 2 {
					if got := written("p", tt.next); got != tt.most {
						t.Fatalf("%d writes, want %d", got, tt.most)
					}
					_ = written("p", tt.next)
					if said := strings.Count(w.said.String(), "repeat themselves"); said != round+1 {
						t.Errorf("it is said %d times", said)
					}
					time.Sleep(time.Hour)
				}
				_ = written("p", tt.next)
				time.Sleep(time.Hour / time.Duration(tt.most))
				if got := written("p", tt.next); got != 1 {
					t.Errorf("%d writes after a while, want 1", got)
				}
				if got := written("q", tt.next); got != tt.most {
					t.Errorf("of another profile: %d writes, want %d", got, tt.most)
				}
				if got := written("p", func(r lease.Record) lease.Record { r.State, r.Token = lease.Held, r.Token+1; return r }); got <= tt.most {
					t.Errorf("%d grants, want any number", got)
				}
				if got := written("p", func(r lease.Record) lease.Record { r.State = lease.ManualReview; return tt.next(r) }); got != tt.most {
					t.Errorf("after a grant: %d writes, want %d", got, tt.most)
				}
			})
		})
	}
}
