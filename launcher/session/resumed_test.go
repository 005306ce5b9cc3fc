package session

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestATaskThatResumedWaitsAtItsCheckpointAgain, with all that the checkpoint says, unless its worker releases
// the profile.
func TestATaskThatResumedWaitsAtItsCheckpointAgain(t *testing.T) {
	t.Parallel()
	resumable := func(m *api.Manifest) { m.Resumable = true }
	silent := func(_ *room, s *Session) {
		s.life.update(func(f *facts) { f.startedAt, f.seenAt = f.startedAt.Add(-time.Hour), f.seenAt.Add(-time.Hour) })
	}
	release := func(how api.Release) func(*room, *Session) {
		return func(r *room, s *Session) {
			if _, err := s.Release(r.t.Context(), how); err != nil {
				r.t.Error(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		manifest api.Manifest
		end      func(*room, *Session)
		how      string
		state    lease.State
	}{
		"lost":                      {task("one", resumable), silent, "lost (heartbeat_timeout), recovered: resume", lease.ResumePending},
		"nobody connects":           {task("one", resumable, oneShot), silent, "lost (worker_failed), recovered: resume", lease.ResumePending},
		"its worker failed":         {task("one", resumable), release(api.Release{Outcome: "failed", Recover: api.RecoverTouched}), "lost (worker_failed), recovered: resume", lease.ResumePending},
		"it is resumable no longer": {task("one"), silent, "lost (heartbeat_timeout), recovered: manual_review", lease.ManualReview},
		"released while a person has it": {task("one", resumable), func(r *room, s *Session) {
			r.connect(s)
			if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
				r.t.Fatal(err)
			}
			release(api.Release{Outcome: "succeeded", Reason: "done"})(r, s)
		}, "released: done", lease.Available},
		"released": {task("one", resumable), release(api.Release{Outcome: "succeeded", Reason: "done"}), "released: done", lease.Available},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			r.keptForTask()
			s := r.begin(tt.manifest)
			tt.end(r, s)
			if f := r.over(s); f.Ended != tt.how {
				t.Errorf("%s, want %s", f.Ended, tt.how)
			}
			if got := r.record(); got.State != tt.state || got.ResumeFrom != "order" || got.LastSafeCheckpoint != "ordered" {
				t.Errorf("%s, to resume from %q at %q, want %s", got.State, got.ResumeFrom, got.LastSafeCheckpoint, tt.state)
			}
			r.hasCheckpoint(s.ID())
		})
	}
	t.Run("its browser does not start", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{})
		r.keptForTask()
		for range 2 {
			slot := r.occupy()
			s, err := r.grant(task("one", resumable), slot, func(lease.Record) Start {
				return hooked{Start: Cold{}, before: func(s *Session) { s.Fence().Shut(lease.ErrExpired) }}
			})
			if !errors.Is(err, lease.ErrExpired) {
				t.Fatalf("granted: %v, want %v", err, lease.ErrExpired)
			}
			_ = s.UndoGrant(err)
			slot.Vacate()
			r.over(s)
			if got := r.record(); got.State != lease.ResumePending || got.ResumeFrom != "order" || got.LastSafeCheckpoint != "ordered" || got.TaskID != "one" {
				t.Errorf("%+v", got)
			}
			r.hasCheckpoint(s.ID())
		}
	})
	t.Run("the store does not answer", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{})
		r.keptForTask()
		var sessionID string
		r.memory.Do(func() {
			r.memory.Write = func(_, next lease.Record, store func()) error {
				sessionID = next.SessionID
				store()
				return lease.ErrUnavailable
			}
		})
		slot := r.occupy()
		if _, err := r.grant(task("one", resumable), slot, cold); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		r.hasCheckpoint(sessionID)
		entries, err := checkpoint.Read(r.files.Journal(sessionID))
		if f, fileErr := r.files.Read(sessionID); err != nil || fileErr != nil || f.BeganAt() != "ordered" || f.JournalSum != checkpoint.Sum(entries) {
			t.Errorf("for whoever recovers it: %+v, %v, %v", f, err, fileErr)
		}
		if err := slot.Lock().Unlock(); err != nil {
			t.Error(err)
		}
		slot.Vacate()
	})
}

// hasCheckpoint checks that the journal of a session on disk begins with the checkpoint at which its task
// resumed.
func (r *room) hasCheckpoint(sessionID string) {
	r.t.Helper()
	entries, err := checkpoint.Read(r.files.Journal(sessionID))
	if err != nil || len(entries) == 0 {
		r.t.Fatalf("%+v, %v", entries, err)
	}
	want, got := resumed, entries[0]
	want.Seq, want.At, want.Token, want.ResumeFrom = 1, got.At, got.Token, "order"
	if got.At.IsZero() || got.Token == 0 || !reflect.DeepEqual(got, want) {
		r.t.Errorf("the journal has %+v, want %+v", got, want)
	}
}
