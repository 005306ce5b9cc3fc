package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// ending is one way for a case to end, as it is seen from outside.
type ending struct {
	name    string
	goal    Goal
	script  fakechrome.Script
	bare    bool // there is no browser
	prepare func(w *world)
	change  func(w *world, c *Case)

	// trace is what was written, and asked of the case, in its order; behind a slash is
	// what had become of the browser by then.
	trace    string
	how      string
	err      string // a part of it; empty: none
	is       error  // what the error is, besides
	state    lease.State
	reason   string // of the file
	closed   string // by which method
	browser  string // what became of it; empty: it is served
	leftOpen bool
	lost     bool
	inOrder  bool
	// forgotten says that the token was raised once more, since what this host kept was
	// not believed.
	forgotten bool
}

var stubborn = fakechrome.Script{RefusesClose: true, Stubborn: true}

func TestEveryEndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const (
		decided = "suspected_stale quarantined close inspected/gone available/gone"
		unclear = "suspected_stale quarantined close inspected/gone manual_review/gone"
	)
	asked := func(answer bool) func(*world, *Case) {
		return func(w *world, c *Case) { c.LeaveOpen = func() bool { w.note("leave"); return answer } }
	}
	otherRun := func(_ *world, c *Case) {
		c.Lost = []sessionfile.LostRun{{File: sessionfile.File{SessionID: "ses_0", Token: 5, Reason: api.ReasonHeartbeat}}}
	}
	unsealed := func(_ *world, c *Case) { c.Bundle = func() *evidence.Bundle { return nil } }
	unkept := func(w *world, c *Case) {
		c.Sealed = func(sessionfile.File) error { w.note("file"); return errFault }
	}
	away := func(at lease.State) func(*world) {
		return func(w *world) { w.leases.Write = w.refusing(func(next lease.Record) bool { return next.State == at }) }
	}
	meanwhile := func(steps ...func(lease.Record) (lease.Record, error)) func(*world) {
		return func(w *world) { w.restate(steps...) }
	}
	suspect := func(r lease.Record) (lease.Record, error) {
		return r.Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
	}
	quarantine := func(r lease.Record) (lease.Record, error) { return r.Quarantine(token, time.Now()) }
	stolen := func(r lease.Record) (lease.Record, error) {
		r.SessionID, r.Token, r.Runs = "ses_2", 9, []lease.Run{{SessionID: "ses_2", Token: 9}}
		return r, nil
	}
	elsewhere := func(r lease.Record) (lease.Record, error) { r.LauncherID = "launcher-2"; return r, nil }
	guard := func(w *world, kind string) string { return filepath.Join(w.root.Dir(), ".leasehold", profile+"."+kind) }
	damaged := func(w *world) { w.must(os.WriteFile(guard(w, "floor"), []byte("7"), 0o600)) }
	rolledBack := func(w *world) {
		earlier, err := os.ReadFile(guard(w, "floor"))
		w.must(err)
		w.restate(func(r lease.Record) (lease.Record, error) { r.Token += 3; r.Runs[0].Token = r.Token; return r, nil })
		w.must(w.lock.RaiseFloor(w.leases.record()))
		w.must(os.WriteFile(guard(w, "floor"), earlier, 0o600))
	}
	under := func(t lease.Token) func(*world, *Case) { return func(_ *world, c *Case) { c.File.Token = t } }
	noFloor := func(w *world) { w.must(os.Remove(guard(w, "floor"))) }
	forgedNote := func(w *world) {
		w.must(os.WriteFile(guard(w, "browser"), fmt.Appendf(nil, `{"pid":%d}`, os.Getpid()), 0o600))
	}
	const unbelieved = "lost (" + lease.ReasonNotAuthentic + "), recovered: manual_review"
	noDirectory := func(w *world, c *Case) {
		keep := c.Keep
		c.Keep = func(ctx context.Context, b sessionfile.Caller, p string) error {
			if err := os.Rename(w.path, w.path+".gone"); err != nil {
				t.Error(err)
			}
			return keep(ctx, b, p)
		}
	}
	crashed := func(w *world) {
		w.must(unix.Kill(w.browser.PID(), unix.SIGKILL))
		<-w.browser.Exited()
	}
	failed := func(change func(*world, *Case)) func(*world, *Case) {
		return func(w *world, c *Case) {
			c.NeverServed, c.File.Reason = true, api.ReasonStartFailed
			change(w, c)
		}
	}
	as := func(*world, *Case) {}
	onlyCopy := func(_ *world, c *Case) { c.OnlyCopy = true }

	for _, tt := range []ending{
		{name: "lost", goal: Recover, trace: "evidence file stop " + decided, how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, its evidence sealed by an earlier try", goal: Recover, change: func(w *world, c *Case) {
			c.File.Evidence = w.r.Seal(c.Bundle(), c.Log)
			w.traced()
			c.Bundle = func() *evidence.Bundle { t.Error("the evidence is taken twice"); return nil }
		}, trace: "file stop " + decided, how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, the evidence store away", goal: Recover, prepare: func(w *world) { w.bundles.away = true },
			trace: "evidence file stop " + decided, how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, the disk full", goal: Recover, prepare: (*world).fullDisk,
			trace: "stop suspected_stale quarantined", err: "is the disk full?", is: ErrNoEvidence, state: lease.Quarantined, browser: "detached"},
		{name: "lost, the bundle gone before it was sealed", goal: Recover, change: func(w *world, c *Case) {
			c.Bundle = func() *evidence.Bundle {
				b := w.bundle(c.File)
				w.must(os.RemoveAll(filepath.Join(w.spool, b.ID())))
				return b
			}
		}, trace: "stop suspected_stale quarantined", err: "is the disk full?", is: ErrNoEvidence, state: lease.Quarantined, browser: "detached"},
		{name: "lost, the disk full and the store away", goal: Recover, prepare: func(w *world) { w.fullDisk(); away(lease.SuspectedStale)(w) },
			trace: "stop suspected_stale", err: lease.ErrUnavailable.Error(), is: ErrNoEvidence, state: lease.Held, browser: "detached"},
		{name: "lost, its file not written", goal: Recover, change: unkept, trace: "evidence file", err: "could not be noted", is: ErrNotKept, state: lease.Held, browser: "detached"},
		{name: "lost, another session there", goal: Recover, prepare: meanwhile(stolen),
			trace: "evidence file stop close", how: "fenced: the lease has another token by now: session ses_2 has the profile", state: lease.Held, closed: "cdp", browser: "gone"},
		{name: "lost, suspected before", goal: Recover, prepare: meanwhile(suspect),
			trace: "evidence file stop quarantined close inspected/gone available/gone", how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, quarantined before", goal: Recover, prepare: meanwhile(suspect, quarantine),
			trace: "evidence file stop close inspected/gone available/gone", how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, inspected before", goal: Recover, change: func(w *world, c *Case) {
			c.File.Evidence = w.r.Seal(c.Bundle(), c.Log)
			w.restate(suspect, quarantine, func(r lease.Record) (lease.Record, error) { return r.Inspect(c.File.Evidence, time.Now()) })
			w.traced()
		}, trace: "file stop close available/gone", how: "lost (connection_lost), recovered: release", state: lease.Available, closed: "cdp", browser: "gone"},
		{name: "lost, with a person by now", goal: Recover, prepare: meanwhile(suspect, quarantine, func(r lease.Record) (lease.Record, error) {
			return r.Abandon([]string{"the home is away"}, lease.Sealed{}, time.Now())
		}), trace: "evidence file stop close", err: "manual_review cannot be examined", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, the store away", goal: Recover, prepare: away(lease.SuspectedStale),
			trace: "evidence file stop suspected_stale close", err: lease.ErrUnavailable.Error(), is: lease.ErrUnavailable, state: lease.Held, closed: "cdp", browser: "gone"},
		{name: "lost, the store away before the quarantine", goal: Recover, prepare: away(lease.Quarantined),
			trace: "evidence file stop suspected_stale quarantined close", is: lease.ErrUnavailable, state: lease.SuspectedStale, closed: "cdp", browser: "gone"},
		{name: "lost, the floor damaged", goal: Recover, prepare: damaged, reason: lease.ReasonNotAuthentic,
			trace: "evidence file stop " + unclear, how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, the floor damaged, suspected by now", goal: Recover, prepare: func(w *world) { w.restate(suspect); damaged(w) }, reason: lease.ReasonNotAuthentic, forgotten: true,
			trace: "evidence file stop quarantined written close inspected/gone manual_review/gone", how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, the floor rolled back", goal: Recover, prepare: rolledBack, change: under(token + 3), reason: lease.ReasonRolledBack,
			trace: "evidence file stop " + unclear, how: "lost (" + lease.ReasonRolledBack + "), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, the floor gone", goal: Recover, prepare: noFloor, reason: lease.ReasonRolledBack,
			trace: "evidence file stop " + unclear, how: "lost (" + lease.ReasonRolledBack + "), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, the note of its browser forged", goal: Recover, prepare: forgedNote, reason: lease.ReasonNotAuthentic,
			trace: "evidence file stop " + unclear, how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, no browser", goal: Recover, bare: true,
			trace: "evidence file stop suspected_stale quarantined inspected manual_review", how: "lost (connection_lost), recovered: manual_review", state: lease.ManualReview},
		{name: "lost, it cannot be closed in order", goal: Recover, change: noDirectory,
			trace: "evidence file stop " + unclear, how: "lost (connection_lost), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "lost, it crashes at the close", goal: Recover, script: fakechrome.Script{Crashes: true},
			trace: "evidence file stop " + unclear, how: "lost (connection_lost), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},

		{name: "released", goal: Release, trace: "evidence file close stop/gone available/gone", how: "released: released", state: lease.Available, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, not to be left open", goal: Release, change: asked(false),
			trace: "evidence file leave close stop/gone available/gone", how: "released: released", state: lease.Available, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, left open", goal: Release, change: asked(true),
			trace: "evidence file leave stop available", how: "released: released", state: lease.Available, leftOpen: true, inOrder: true},
		{name: "left open, the store away", goal: Release, change: asked(true), prepare: away(lease.Available),
			trace: "evidence file leave stop available close", err: "release: ", is: lease.ErrUnavailable, state: lease.Held, closed: "cdp", browser: "gone", inOrder: true},
		{name: "left open, the store away, and it has to be killed", goal: Release, change: asked(true), prepare: away(lease.Available), script: stubborn,
			trace: "evidence file leave stop available close", err: "release: ", is: lease.ErrUnavailable, state: lease.Held, reason: api.ReasonNotClosed, closed: "sigkill", browser: "gone"},
		{name: "left open, the store away, and it crashes at the close", goal: Release, change: asked(true), prepare: away(lease.Available), script: fakechrome.Script{Crashes: true},
			trace: "evidence file leave stop available close", err: "release: ", is: lease.ErrUnavailable, state: lease.Held, reason: api.ReasonNotClosed, closed: "cdp", browser: "gone"},
		{name: "left open, the floor damaged", goal: Release, change: asked(true), prepare: damaged, reason: lease.ReasonNotAuthentic,
			trace: "evidence file stop " + unclear, how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "released, the floor rolled back", goal: Release, prepare: rolledBack, change: under(token + 3), reason: lease.ReasonRolledBack,
			trace: "evidence file stop " + unclear, how: "lost (" + lease.ReasonRolledBack + "), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "released, the note of its browser forged", goal: Release, prepare: forgedNote, reason: lease.ReasonNotAuthentic,
			trace: "evidence file stop " + unclear, how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "not begun, the floor damaged", goal: Release, change: failed(as), prepare: damaged, reason: lease.ReasonNotAuthentic,
			trace: "evidence file stop " + unclear, how: unbelieved, state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "released, the store away", goal: Release, prepare: away(lease.Available),
			trace: "evidence file close stop/gone available/gone", err: "release: ", is: lease.ErrUnavailable, state: lease.Held, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, quarantined by now", goal: Release, prepare: meanwhile(suspect, quarantine),
			trace: "evidence file close stop/gone", err: "token 7 superseded by 8", state: lease.Quarantined, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, suspected by now", goal: Release, prepare: meanwhile(suspect),
			trace: "evidence file close stop/gone", err: "suspected_stale cannot be released", state: lease.SuspectedStale, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, held by another launcher", goal: Release, prepare: meanwhile(elsewhere),
			trace: "evidence file close stop/gone", err: "superseded", state: lease.Held, closed: "cdp", browser: "gone", inOrder: true},
		{name: "released, its file not written", goal: Release, change: unkept, trace: "evidence file", is: ErrNotKept, state: lease.Held, browser: "detached"},
		{name: "released, the disk full", goal: Release, prepare: (*world).fullDisk, change: asked(true),
			trace: "stop suspected_stale quarantined", is: ErrNoEvidence, state: lease.Quarantined, reason: api.ReasonNoEvidence, browser: "detached"},
		{name: "released, another run lost", goal: Release, change: func(w *world, c *Case) { asked(true)(w, c); otherRun(w, c) },
			trace: "evidence file stop " + decided, how: "lost (run_lost), recovered: release", state: lease.Available, reason: api.ReasonRunLost, closed: "cdp", browser: "gone"},
		{name: "released, it cannot be closed in order", goal: Release, change: noDirectory,
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "cdp", browser: "gone"},
		{name: "released, it had to be killed", goal: Release, script: stubborn,
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "sigkill", browser: "gone"},
		{name: "released, it crashes at the close", goal: Release, script: fakechrome.Script{Crashes: true},
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "cdp", browser: "gone"},
		{name: "released, a cookie not on the disk", goal: Release, script: lossy,
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "cdp", browser: "gone"},
		{name: "released, it lost cookies while its worker was away", goal: Release, change: func(w *world, c *Case) {
			asked(true)(w, c)
			c.File.CookiesLost = "the cookies could not be put back"
		}, trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "cdp", browser: "gone"},
		{name: "lost, a cookie not on the disk", goal: Recover, script: lossy,
			trace: "evidence file stop " + unclear, how: "lost (connection_lost), recovered: manual_review", state: lease.ManualReview, closed: "cdp", browser: "gone"},
		{name: "released, it crashed before", goal: Release, prepare: crashed,
			trace: "evidence/gone file/gone stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_not_closed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonNotClosed, closed: "already_exited", browser: "gone"},
		{name: "never served, no browser", goal: Release, bare: true, change: failed(as),
			trace: "evidence file stop available", how: "browser_start_failed", state: lease.Available, reason: api.ReasonStartFailed},
		{name: "never served, it had to be killed", goal: Release, script: stubborn, change: failed(as),
			trace: "evidence file close stop/gone available/gone", how: "browser_start_failed", state: lease.Available, reason: api.ReasonStartFailed, closed: "sigkill", browser: "gone"},
		{name: "never served, it alone had the cookies and had to be killed", goal: Release, script: stubborn, change: failed(onlyCopy),
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_start_failed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonStartFailed, closed: "sigkill", browser: "gone"},
		{name: "never served, it alone had the cookies and crashed", goal: Release, prepare: crashed, change: failed(onlyCopy),
			trace: "evidence/gone file/gone stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_start_failed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonStartFailed, closed: "already_exited", browser: "gone"},
		{name: "never served, it alone had the cookies", goal: Release, change: failed(onlyCopy),
			trace: "evidence file close stop/gone available/gone", how: "browser_start_failed", state: lease.Available, reason: api.ReasonStartFailed, closed: "cdp", browser: "gone"},
		{name: "never served, it cannot be closed in order", goal: Release, change: failed(noDirectory),
			trace: "evidence file close stop/gone suspected_stale/gone quarantined/gone inspected/gone manual_review/gone", how: "lost (browser_start_failed), recovered: manual_review",
			state: lease.ManualReview, reason: api.ReasonStartFailed, closed: "cdp", browser: "gone"},
		{name: "never served, the disk full", goal: Release, prepare: (*world).fullDisk, change: failed(as),
			trace: "stop suspected_stale quarantined", is: ErrNoEvidence, state: lease.Quarantined, reason: api.ReasonStartFailed, browser: "detached"},

		{name: "a run's end", goal: EndRun, change: inOrder, trace: "evidence file stop clients runs=1+0", how: "released: released", state: lease.Held},
		{name: "a run lost", goal: EndRun, trace: "evidence file stop clients runs=1+1", how: "lost (connection_lost): inspected when the other runs of the profile end", state: lease.Held, lost: true},
		{name: "a run's end without evidence", goal: EndRun, change: func(w *world, c *Case) { inOrder(w, c); unsealed(w, c) },
			trace: "stop clients runs=1+1", how: "lost (released): inspected", state: lease.Held, lost: true},
		{name: "a run that never served", goal: EndRun, change: func(w *world, c *Case) {
			inOrder(w, c)
			failed(unsealed)(w, c)
			c.Bundle, c.Sealed = nil, nil
		}, trace: "stop clients runs=1+0", how: "released: browser_start_failed", state: lease.Held, reason: api.ReasonStartFailed},
		{name: "a run's end, the store away", goal: EndRun, change: inOrder, prepare: away(lease.Held),
			trace: "evidence file stop clients runs=1+0", how: "released: released", is: lease.ErrUnavailable, state: lease.Held, lost: true},
		{name: "a run's end, and there is no other", goal: EndRun, change: inOrder, prepare: meanwhile(func(r lease.Record) (lease.Record, error) {
			r.Runs = r.Runs[:1]
			return r, nil
		}), trace: "evidence file stop clients", how: "released: released", err: "the last run ends the lease", state: lease.Held, lost: true},
		{name: "a run's end, its file not written", goal: EndRun, change: func(w *world, c *Case) { inOrder(w, c); unkept(w, c) },
			trace: "evidence file", is: ErrNotKept, state: lease.Held, lost: true},

		{name: "closed only", goal: CloseOnly, prepare: meanwhile(stolen), trace: "evidence file close named/gone", state: lease.Held, closed: "cdp", browser: "gone"},
		{name: "closed only, by the guard", goal: CloseOnly, change: func(w *world, c *Case) {
			w.r = w.recoverer(func(o *Options) { o.Store = nil })
		}, trace: "evidence file close", state: lease.Held, closed: "cdp", browser: "gone"},
		{name: "closed only, the disk full", goal: CloseOnly, prepare: (*world).fullDisk, err: "a browser that outlived its lease stays open", is: ErrNoEvidence, state: lease.Held, browser: "detached"},
		{name: "closed only, a file not written", goal: CloseOnly, change: unkept, trace: "evidence file", is: ErrNotKept, state: lease.Held, browser: "detached"},
		{name: "closed only, not in order", goal: CloseOnly, change: noDirectory, trace: "evidence file close", err: "no such profile directory", state: lease.Held, closed: "cdp", browser: "gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// inOrder says that it is the proper end of a run.
func inOrder(_ *world, c *Case) { c.InOrder, c.File.Reason = true, api.ReasonReleased }

func (tt ending) check(t *testing.T) {
	w := newWorld(t)
	if !tt.bare {
		w.open(tt.script)
	}
	if tt.goal == EndRun {
		w.restate(func(r lease.Record) (lease.Record, error) {
			r.MaxActiveRuns, r.Token, r.SessionID = 2, token+1, "ses_2"
			r.Runs = append(r.Runs, lease.Run{SessionID: "ses_2", Token: token + 1})
			return r, nil
		})
	}
	if tt.prepare != nil {
		tt.prepare(w)
	}
	c := w.caseOf(tt.goal)
	if tt.change != nil {
		tt.change(w, &c)
	}
	before := w.leases.record()
	e, err := w.r.Run(c)
	if got := w.traced(); got != tt.trace {
		t.Errorf("seen from outside:\n%s, want\n%s", got, tt.trace)
	}
	if (err == nil) != (tt.err == "" && tt.is == nil) || err != nil && !strings.Contains(err.Error(), tt.err) || tt.is != nil && !errors.Is(err, tt.is) {
		t.Errorf("error %v, want %q, %v", err, tt.err, tt.is)
	}
	if !strings.HasPrefix(e.How, tt.how) || (e.How == "") != (tt.how == "") || e.LeftOpen != tt.leftOpen || e.Lost != tt.lost {
		t.Errorf("ended %q, left open %v, lost %v; want %q, %v, %v", e.How, e.LeftOpen, e.Lost, tt.how, tt.leftOpen, tt.lost)
	}
	reason := tt.reason
	if reason == "" {
		reason = c.File.Reason
	}
	if f := e.File; f.Reason != reason || f.CloseMethod != tt.closed || f.InOrder != tt.inOrder || f.SessionID != session || f.Token != c.File.Token {
		t.Errorf("the file says %q, closed by %q, in order %v; want %q, %q, %v", f.Reason, f.CloseMethod, f.InOrder, reason, tt.closed, tt.inOrder)
	}
	became := ""
	if w.browser != nil {
		w.note("")
		became = strings.TrimPrefix(w.traced(), "/")
	}
	if became != tt.browser {
		t.Errorf("the browser is %q, want %q", became, tt.browser)
	}
	tt.checkStored(t, w, before, e, err)
}

// checkStored compares what is stored at the end with what was before.
func (tt ending) checkStored(t *testing.T, w *world, before lease.Record, e Ended, err error) {
	r := w.leases.record()
	if r.State != tt.state {
		t.Errorf("the record is %s, want %s", r.State, tt.state)
	}
	sealed := e.File.Evidence
	switch {
	case err == nil && !strings.HasPrefix(e.How, "fenced") && !w.storeless:
		if r.EvidenceID != sealed.EvidenceID || r.EvidenceSHA256 != sealed.SHA256 {
			t.Errorf("the record names evidence %q, the file %q", r.EvidenceID, sealed.EvidenceID)
		}
	case strings.HasPrefix(e.How, "fenced"):
		if r.Token != before.Token || r.EvidenceID != before.EvidenceID {
			t.Errorf("another session's record was changed: %+v", r)
		}
	}
	if forgot, _, ferr := w.r.Forgot(r); r.State == lease.ManualReview && err == nil && (forgot || ferr != nil) {
		t.Errorf("the person is asked about it twice: %v", ferr)
	}
	switch r.State {
	case lease.Available, lease.ManualReview:
		// A crash from here on finds what is stored on this host, too.
		if floor, kept, kerr := w.root.Kept(profile); err == nil && (kerr != nil || floor != r.Token || kept.State != r.State) {
			t.Errorf("kept: floor %d, %s, %v; the record has %d, %s", floor, kept.State, kerr, r.Token, r.State)
		}
		if _, gone := os.Stat(w.path); err == nil && gone == nil && !tt.leftOpen {
			if _, running, rerr := w.root.Running(profile); running || rerr != nil {
				t.Errorf("a browser is said to run: %v", rerr)
			}
		}
	}
	if tt.goal == Recover && err == nil && r.SessionID == session {
		if raised := e.File.Token + 1; r.Token != raised && !(tt.forgotten && r.Token == raised+1) || r.LastKnownURL != cart && before.State == lease.Held {
			t.Errorf("token %d, last at %q", r.Token, r.LastKnownURL)
		}
		if in := time.Until(r.AvailableAfter); r.State == lease.Available && (in < cooldown-10*time.Second || in > cooldown) {
			t.Errorf("available in %v, want %v", in, cooldown)
		}
	}
	if tt.inOrder && err == nil && (r.Outcome != "succeeded" || r.Reason != api.ReasonReleased || r.Token != token) {
		t.Errorf("released with %q because of %q under %d", r.Outcome, r.Reason, r.Token)
	}
}

// TestABrowserThatWasNeverDrivenIsClosed, as after a start that failed: there is nobody
// to ask.
func TestABrowserThatWasNeverDrivenIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fakechrome.Direct(t, w.path, fakechrome.Script{Mute: true})
	ctx, giveUp := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { // until its process is there
		for ctx.Err() == nil {
			if _, running, err := w.root.Running(profile); running || err != nil {
				giveUp()
			}
			time.Sleep(time.Millisecond)
		}
	})
	b, err := w.driver.Start(ctx, browser.Start{SessionID: session, Token: token, Lock: w.lock, Path: w.path, Sink: func(checkpoint.Entry) {}, Log: w.log})
	giveUp()
	waiting.Wait()
	if err == nil || b == nil {
		t.Fatalf("%v, %v: a browser that answers nothing was started", b, err)
	}
	w.browser = b
	c := w.caseOf(Release)
	c.NeverServed, c.File.Reason = true, api.ReasonStartFailed
	e, err := w.r.Run(c)
	if err != nil || e.How != api.ReasonStartFailed || e.File.CloseMethod != "sigint" || w.leases.record().State != lease.Available {
		t.Errorf("%+v, %v, %s", e, err, w.leases.record().State)
	}
	if got, want := w.traced(), "evidence file stop/gone available/gone"; got != want {
		t.Errorf("%s, want %s: nobody asks it for its cookies", got, want)
	}
}
