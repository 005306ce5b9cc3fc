package recovery_test

import (
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// TestATaskThatResumedNeverBeginsAnew: what it did before its checkpoint is in no journal that is looked at.
// It waits at that checkpoint again, or a person decides.
func TestATaskThatResumedNeverBeginsAnew(t *testing.T) {
	t.Parallel()
	at := func(e checkpoint.Entry) checkpoint.Entry { e.At = time.Now(); return e }
	resumes := at(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "ordered", Safe: true, ResumeFrom: "order"})
	page, step := at(checkpoint.Entry{Kind: checkpoint.KindURL, URL: cart}), at(checkpoint.Entry{Kind: checkpoint.KindStep, Name: "list"})
	again := lease.Record{State: lease.ResumePending, Decision: lease.DecisionResume, ResumeFrom: "order", LastSafeCheckpoint: "ordered"}
	person := lease.Record{State: lease.ManualReview, Decision: lease.DecisionManualReview, ResumeFrom: "order", LastSafeCheckpoint: "ordered"}
	for _, tt := range []struct {
		name    string
		goal    Goal
		journal []checkpoint.Entry
		change  func(*world, *Case)
		want    lease.Record
	}{
		{"lost", Recover, []checkpoint.Entry{resumes, page, step}, func(*world, *Case) {}, again},
		{"lost at a later checkpoint", Recover, []checkpoint.Entry{resumes, step, at(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true})}, func(*world, *Case) {},
			lease.Record{State: lease.ResumePending, Decision: lease.DecisionResume, ResumeFrom: "list", LastSafeCheckpoint: "listed"}},
		{"lost, and it sent something", Recover, []checkpoint.Entry{resumes, at(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: cart})}, func(*world, *Case) {}, person},
		{"lost, and not to be resumed any more", Recover, []checkpoint.Entry{resumes, page, step}, func(_ *world, c *Case) { c.File.Manifest.Resumable = false }, person},
		{"lost, by a launcher that noted no checkpoint", Recover, []checkpoint.Entry{page, step}, func(*world, *Case) {}, person},
		{"lost before another run", Recover, []checkpoint.Entry{page}, func(_ *world, c *Case) {
			c.Lost, c.File.Resume = []sessionfile.LostRun{{File: c.File, Journal: []checkpoint.Entry{resumes}}}, nil
		}, person},
		{"not begun", Release, []checkpoint.Entry{resumes}, func(_ *world, c *Case) { c.NeverServed, c.File.Reason = true, api.ReasonStartFailed }, again},
		{"released by its worker", Release, []checkpoint.Entry{resumes, page}, func(*world, *Case) {},
			lease.Record{State: lease.Available, ResumeFrom: "order", LastSafeCheckpoint: "ordered"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.resumable = true
			w.restate(func(r lease.Record) (lease.Record, error) {
				r.State, r.Runs, r.Token, r.ResumeFrom, r.LastSafeCheckpoint = lease.ResumePending, nil, token-1, "order", "ordered"
				return r.Grant(lease.Request{SessionID: session, WorkerID: "worker-7", TaskID: "task_101", LauncherID: launcher, TTL: 30 * time.Second}, time.Now())
			})
			w.must(w.lock.RaiseFloor(w.leases.record()))
			w.open(fakechrome.Script{})
			c := w.caseOf(tt.goal)
			c.File.Resume = &api.Resume{From: "order", Checkpoint: "ordered"}
			c.Journal = func() []checkpoint.Entry { return tt.journal }
			c.Latest = func(r lease.Record) lease.Record { return Latest(r, tt.journal) }
			tt.change(w, &c)
			if _, err := w.r.Run(c); err != nil {
				t.Fatal(err)
			}
			r := w.leases.record()
			if r.State != tt.want.State || r.Decision != tt.want.Decision || r.ResumeFrom != tt.want.ResumeFrom || r.LastSafeCheckpoint != tt.want.LastSafeCheckpoint {
				t.Errorf("%s, decided %q because of %q, to resume from %q at %q; want %+v", r.State, r.Decision, r.Reasons, r.ResumeFrom, r.LastSafeCheckpoint, tt.want)
			}
		})
	}
}
