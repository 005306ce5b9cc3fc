package session

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	linked := policyOf(api.Manifest{LockTimeoutSeconds: 60, ByHand: &api.ByHand{Holder: "ann", SignInLink: "lnk_1"}}, 30*time.Second, 5*time.Second)
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
		{"explicit heartbeats rest while the worker waits for a person", explicit, with(open, func(f *facts) { f.asksUntil = at(600) }), 500, stay, "", 630},
		{"and one without a connection lives, too", twoStep, with(closed, func(f *facts) { f.asksUntil = at(600) }), 599, stay, "", 630},
		{"not for ever", twoStep, with(closed, func(f *facts) { f.asksUntil = at(600) }), 630, lose, api.ReasonHeartbeat, -1},
		{"nor past the longest life", timed, with(open, func(f *facts) { f.asksUntil = at(600) }), 60, lose, api.ReasonLockTimeout, -1},
		{"nor where its connection breaks", oneShot, with(dropped, func(f *facts) { f.asksUntil = at(600) }), 15, lose, api.ReasonConnectionLost, -1},
		{"two-step, not connected yet", twoStep, facts{startedAt: start, seenAt: start}, 10, stay, "", 30},
		{"two-step, never connected", twoStep, facts{startedAt: start, seenAt: start}, 30, lose, api.ReasonHeartbeat, -1},
		{"one-shot, never connected", oneShot, facts{startedAt: start, seenAt: start}, 30, endInOrder, api.ReasonNeverConnected, -1},
		{"the longest life", timed, open, 60, lose, api.ReasonLockTimeout, -1},
		{"before the longest life", timed, open, 59, stay, "", 60},
		{"the worker died", oneShot, with(open, func(f *facts) { f.released = &api.Release{Reason: "signal: killed", Recover: api.RecoverAlways} }), 1, lose, api.ReasonWorkerDied, -1},
		{"it died, and its connection is lost", twoStep, with(dropped, func(f *facts) { f.released = &api.Release{Recover: api.RecoverAlways} }), 1, lose, api.ReasonWorkerDied, -1},
		{"it failed, which is judged at the end", oneShot, with(open, func(f *facts) { f.released = &api.Release{Reason: "exit status 3", Recover: api.RecoverTouched} }), 1, endInOrder, "exit status 3", -1},
		{"released", oneShot, with(open, func(f *facts) { f.released = &api.Release{Reason: "done"} }), 1, endInOrder, "done", -1},
		{"Browser.close", oneShot, with(open, func(f *facts) { f.closing = true }), 1, endInOrder, api.ReasonBrowserClosed, -1},
		{"the browser crashed", oneShot, with(open, func(f *facts) { f.browserGone = true }), 1, lose, api.ReasonBrowserCrashed, -1},
		{"a person needs no connection", person, facts{startedAt: start, seenAt: start}, 59, stay, "", 60},
		{"nor a clean end of one", person, dropped, 59, stay, "", 60},
		{"but has no more time than was asked for", person, dropped, 60, lose, api.ReasonLockTimeout, -1},
		{"a person with a sign-in link has no more time either, and leaves in order", linked, dropped, 60, endInOrder, api.ReasonLockTimeout, -1},
		{"a person with a sign-in link is gone", linked, with(open, func(f *facts) { f.personGone = true }), 1, endInOrder, api.ReasonPersonGone, -1},
		{"a person with a sign-in link is there", linked, open, 59, stay, "", 60},
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

// TestRuleLooksAgainInTime: if nothing happens, a session stays as it is ruled until the
// time at which the rule wants to look again, and ends then.
func TestRuleLooksAgainInTime(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		second := func(name string) time.Time {
			return start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, name)) * time.Second)
		}
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		m := api.Manifest{
			OneShot: flag("one-shot"), LockTimeoutSeconds: float64(rapid.SampledFrom([]int{0, 60, 200}).Draw(t, "lock timeout")),
			Heartbeat: rapid.SampledFrom([]string{"", api.HeartbeatExplicit}).Draw(t, "heartbeat"),
			OnClose:   rapid.SampledFrom([]string{"", api.OnCloseKeep, api.OnCloseRelease}).Draw(t, "on close"),
			OnDrop:    rapid.SampledFrom([]string{"", api.OnDropRelease}).Draw(t, "on drop"),
		}
		if flag("by hand") {
			m.ByHand = &api.ByHand{}
		}
		f := facts{startedAt: start, seenAt: second("seen"), connections: rapid.IntRange(0, 2).Draw(t, "connections")}
		if f.connected = f.connections > 0 || flag("connected"); f.connected {
			f.endedAt, f.dropped = second("ended"), flag("dropped")
			f.left = f.dropped && flag("left")
		}
		now := second("now")
		p := policyOf(m, 30*time.Second, 5*time.Second)
		r, next := p.rule(f, now)
		switch r.verdict {
		case stay, interrupted:
		default:
			if !next.IsZero() || r.reason == "" {
				t.Fatalf("%+v, and then %v", r, next)
			}
			return
		}
		if next.IsZero() {
			if later, _ := p.rule(f, now.Add(1000*time.Hour)); later != r {
				t.Fatalf("%+v for ever, and then %+v", r, later)
			}
			return
		}
		if !next.After(now) {
			t.Fatalf("%+v until %v, at %v", r, next, now)
		}
		if before, _ := p.rule(f, next.Add(-1)); before != r {
			t.Fatalf("%+v until %v, and %+v before", r, next, before)
		}
		if then, _ := p.rule(f, next); then.verdict == stay || then.verdict == interrupted {
			t.Fatalf("%+v at %v, when %+v ends", then, next, r)
		}
	})
}

func TestLastSeen(t *testing.T) {
	seen := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := seen.Add(time.Minute)
	for _, tt := range []struct {
		name        string
		m           api.Manifest
		connections int
		want        time.Time
	}{
		{"a connection is a sign of life", api.Manifest{}, 1, now},
		{"none", api.Manifest{}, 0, seen},
		{"it is none where heartbeats are explicit", api.Manifest{Heartbeat: api.HeartbeatExplicit}, 1, seen},
		{"a person needs none", api.Manifest{ByHand: &api.ByHand{}}, 0, now},
	} {
		if got := policyOf(tt.m, time.Minute, time.Minute).lastSeen(facts{seenAt: seen, connections: tt.connections}, now); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
