package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// process is one process of a host's launcher, from its start to its end.
type process struct {
	w      *World
	host   *host
	dead   bool
	paused int64
	tasks  map[*task]bool

	// boot, created and seen are the server's boot, created and seq, as the process
	// knows them from its connection.
	boot, created, seen uint64

	stay *lease.Stay // nil while it has no presence
	// renewNow asks for a renewal at once.
	renewNow bool
	// patrolling is the task of patrol, and idle the number of its wait for the next
	// round.
	patrolling *task
	idle       uint64
	// steady is since when the store is known to have forgotten nothing.
	steady   boottime.Instant
	observer *lease.Observer
	profiles map[string]*open
}

// open is a profile that the launcher works on.
type open struct {
	d      *directory
	chrome *chrome
	runs   []*run
	// gate says that a run is being added or removed.
	gate, closing bool
}

// run is one task on a profile's browser.
type run struct {
	o       *open
	session string
	token   lease.Token
	fence   *lease.Fence
	stay    *lease.Stay
	// own is the record as this run last wrote or saw it; recheck says that the
	// store may have forgotten it.
	own     lease.Record
	recheck bool
	lost    error
}

// Time limits of the launcher.
const (
	callTime  = 5 * time.Second
	storeTime = 10 * time.Second
	homeBound = 5 * time.Minute
)

var never = context.Background()

func (w *World) timing() lease.Timing { return lease.Timing{TTL: w.o.TTL} }

// launch starts the host's launcher.
func (w *World) launch(h *host) {
	if h.p != nil {
		return
	}
	p := &process{w: w, host: h, tasks: map[*task]bool{}, profiles: map[string]*open{}, boot: w.server.boot, created: w.server.created, seen: w.server.seq}
	h.p = p
	w.logf("%s: launcher starts", h.id)
	p.observer = lease.NewObserver(h.id, homeBound)
	p.steady = p.host.boottime(w.now)
	p.spawn(p.attend)
	p.spawn(p.patrol)
	for _, name := range keys(w.dirs) {
		d := w.dirs[name]
		for _, on := range d.hosts {
			if on == h {
				p.spawn(func(t *task) { p.work(t, d) })
			}
		}
	}
	p.spawn(p.people)
}

// die ends the process at once. Browsers live on.
func (p *process) die() {
	p.dead = true
	for t := range p.tasks {
		t.kill()
	}
}

// stopped returns until when the process does not run.
func (p *process) stopped() int64 { return max(p.paused, p.host.frozen) }

// store returns the store for calls that take up to limit.
func (p *process) store(t *task, limit time.Duration) client {
	return client{t: t, until: p.w.now + int64(float64(limit)/p.host.rate), writer: p.host.id}
}

// reconnect makes a new connection. What was seen before no longer counts.
func (p *process) reconnect() {
	s := &p.w.server
	stepped := s.created != p.created || s.seq < p.seen
	p.boot, p.created, p.seen = s.boot, s.created, s.seq
	p.w.logf("%s: connected anew, stepped back %v", p.host.id, stepped)
	p.steady = p.host.boottime(p.w.now)
	if !p.w.mutant("the observer goes on where it was after a restart of the store") || stepped {
		p.observer.Start(p.observed())
	}
	p.renewNow = true
	for _, name := range keys(p.profiles) {
		for _, r := range p.profiles[name].runs {
			r.recheck = true
		}
	}
}

// attend keeps a presence open, as launcher/cluster/presence.go and lease.Keeper do.
func (p *process) attend(t *task) {
	for {
		opened, sent, err := p.openPresence(t)
		if err != nil {
			t.sleep(500 * time.Millisecond)
			continue
		}
		p.host.epoch = opened.Presence.Epoch
		p.stay = lease.Begin(opened, sent, p.w.timing(), p.clock)
		stay := p.stay
		p.w.logf("%s: presence opened, epoch %d", p.host.id, stay.Epoch())
		for {
			for pause := p.w.timing().Renewal(); pause > 0 && !p.renewNow; pause -= time.Second {
				t.sleep(min(pause, time.Second))
			}
			p.renewNow = false
			if err = p.renew(t, stay); err != nil {
				break
			}
		}
		stay.End()
		p.stay = nil
		p.w.logf("%s: presence lost, epoch %d: %v", p.host.id, stay.Epoch(), err)
		for _, name := range keys(p.profiles) {
			for _, r := range p.profiles[name].runs {
				if r.stay == stay {
					p.lose(r, err)
				}
			}
		}
	}
}

