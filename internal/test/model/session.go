package model

import (
	"errors"
	"fmt"
	"time"

	"leasehold/lease"
)

// acquire grants the profile to a task and serves it, as launcher/acquire.go and
// launcher/grant.go do.
func (p *process) acquire(t *task, d *directory) {
	e, err := p.store(t, callTime).Get(never, d.profile)
	if errors.Is(err, lease.ErrNotFound) {
		e, err = lease.Entry{Record: lease.Record{ProfileID: d.profile}}, nil
	}
	if err != nil {
		return
	}
	if o := p.profiles[d.profile]; o != nil {
		p.join(t, o, e)
		return
	}
	r := e.Record
	if floor, _ := d.read(p); r.Home != "" && r.Home != p.host.id || !r.State.Free() && r.Token >= floor {
		return
	}
	o := &open{d: d, gate: true}
	p.profiles[d.profile] = o
	if !p.grant(t, o, e) {
		delete(p.profiles, d.profile)
	}
}

// grant takes the lock and the lease, and starts the browser. If it returns false, nothing
// is held.
func (p *process) grant(t *task, o *open, e lease.Entry) bool {
	w, d := p.w, o.d
	stay := p.stay
	if stay == nil || !p.mayTouch(d) {
		return false
	}
	floor, own := d.read(p)
	if e.Record.Token < floor {
		if w.mutant("heal left out") {
			if !e.Record.State.Free() {
				return false
			}
			e.Record.Token = floor // only the token is brought up
		} else {
			p.heal(t, d, floor, own)
			return false
		}
	}
	if !d.take(p) {
		return false
	}
	w.sessions++
	session := fmt.Sprintf("s%d", w.sessions)
	if e.Record.MaxActiveRuns == 0 {
		e.Record.MaxActiveRuns = 1 + int(d.profile[1]-'0')%2*2
	}
	next, err := e.Record.Grant(p.request(session, stay, floor), p.wallclock())
	if err == nil {
		w.soon(p.host, 0.03)
		_, err = p.store(t, callTime).Swap(never, e, next)
	}
	if err != nil {
		w.logf("%s: %s not granted: %v", p.host.id, d.profile, err)
		d.release(p)
		return false
	}
	w.soon(p.host, 0.03)
	if !p.mayTouch(d) && !w.mutant("the grace not looked at again after the grant") {
		// The store went back while the grant was under way, and may have forgotten
		// the lease of another.
		w.logf("%s: %s granted, and not used: the store was restarted meanwhile", p.host.id, d.profile)
		d.release(p)
		return false
	}
	t.sleep(w.upTo(30 * time.Millisecond)) // the disk
	if !d.keep(p, next) {
		w.logf("%s: token %d of %s is below the floor", p.host.id, next.Token, d.profile)
		d.release(p)
		return false
	}
	r := p.newRun(o, session, next, stay)
	w.logf("%s: %s granted to %s, token %d, epoch %d", p.host.id, d.profile, session, r.token, stay.Epoch())
	w.check.granted(d, r.token, false)
	t.sleep(w.upTo(time.Second))
	if r.fence.Check() == nil {
		o.chrome = d.start(p, r)
		t.sleep(w.upTo(time.Second))
	}
	o.gate = false
	p.spawn(func(t *task) { p.serve(t, r) })
	return true
}

// request returns the request for a grant.
func (p *process) request(session string, stay *lease.Stay, floor lease.Token) lease.Request {
	return lease.Request{
		SessionID: session, TaskID: session, WorkerID: session, LauncherID: p.host.id, PresenceEpoch: stay.Epoch(),
		TTL: p.w.o.TTL, Floor: floor, Exclusive: p.w.chance(0.3),
	}
}

// newRun adds the run of a lease that was just granted.
func (p *process) newRun(o *open, session string, granted lease.Record, stay *lease.Stay) *run {
	r := &run{o: o, session: session, token: granted.Token, fence: stay.Fence(granted.Token), stay: stay, own: granted}
	o.runs = append(o.runs, r)
	return r
}

// mayTouch is false for a directory that another host could open too, until every holder
// that the store forgot has had the time to write its lease again.
func (p *process) mayTouch(d *directory) bool {
	if !d.shared() || p.w.mutant("no grace on shared directories") {
		return true
	}
	return p.host.boottime(p.w.now).Sub(p.steady) >= p.w.timing().GrantDelay()
}

