package session

import (
	"errors"
	"testing"
	"time"

	"leasehold/launcher/api"
)

func TestRule(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	oneShot := policyOf(api.Manifest{OneShot: true}, 30*time.Second, 5*time.Second)
	twoStep := policyOf(api.Manifest{}, 30*time.Second, 5*time.Second)
	explicit := policyOf(api.Manifest{Heartbeat: api.HeartbeatExplicit}, 30*time.Second, 5*time.Second)
	lenient := policyOf(api.Manifest{OneShot: true, OnDrop: api.OnDropRelease}, 30*time.Second, 5*time.Second)
	timed := policyOf(api.Manifest{LockTimeoutSeconds: 60}, 30*time.Second, 5*time.Second)
	person := policyOf(api.Manifest{LockTimeoutSeconds: 60, ByHand: &api.ByHand{Holder: "ann"}}, 30*time.Second, 5*time.Second)
	open := facts{startedAt: start, seenAt: start, connections: 1, connected: true}
	closed := facts{startedAt: start, seenAt: at(10), connected: true, endedAt: at(10)}
	dropped := closed
	dropped.dropped = true
	cut := dropped
	cut.left = true
	with := func(f facts, change func(*facts)) facts { change(&f); return f }
	for _, tt := range []struct {
		name   string
		policy policy
		facts  facts
		now    int
		want   verdict
		reason string
		next   int // seconds; -1: never
	}{
		{"a connection is life enough", oneShot, open, 3600, stay, "", -1},
		{"one-shot closes in order", oneShot, closed, 10, endInOrder, api.ReasonClosed, -1},
		{"two-step outlives its connection", twoStep, closed, 11, stay, "", 40},
		{"but not for ever", twoStep, closed, 40, lose, api.ReasonHeartbeat, -1},
		{"a drop is captured at once", oneShot, dropped, 10, interrupted, api.ReasonConnectionLost, 15},
		{"and lost after the grace", oneShot, dropped, 15, lose, api.ReasonConnectionLost, -1},
		{"a drop of a two-step session too", twoStep, dropped, 15, lose, api.ReasonConnectionLost, -1},
		{"a client that never closes properly", lenient, dropped, 10, endInOrder, api.ReasonDropReleases, -1},
		{"a launcher's end drops everybody", oneShot, cut, 14, interrupted, api.ReasonLauncherRestart, 15},
		{"and is named when nobody comes back", twoStep, cut, 15, lose, api.ReasonLauncherRestart, -1},
		{"it is not the worker's goodbye", lenient, cut, 10, interrupted, api.ReasonLauncherRestart, 15},
		{"back within the grace", oneShot, with(dropped, func(f *facts) { f.connections = 1 }), 12, stay, "", -1},
		{"explicit heartbeats stop under an open connection", explicit, open, 30, lose, api.ReasonHeartbeat, -1},
		{"explicit heartbeats go on", explicit, with(open, func(f *facts) { f.seenAt = at(20) }), 30, stay, "", 50},
		{"two-step, not connected yet", twoStep, facts{startedAt: start, seenAt: start}, 10, stay, "", 30},
		{"two-step, never connected", twoStep, facts{startedAt: start, seenAt: start}, 30, lose, api.ReasonHeartbeat, -1},
		{"one-shot, never connected", oneShot, facts{startedAt: start, seenAt: start}, 30, endInOrder, api.ReasonNeverConnected, -1},
		{"the longest life", timed, open, 60, lose, api.ReasonLockTimeout, -1},
		{"before the longest life", timed, open, 59, stay, "", 60},
		{"released", oneShot, with(open, func(f *facts) { f.released = &api.Release{Reason: "done"} }), 1, endInOrder, "done", -1},
		{"Browser.close", oneShot, with(open, func(f *facts) { f.closing = true }), 1, endInOrder, api.ReasonBrowserClosed, -1},
		{"the browser crashed", oneShot, with(open, func(f *facts) { f.browserGone = true }), 1, lose, api.ReasonBrowserCrashed, -1},
		{"a person needs no connection", person, facts{startedAt: start, seenAt: start}, 59, stay, "", 60},
		{"nor a clean end of one", person, dropped, 59, stay, "", 60},
		{"but has no more time than was asked for", person, dropped, 60, lose, api.ReasonLockTimeout, -1},
		{"a person closes the browser", person, with(open, func(f *facts) { f.browserGone, f.browserQuit = true, true }), 1, endInOrder, api.ReasonBrowserClosed, -1},
		{"a person's browser crashed", person, with(open, func(f *facts) { f.browserGone = true }), 1, lose, api.ReasonBrowserCrashed, -1},
		{"the lease is lost", oneShot, with(open, func(f *facts) { f.leaseLost = errors.New("x") }), 1, lose, api.ReasonLeaseLost, -1},
		{"released, and the lease is lost too", oneShot, with(open, func(f *facts) { f.leaseLost, f.closing = errors.New("x"), true }), 1, lose, api.ReasonLeaseLost, -1},
		{"shutdown", twoStep, with(open, func(f *facts) { f.draining = true }), 1, lose, api.ReasonShutdown, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, next := tt.policy.rule(tt.facts, at(tt.now))
			want := time.Time{}
			if tt.next >= 0 {
				want = at(tt.next)
			}
			if r.verdict != tt.want || r.reason != tt.reason || !next.Equal(want) {
				t.Errorf("verdict %d %q, next %v; want %d %q, %v", r.verdict, r.reason, next, tt.want, tt.reason, want)
			}
		})
	}
}
