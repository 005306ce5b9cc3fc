package session

import (
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/browser"
)

// policy is what a session's manifest and the launcher's settings say about when a session is
// over.
type policy struct {
	oneShot     bool
	byHand      bool          // a person: only the end of the browser or of the time counts
	byLink      bool          // it is one with a sign-in link, who may leave at any time
	heartbeat   string        // api.Heartbeat...
	onClose     string        // api.OnClose...
	onDrop      string        // api.OnDrop...
	silence     time.Duration // without a sign of life, the worker is lost
	grace       time.Duration // to come back after a drop
	lockTimeout time.Duration // longest life of the session; zero: none
}

func policyOf(m api.Manifest, ttl, grace time.Duration) policy {
	p := policy{
		oneShot: m.OneShot, byHand: m.ByHand != nil, byLink: m.ByHand != nil && m.ByHand.SignInLink != "", heartbeat: m.Heartbeat, onClose: m.OnClose, onDrop: m.OnDrop,
		silence: ttl, grace: grace, lockTimeout: time.Duration(m.LockTimeoutSeconds * float64(time.Second)),
	}
	if p.heartbeat == "" {
		p.heartbeat = api.HeartbeatConnection
	}
	if p.onClose == "" {
		p.onClose = api.OnCloseKeep
		if m.OneShot {
			p.onClose = api.OnCloseRelease
		}
	}
	if p.onDrop == "" {
		p.onDrop = api.OnDropLost
	}
	return p
}

// facts are what is known about a session's worker, on this host's clock.
type facts struct {
	startedAt time.Time
	// seenAt is the last sign of life; in explicit mode, the last heartbeat.
	seenAt      time.Time
	connections int
	connected   bool // there was a connection at some time
	// endedAt is when the last connection ended. dropped says that it ended without a close
	// handshake.
	endedAt time.Time
	dropped bool
	// left says that an earlier launcher dropped the connection.
	left bool

	// asksUntil is how long the worker waits for a person at most; zero: it does not wait.
	asksUntil time.Time

	personGone  bool         // who came by a sign-in link is not there any more
	released    *api.Release // the worker asked for the end
	closing     bool         // the worker sent Browser.close
	browserGone bool
	browserQuit bool            // it ended by itself, in order
	failure     browser.Failure // the browser lives and has to be given up
	leaseLost   error
	draining    bool
	leaving     bool // the browser is left to the next launcher
}

// lastSeen is when the worker was last known to live.
func (p policy) lastSeen(f facts, now time.Time) time.Time {
	if now.Before(f.asksUntil) || p.byHand || f.connections > 0 && p.heartbeat == api.HeartbeatConnection {
		return now
	}
	return f.seenAt
}

// verdict is what a session has to do now.
type verdict int

const (
	stay        verdict = iota
	interrupted         // the connection is lost: capture, and wait for it to come back
	endInOrder
	lose
	leave // the browser stays, for the next launcher
)

type ruling struct {
	verdict verdict
	reason  string
	outcome string
	// ifTouched says of an end in order that the session counts as lost nevertheless if its
	// task touched anything since its last safe checkpoint, or had resumed.
	ifTouched bool
}

// rule derives the verdict from the facts, and when to call it again if nothing happens before
// (zero: never).
func (p policy) rule(f facts, now time.Time) (ruling, time.Time) {
	quiet := f.seenAt.Add(p.silence)
	if waits := f.asksUntil.Add(p.silence); !f.asksUntil.IsZero() && waits.After(quiet) {
		quiet = waits
	}
	timeout := f.startedAt.Add(p.lockTimeout)
	switch {
	case f.leaseLost != nil:
		return ruling{verdict: lose, reason: api.ReasonLeaseLost}, time.Time{}
	case f.released != nil && f.released.Recover == api.RecoverAlways:
		return ruling{verdict: lose, reason: api.ReasonWorkerDied}, time.Time{}
	case f.released != nil:
		reason := f.released.Reason
		if reason == "" {
			reason = api.ReasonReleased
		}
		return ruling{endInOrder, reason, f.released.Outcome, f.released.Recover == api.RecoverTouched}, time.Time{}
	case f.closing:
		return ruling{verdict: endInOrder, reason: api.ReasonBrowserClosed}, time.Time{}
	case f.browserGone && f.browserQuit && p.byHand:
		return ruling{verdict: endInOrder, reason: api.ReasonBrowserClosed}, time.Time{}
	case f.browserGone:
		return ruling{verdict: lose, reason: api.ReasonBrowserCrashed}, time.Time{}
	case f.failure != (browser.Failure{}):
		return ruling{verdict: lose, reason: f.failure.Reason}, time.Time{}
	case f.leaving:
		return ruling{verdict: leave, reason: api.ReasonShutdown}, time.Time{}
	case f.draining:
		return ruling{verdict: lose, reason: api.ReasonShutdown}, time.Time{}
	case f.personGone:
		return ruling{verdict: endInOrder, reason: api.ReasonPersonGone}, time.Time{}
	case p.byLink && !now.Before(timeout):
		return ruling{verdict: endInOrder, reason: api.ReasonLockTimeout}, time.Time{}
	case p.lockTimeout > 0 && !now.Before(timeout):
		return ruling{verdict: lose, reason: api.ReasonLockTimeout}, time.Time{}
	}
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if p.lockTimeout > 0 {
		sooner(timeout)
	}
	if p.byHand {
		return ruling{verdict: stay}, next
	}
	if f.connections == 0 && f.connected {
		lost := api.ReasonConnectionLost
		if f.left {
			lost = api.ReasonLauncherRestart
		}
		switch {
		case f.dropped && !f.left && p.onDrop == api.OnDropRelease:
			return ruling{verdict: endInOrder, reason: api.ReasonDropReleases}, time.Time{}
		case f.dropped && !now.Before(f.endedAt.Add(p.grace)):
			return ruling{verdict: lose, reason: lost}, time.Time{}
		case f.dropped:
			sooner(f.endedAt.Add(p.grace))
			return ruling{verdict: interrupted, reason: lost}, next
		case p.onClose == api.OnCloseRelease:
			return ruling{verdict: endInOrder, reason: api.ReasonClosed}, time.Time{}
		}
	}
	if f.connections == 0 && !f.connected && p.oneShot {
		if never := f.startedAt.Add(p.silence); now.Before(never) {
			sooner(never)
		} else {
			// It may have named steps, and opened tabs, over HTTP.
			return ruling{verdict: endInOrder, reason: api.ReasonNeverConnected, ifTouched: true}, time.Time{}
		}
	}
	if f.connections == 0 || p.heartbeat == api.HeartbeatExplicit {
		if !now.Before(quiet) {
			return ruling{verdict: lose, reason: api.ReasonHeartbeat}, time.Time{}
		}
		sooner(quiet)
	}
	return ruling{verdict: stay}, next
}