// heal repairs the record of a profile that the store forgot. Only the home that the kept
// record names may do that.
func (p *process) heal(t *task, d *directory, floor lease.Token, own lease.Record) {
	if own.Home != p.host.id && !p.w.mutant("any launcher that sees the directory heals") {
		return
	}
	_, err := lease.Change(never, p.store(t, storeTime), d.profile, func(e lease.Entry) (lease.Record, error) {
		if e.Record.Token >= floor {
			return e.Record, errAlready
		}
		e.Record.Home = p.host.id
		return e.Record.Heal(own, floor, p.wallclock())
	})
	p.w.counts["records healed"]++
	p.w.logf("%s: %s healed from %s, token %d, floor %d: %v", p.host.id, d.profile, own.State, own.Token, floor, err)
}

var errAlready = errors.New("already made")

// join grants one more run on a browser that is open here.
func (p *process) join(t *task, o *open, e lease.Entry) {
	stay := p.stay
	if o.gate || o.closing || o.chrome == nil || !o.chrome.alive || stay == nil || e.Record.State != lease.Held {
		return
	}
	o.gate = true
	defer func() { o.gate = false }()
	w := p.w
	w.sessions++
	session := fmt.Sprintf("s%d", w.sessions)
	floor, _ := o.d.read(p)
	next, err := e.Record.Grant(p.request(session, stay, floor), p.wallclock())
	if err != nil {
		return
	}
	if _, err = p.store(t, callTime).Swap(never, e, next); err != nil {
		return
	}
	t.sleep(w.upTo(30 * time.Millisecond))
	if !o.d.keep(p, next) {
		return
	}
	w.soon(p.host, 0.03)
	r := p.newRun(o, session, next, stay)
	w.logf("%s: %s joined by %s, token %d", p.host.id, o.d.profile, session, r.token)
	w.check.granted(o.d, r.token, true)
	w.counts["runs joined"]++
	p.spawn(func(t *task) { p.serve(t, r) })
}

// serve is a session, as in launcher/session. What the worker sends passes the fence.
func (p *process) serve(t *task, r *run) {
	w, o := p.w, r.o
	ends := w.now + int64(w.upTo(3*time.Minute))
	lost := w.chance(0.3)
	for {
		t.sleep(w.upTo(3 * time.Second))
		switch {
		case o.chrome == nil || !o.chrome.alive || r.lost != nil || w.now >= ends:
			lost = lost || r.lost != nil || o.chrome == nil || !o.chrome.alive
			p.finish(t, r, lost)
			return
		case r.recheck:
			p.uphold(t, r, lease.Progress{})
		case w.chance(0.05):
			p.uphold(t, r, lease.Progress{LastKnownStep: fmt.Sprint(w.now)})
		case w.chance(0.002):
			w.logf("%s: the browser of %s crashes", p.host.id, o.d.profile)
			o.chrome.end()
		default:
			if r.fence.Check() == nil || w.mutant("no fence in front of the browser") {
				w.check.write(o.chrome, r.token)
			}
		}
	}
}

// finish ends a run, as launcher/session/end.go does.
func (p *process) finish(t *task, r *run, lost bool) {
	w, o := p.w, r.o
	for o.gate {
		t.sleep(100 * time.Millisecond)
	}
	o.gate = true
	r.fence.Shut(errEnded)
	t.sleep(w.upTo(time.Second))
	sealed := w.check.seal(o.d.profile, r.session)
	if len(o.runs) > 1 {
		o.runs = without(o.runs, r)
		_, err := p.change(t, o, r, func(rec lease.Record) (lease.Record, error) {
			return rec.EndRun(r.token, lost, "ended", "", sealed, p.wallclock())
		})
		w.logf("%s: %s leaves %s, lost %v: %v", p.host.id, r.session, o.d.profile, lost, err)
		w.check.ended(o.d, r.token)
		o.gate = false
		return
	}
	o.closing = true
	if lost {
		p.recover(t, o, r.session, sealed)
	} else {
		p.close(t, o, 2*time.Second)
		stored, err := p.change(t, o, r, func(rec lease.Record) (lease.Record, error) {
			return rec.Release("done", "ok", sealed, p.wallclock())
		})
		w.logf("%s: %s releases %s, token %d: %v", p.host.id, r.session, o.d.profile, stored.Record.Token, err)
		if err == nil {
			t.sleep(w.upTo(30 * time.Millisecond))
			o.d.keep(p, stored.Record)
		}
	}
	o.d.release(p)
	delete(p.profiles, o.d.profile)
}

var errEnded = errors.New("the session is over")

func without(all []*run, r *run) (rest []*run) {
	for _, other := range all {
		if other != r {
			rest = append(rest, other)
		}
	}
	return rest
}