func (p *process) openPresence(t *task) (lease.PresenceEntry, boottime.Instant, error) {
	s := p.store(t, callTime)
	prev, err := s.Presence(never, p.host.id)
	own := lease.Presence{LauncherID: p.host.id, TTLSeconds: p.w.o.TTL.Seconds()}
	for {
		if err != nil {
			return lease.PresenceEntry{}, 0, err
		}
		sent := p.clock()
		opened, err := s.SwapPresence(never, prev, prev.Presence.Open(own, p.host.epoch, p.wallclock()))
		var moved *lease.PresenceMovedError
		if !errors.As(err, &moved) {
			return opened, p.counted(sent), err
		}
		prev = *moved.Current
	}
}

// counted returns the moment from which the deadline is counted.
func (p *process) counted(sent boottime.Instant) boottime.Instant {
	if p.w.mutant("the deadline counted from the answer") {
		return p.clock()
	}
	return sent
}

// renew writes until the write is stored, the stay is over, or the deadline has come, as
// lease.Keeper does.
func (p *process) renew(t *task, stay *lease.Stay) error {
	for {
		left := stay.Deadline().Sub(p.clock())
		if left <= 0 {
			return lease.ErrExpired
		}
		prev, next, err := stay.Next(p.wallclock())
		if err != nil {
			return err
		}
		sent := p.clock()
		stored, err := p.store(t, left).SwapPresence(never, prev, next)
		var moved *lease.PresenceMovedError
		switch {
		case err == nil:
			if stay.Deadline().Sub(p.clock()) < p.w.o.TTL/2 {
				p.w.soon(p.host, 1)
			}
			return stay.Renewed(stored, p.counted(sent))
		case errors.As(err, &moved):
			stay.Shown(*moved.Current)
		default:
			return fmt.Errorf("%w: %w", lease.ErrExpired, err)
		}
	}
}

// uphold writes the run's progress, and the lease again where that is needed, as
// lease.Holding does.
func (p *process) uphold(t *task, r *run, progress lease.Progress) {
	r.recheck = false
	boot := p.boot
	limit := min(callTime, r.stay.Deadline().Sub(p.clock()))
	stored, err := lease.Change(never, p.store(t, limit), r.o.d.profile, func(e lease.Entry) (lease.Record, error) {
		if err := r.fence.Check(); err != nil {
			return e.Record, err
		}
		return e.Record.Uphold(r.own, r.token, progress, p.wallclock())
	})
	var fenced *lease.FencedError
	switch {
	case err == nil:
		r.own = stored.Record
		r.recheck = r.recheck || p.boot != boot
	case errors.As(err, &fenced), errors.Is(err, lease.ErrExpired):
		p.lose(r, err)
	default:
		r.recheck = true
	}
}

// lose shuts the fence of a run, with the cause. If only waiting times guard the directory,
// the browser is closed at once, even though the evidence then has to do without it.
func (p *process) lose(r *run, cause error) {
	if r.lost != nil {
		return
	}
	r.fence.Shut(cause)
	r.lost = cause
	if r.o.d.shared() {
		p.spawn(func(t *task) { p.close(t, r.o, p.w.timing().Margin()) })
	}
}

// patrol reads everything that the store has, and acts on it, as
// launcher/cluster/patrol.go does.
func (p *process) patrol(t *task) {
	for {
		p.idle = t.await()
		p.patrolling = t
		p.patrolAfter(p.w.o.Patrol/2 + p.w.upTo(p.w.o.Patrol))
		t.wait()
		s := p.store(t, callTime)
		all, err := s.List(never)
		if err != nil {
			continue
		}
		presences, err := s.Presences(never)
		if err != nil {
			continue
		}
		if p.boot == p.w.server.boot {
			p.seen = max(p.seen, p.w.server.seq)
		}
		now := p.observed()
		p.observer.Presences(p.watched(presences), now)
		for _, e := range all {
			r := e.Record
			if o := p.profiles[r.ProfileID]; o != nil && len(o.runs) > 0 {
				for _, run := range o.runs {
					switch standing := r.Standing(run.token); {
					case standing == lease.Over, standing != lease.Behind && r.LauncherID != p.host.id:
						p.lose(run, &lease.FencedError{Profile: r.ProfileID, Token: run.token, Current: r.Token})
					case standing == lease.Current:
						if r.Sequence >= run.own.Sequence {
							run.own = r
						}
					default:
						run.recheck = true
					}
				}
				continue
			}
			if r.Home == p.host.id {
				if !r.State.Free() && r.State != lease.ManualReview {
					p.adopt(r)
				}
				continue
			}
			p.observe(t, e, p.observer.Lease(e, p.observed()))
		}
	}
}

// patrolAfter lets the next round of the patrol begin after d.
func (p *process) patrolAfter(d time.Duration) {
	t, wait := p.patrolling, p.idle
	p.w.after(d, func() { t.wake(wait) })
}

