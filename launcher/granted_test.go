package launcher

import (
	"context"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestACallerThatHangsUpAtTheSwapLeavesASession, which ends by its own rules: a run that nobody serves would keep the
// others from its place, and the profile from an end in order.
func TestACallerThatHangsUpAtTheSwapLeavesASession(t *testing.T) {
	l, store := startLauncher(t)
	must, runs := mustIn(t), 2
	_, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &runs})
	must(err)
	for _, task := range []string{"opens", "joins"} {
		ctx, hangUp := context.WithCancel(t.Context())
		store.set(hooks{swap: func(next lease.Record) error {
			if next.State == lease.Held {
				hangUp()
			}
			return nil
		}})
		s, err := l.Acquire(ctx, api.Manifest{ProfileID: "p", TaskID: task, RequiresExclusiveProfileLock: new(false)})
		if err != nil || ctx.Err() == nil {
			t.Fatalf("%s: %v, and the caller hung up: %v", task, err, ctx.Err())
		}
		if now, err := l.Session(s.SessionID); err != nil || now.State == api.SessionEnded {
			t.Errorf("%s: %+v, %v", task, now, err)
		}
	}
}

// TestAGrantGoesByTheRecordAtTheSwap: whoever changes a free profile's record between the read and the
// swap of a grant does not keep the profile from its task, and what they wrote stays. If it is not
// free any more the task is refused for that.
func TestAGrantGoesByTheRecordAtTheSwap(t *testing.T) {
	free := func(r lease.Record) (lease.Record, error) {
		r.Labels = map[string]string{"tier": "gold"}
		return r, nil
	}
	inReview := func(r lease.Record) (lease.Record, error) {
		r.State, r.Reason = lease.ManualReview, "worker_died"
		return r, nil
	}
	for name, tt := range map[string]struct {
		change func(lease.Record) (lease.Record, error)
		code   string // of the refusal; empty: it is granted
	}{
		"settings": {free, ""},
		"a review": {inReview, api.CodeInReview},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := startImporting(t)
			_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
			mustIn(t)(err)
			moved := false
			r.leases.set(hooks{swap: func(next lease.Record) error {
				if moved || next.State != lease.Held {
					return nil
				}
				moved = true
				_, err := lease.Change(t.Context(), r.leases.Store, "p", func(e lease.Entry) (lease.Record, error) {
					return tt.change(e.Record)
				})
				return err
			}})
			_, err = r.Acquire(t.Context(), api.Manifest{ProfileID: "p"})
			if granted := err == nil; granted != (tt.code == "") || !granted && codeOf(err) != tt.code || !moved {
				t.Fatalf("the record was changed: %v; the task got %v, want the code %q", moved, err, tt.code)
			}
			now, err := r.leases.Get(t.Context(), "p")
			mustIn(t)(err)
			if tt.code == "" && (now.Record.State != lease.Held || now.Record.Labels["tier"] != "gold") {
				t.Errorf("the record is %+v: want it held, with the label that was written meanwhile", now.Record)
			}
		})
	}
}