// change makes a transition of the run's lease, unless that is over or the store forgot
// something about it.
func (p *process) change(t *task, o *open, r *run, fn func(lease.Record) (lease.Record, error)) (lease.Entry, error) {
	return lease.Change(never, p.store(t, storeTime), o.d.profile, func(e lease.Entry) (lease.Record, error) {
		floor, _ := o.d.read(p)
		if standing := e.Record.Standing(r.token); standing == lease.Over || standing == lease.Behind || e.Record.Token < floor || e.Record.LauncherID != p.host.id {
			return e.Record, &lease.FencedError{Profile: o.d.profile, Token: r.token, Current: e.Record.Token}
		}
		return fn(e.Record)
	})
}

// close ends the browser, some time up to within from now.
func (p *process) close(t *task, o *open, within time.Duration) {
	if o.chrome != nil && o.chrome.alive {
		t.sleep(p.w.upTo(within))
		o.chrome.end()
	}
}

// adopt recovers a profile of this host that no session of this process has.
func (p *process) adopt(r lease.Record) {
	d := p.w.dirs[r.ProfileID]
	if p.profiles[r.ProfileID] != nil {
		return
	}
	o := &open{d: d, gate: true, closing: true}
	p.profiles[r.ProfileID] = o
	p.spawn(func(t *task) {
		defer delete(p.profiles, r.ProfileID)
		p.recoverFromDisk(t, o)
	})
}

// recoverFromDisk recovers a profile from what is on the disk, and closes the browser of an
// earlier launcher, if one runs.
func (p *process) recoverFromDisk(t *task, o *open) {
	d := o.d
	if !p.mayTouch(d) {
		return
	}
	e, err := p.store(t, callTime).Get(never, d.profile)
	if err != nil || e.Record.State.Free() || e.Record.State == lease.ManualReview || e.Record.Home != p.host.id {
		return
	}
	floor, own := d.read(p)
	if e.Record.Token < floor && !p.w.mutant("heal left out") {
		p.heal(t, d, floor, own)
		return
	}
	if !d.take(p) {
		if o.chrome = d.adopt(p); o.chrome == nil {
			return
		}
	}
	p.w.logf("%s: recovers %s, %s token %d of %s", p.host.id, d.profile, e.Record.State, e.Record.Token, e.Record.SessionID)
	t.sleep(p.w.upTo(time.Second))
	p.recover(t, o, e.Record.SessionID, p.w.check.seal(d.profile, e.Record.SessionID))
	d.release(p)
}

// recover takes a lost session through all steps to its decision, as
// launcher/recovery/case.go does.
func (p *process) recover(t *task, o *open, session string, sealed lease.Sealed) {
	w, d := p.w, o.d
	step := func(fn func(lease.Record) (lease.Record, error)) (lease.Record, error) {
		e, err := lease.Change(never, p.store(t, storeTime), d.profile, func(e lease.Entry) (lease.Record, error) {
			if e.Record.SessionID != session {
				return e.Record, errNotOurs
			}
			return fn(e.Record)
		})
		w.soon(p.host, 0.03)
		return e.Record, err
	}
	_, err := step(func(r lease.Record) (lease.Record, error) {
		if r.State != lease.Held {
			return r, errAlready
		}
		return r.Suspect("lost", sealed, p.wallclock())
	})
	if err == nil || errors.Is(err, errAlready) {
		floor, _ := d.read(p)
		_, err = step(func(r lease.Record) (lease.Record, error) {
			if r.State != lease.SuspectedStale {
				return r, errAlready
			}
			return p.quarantine(r, floor)
		})
	}
	p.close(t, o, 2*time.Second)
	if err != nil && !errors.Is(err, errAlready) {
		w.logf("%s: %s of %s not quarantined: %v", p.host.id, d.profile, session, err)
		return
	}
	r, err := step(func(r lease.Record) (lease.Record, error) {
		if r.State == lease.Inspected {
			return r, errAlready
		}
		return r.Inspect(sealed, p.wallclock())
	})
	if err != nil && !errors.Is(err, errAlready) {
		w.logf("%s: %s of %s not inspected: %v", p.host.id, d.profile, session, err)
		return
	}
	w.check.inspected(p, d)
	if !d.keep(p, r) {
		return
	}
	t.sleep(w.upTo(200 * time.Millisecond))
	decision := []string{lease.DecisionRelease, lease.DecisionResume, lease.DecisionManualReview}[w.rng.IntN(3)]
	r, err = step(func(r lease.Record) (lease.Record, error) {
		return r.Decide(lease.Verdict{Decision: decision, ResumeFrom: "x"}, p.wallclock())
	})
	w.logf("%s: %s of %s is decided, %s: %v", p.host.id, d.profile, session, decision, err)
	if err == nil {
		d.keep(p, r)
		w.counts["recoveries decided"]++
	}
}

var errNotOurs = errors.New("the lease has another session by now")