// sharp makes all other launchers notice the change of a presence, and look again when they
// have waited long enough since.
func (w *World) sharp(launcher string, revision uint64) {
	wait := w.timing().ObserverWait()
	if w.mutant("observers wait for the TTL, without drift and slack") {
		wait = w.o.TTL
	}
	for _, h := range w.hosts {
		p := h.p
		if !w.o.Sharp || p == nil || p.patrolling == nil || h.id == launcher {
			continue
		}
		sight := w.upTo(5 * time.Millisecond)
		p.patrolAfter(sight)
		for range 3 { // the launcher sees the change some milliseconds later
			w.after(time.Duration(float64(wait)/h.rate)+sight+w.upTo(30*time.Millisecond), func() {
				if !p.dead && w.server.presences.last(launcher).revision == revision {
					p.patrolAfter(0)
				}
			})
		}
	}
}

// observed returns the time that the observer is given. For the mutant that waits only for
// the TTL, this clock is faster by that factor.
func (p *process) observed() boottime.Instant {
	now := p.host.boottime(p.w.now)
	if p.w.mutant("observers wait for the TTL, without drift and slack") {
		now = boottime.Instant(float64(now) * float64(p.w.timing().ObserverWait()) / float64(p.w.o.TTL))
	}
	return now
}

// watched returns the presences that the observer is shown. The mutant sees no change in a
// presence until that is closed.
func (p *process) watched(all []lease.PresenceEntry) []lease.PresenceEntry {
	if !p.w.mutant("the observer's timer not started again by a renewal") {
		return all
	}
	for i := range all {
		if !all[i].Presence.Closed {
			all[i].Revision, all[i].Presence.Nonce = all[i].Presence.Epoch, ""
		}
	}
	return all
}

// observe does what the observer decided about a lease of another launcher.
func (p *process) observe(t *task, e lease.Entry, step lease.Step) {
	w, r := p.w, e.Record
	s := p.store(t, callTime)
	if step.Close != nil {
		prev := step.Prev
		if w.mutant("the observer's timer not started again by a renewal") {
			prev = presenceOf(w.server.presences.last(r.LauncherID))
		}
		next := *step.Close
		next.ClosedAt = p.wallclock()
		if _, err := s.SwapPresence(never, prev, next); err == nil {
			w.logf("%s: closed the silent presence of %s, epoch %d", p.host.id, r.LauncherID, next.Epoch)
		}
		return
	}
	var next lease.Record
	var err error
	switch step.Fact {
	case lease.Suspected:
		next, err = r.Suspect("observed", lease.Sealed{}, p.wallclock())
	case lease.Fenced:
		next, err = p.quarantine(r, 0)
	case lease.Abandoned:
		next, err = r.Abandon([]string{"its home did not come back"}, w.check.seal(r.ProfileID, r.SessionID), p.wallclock())
	default:
		return
	}
	if err == nil {
		_, err = s.Swap(never, e, next)
	}
	w.logf("%s: %s of %s, token %d, is %s: %v", p.host.id, r.ProfileID, r.LauncherID, r.Token, step.Fact, err)
}

// quarantine is Record.Quarantine, or its mutant.
func (p *process) quarantine(r lease.Record, floor lease.Token) (lease.Record, error) {
	before := r.Token
	next, err := r.Quarantine(floor, p.wallclock())
	if p.w.mutant("quarantine leaves the token as it is") && err == nil {
		next.Token = before
		for i := range next.Outbox {
			next.Outbox[i].Token = before
		}
	}
	return next, err
}

// work acquires the profile again and again, as workers do.
func (p *process) work(t *task, d *directory) {
	for {
		t.sleep(p.w.upTo(40 * time.Second))
		p.acquire(t, d)
	}
}

// people approves profiles in review, as people do at any launcher.
func (p *process) people(t *task) {
	for {
		t.sleep(p.w.upTo(3 * time.Minute))
		for _, profile := range keys(p.w.dirs) {
			s := p.store(t, callTime)
			s.writer = Person
			e, err := s.Get(never, profile)
			if err != nil || e.Record.State != lease.ManualReview || !p.w.chance(0.5) {
				continue
			}
			seen := e.Record.Token
			_, err = lease.Change(never, s, profile, func(e lease.Entry) (lease.Record, error) {
				return e.Record.Reviewed(lease.Review{Decision: lease.ReviewApprove, Reviewer: "ann", TokenSeen: seen}, 0, p.wallclock())
			})
			p.w.logf("a person approves %s, token %d: %v", profile, seen, err)
		}
	}
}

// Person is a writer that is no launcher.
const Person = "a person"
