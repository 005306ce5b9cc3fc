package model

import (
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// host is one machine: its clocks, and the launcher on it.
type host struct {
	id   string
	rate float64 // the rate of its clocks against true time
	// started is when it was booted, in true time; wall is by how much its wall
	// clock is wrong.
	started int64
	wall    time.Duration
	// frozen is until when nothing on the host runs.
	frozen int64
	cutOff bool
	// storm is until when its network is bad.
	storm int64
	p     *process // nil while no launcher runs
	// epoch is the last epoch of the launcher, which its disk remembers.
	epoch uint64
}

// boottime is the boot-time clock of the host.
func (h *host) boottime(now int64) boottime.Instant {
	return boottime.Instant(float64(now-h.started) * h.rate)
}

// clock is the clock by which deadlines are counted.
func (p *process) clock() boottime.Instant {
	if p.w.mutant("the wall clock for the deadline") {
		return boottime.Instant(p.wallclock().UnixNano())
	}
	return p.host.boottime(p.w.now)
}

// wallclock is the clock whose times are for people.
func (p *process) wallclock() time.Time {
	return epochOfTheWorld.Add(time.Duration(float64(p.w.now)*p.host.rate) + p.host.wall)
}

var epochOfTheWorld = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// directory is the directory of a profile, with what the launcher keeps beside it.
type directory struct {
	profile string
	// hosts are those that can open it: one, or two if it is on a network file system
	// without locks.
	hosts  []*host
	locks  map[*host]*lock
	chrome []*chrome // the browsers on it that are alive
	kept   lease.Record
	floor  lease.Token
	// wasKept and wasFloor are the values before the last change. A network file
	// system may go on to show them to other hosts than changedBy for a while.
	wasKept   lease.Record
	wasFloor  lease.Token
	changed   int64
	changedBy *host
}

func (d *directory) shared() bool { return len(d.hosts) > 1 }

// lock is the kernel's lock on one host. A process has it, or the browser that inherited it,
// or both.
type lock struct {
	p *process
	c *chrome
}

func (l *lock) free() bool {
	return l == nil || (l.p == nil || l.p.dead) && (l.c == nil || !l.c.alive)
}

// chrome is one browser.
type chrome struct {
	d     *directory
	host  *host
	token lease.Token
	alive bool
	// epoch is that of the presence in which its lease was granted.
	epoch uint64
}

// take takes the kernel's lock for the process, if nobody else has it.
func (d *directory) take(p *process) bool {
	if p.w.mutant("no kernel lock") {
		return true
	}
	if l := d.locks[p.host]; !l.free() && l.p != p {
		return false
	}
	if l := d.locks[p.host]; l != nil && l.c != nil && l.c.alive {
		return false
	}
	d.locks[p.host] = &lock{p: p}
	return true
}

// adopt takes the launcher's part of the lock, if a browser has the other part and no
// launcher lives that has this one. It returns the browser, or nil.
func (d *directory) adopt(p *process) *chrome {
	if l := d.locks[p.host]; l != nil && l.c != nil && l.c.alive && (l.p == nil || l.p.dead) {
		l.p = p
		return l.c
	}
	return nil
}

// release gives up the process's part of the lock.
func (d *directory) release(p *process) {
	if l := d.locks[p.host]; l != nil && l.p == p {
		l.p = nil
	}
}

// keep writes the floor and the copy of the record, as launcher/profiledir does. It refuses
// a record below the floor.
func (d *directory) keep(p *process, r lease.Record) bool {
	if r.Token < d.floor && !p.w.mutant("no token floor") {
		return false
	}
	d.wasKept, d.wasFloor, d.changed, d.changedBy = d.kept, d.floor, p.w.now, p.host
	d.kept, d.floor = r.Clone(), r.Token
	return true
}

// attributeTime is how long a network file system may show an old content.
const attributeTime = 3 * time.Second

// read returns the floor and the copy of the record, as the launcher sees them.
func (d *directory) read(p *process) (lease.Token, lease.Record) {
	if p.w.mutant("no token floor") {
		return 0, lease.Record{}
	}
	if d.changedBy != p.host && p.w.now-d.changed < int64(p.w.upTo(attributeTime)) {
		return d.wasFloor, d.wasKept
	}
	return d.floor, d.kept
}

// start starts a browser, which inherits the lock.
func (d *directory) start(p *process, r *run) *chrome {
	c := &chrome{d: d, host: p.host, token: r.token, epoch: r.stay.Epoch(), alive: true}
	if l := d.locks[p.host]; l != nil && l.p == p {
		l.c = c
	}
	d.chrome = append(d.chrome, c)
	p.w.check.started(c)
	return c
}

// end ends the browser.
func (c *chrome) end() {
	if !c.alive {
		return
	}
	c.alive = false
	for i, other := range c.d.chrome {
		if other == c {
			c.d.chrome = append(c.d.chrome[:i:i], c.d.chrome[i+1:]...)
		}
	}
}
