package model

import (
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// host is one machine: its clocks, and the launcher on it.
type host struct {
	id   string
	rate float64 // of its clocks, against true time
	// started is when it was booted, in true time; wall is how wrong its wall
	// clock is.
	started int64
	wall    time.Duration
	// frozen: nothing on it runs until then.
	frozen int64
	cutOff bool
	// storm: its network is bad until then.
	storm int64
	p     *process // nil while no launcher runs
	// epoch is what the launcher remembers on its disk.
	epoch uint64
}

func (h *host) boottime(now int64) boottime.Instant {
	return boottime.Instant(float64(now-h.started) * h.rate)
}

// clock is what leases are counted on, and wallclock what people read.
func (p *process) clock() boottime.Instant {
	if p.w.mutant("the wall clock for the deadline") {
		return boottime.Instant(p.wallclock().UnixNano())
	}
	return p.host.boottime(p.w.now)
}

func (p *process) wallclock() time.Time {
	return epochOfTheWorld.Add(time.Duration(float64(p.w.now)*p.host.rate) + p.host.wall)
}

var epochOfTheWorld = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// directory is a profile's, with what the launcher keeps beside it.
type directory struct {
	profile string
	// hosts that can open it: one, or two where it is on a network file system
	// without locks.
	hosts  []*host
	locks  map[*host]*lock
	chrome []*chrome // those that are alive
	kept   lease.Record
	floor  lease.Token
	// wasFloor and wasKept are what a network file system may still show to
	// hosts other than the one that changed it.
	wasKept   lease.Record
	wasFloor  lease.Token
	changed   int64
	changedBy *host
}

func (d *directory) shared() bool { return len(d.hosts) > 1 }

// lock is the kernel's, of one host: with a process, with the browser that
// inherited it, or with both.
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
	// epoch is of the stay that its lease was granted in.
	epoch uint64
}

// take takes the kernel's lock, or does not.
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

// adopt takes the launcher's part of the lock while a browser has its own.
func (d *directory) adopt(p *process) *chrome {
	if l := d.locks[p.host]; l != nil && l.c != nil && l.c.alive && (l.p == nil || l.p.dead) {
		l.p = p
		return l.c
	}
	return nil
}

func (d *directory) release(p *process) {
	if l := d.locks[p.host]; l != nil && l.p == p {
		l.p = nil
	}
}

// keep writes the floor and the record beside it, as launcher/profiledir does.
func (d *directory) keep(p *process, r lease.Record) bool {
	if r.Token < d.floor && !p.w.mutant("no token floor") {
		return false
	}
	d.wasKept, d.wasFloor, d.changed, d.changedBy = d.kept, d.floor, p.w.now, p.host
	d.kept, d.floor = r.Clone(), r.Token
	return true
}

// attributeTime is how long a network file system may show what was there before.
const attributeTime = 3 * time.Second

// read returns the floor and the record beside it, as the launcher sees them.
func (d *directory) read(p *process) (lease.Token, lease.Record) {
	if p.w.mutant("no token floor") {
		return 0, lease.Record{}
	}
	if d.changedBy != p.host && p.w.now-d.changed < int64(p.w.upTo(attributeTime)) {
		return d.wasFloor, d.wasKept
	}
	return d.floor, d.kept
}

// start starts a browser; it inherits the lock.
func (d *directory) start(p *process, r *run) *chrome {
	c := &chrome{d: d, host: p.host, token: r.token, epoch: r.stay.Epoch(), alive: true}
	if l := d.locks[p.host]; l != nil && l.p == p {
		l.c = c
	}
	d.chrome = append(d.chrome, c)
	p.w.check.started(c)
	return c
}

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
