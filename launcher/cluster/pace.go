package cluster

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// Nobody asked for what a launcher writes between two grants of a profile: a recovery, a heal, a
// quarantine. These are as many writes of a profile's record, and rises of its token, as there
// may be in a row without a grant, and as many more come with each hour. An incident takes about
// ten writes and one rise. Something that answers to its own writes would go on without an end.
const (
	ownWrites = 200
	ownRises  = 20
)

// pace bounds what the launcher writes of a profile without being asked.
type pace struct {
	mu       sync.Mutex
	profiles map[string]*ownPace
}

type ownPace struct {
	writes, rises *rate.Limiter
	last          time.Time
	stopped       bool
}

// allows tells whether the record of a profile may be changed at now from prev to next. stops is
// true for the first change that may not be.
func (p *pace) allows(prev, next lease.Record, now boottime.Instant) (ok, stops bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next.State == lease.Held { // it was granted, or is in use
		delete(p.profiles, next.ProfileID)
		return true, false
	}
	at := time.Unix(0, int64(now))
	own := p.profiles[next.ProfileID]
	if own == nil {
		p.forget(at)
		own = &ownPace{writes: rate.NewLimiter(rate.Every(time.Hour/ownWrites), ownWrites), rises: rate.NewLimiter(rate.Every(time.Hour/ownRises), ownRises)}
		p.profiles[next.ProfileID] = own
	}
	ok = own.writes.AllowN(at, 1) && (next.Token <= prev.Token || own.rises.AllowN(at, 1))
	stops = !ok && !own.stopped
	own.last, own.stopped = at, !ok
	return ok, stops
}

// forget drops the profiles that were not written for so long that all of their writes are back.
func (p *pace) forget(now time.Time) {
	for profile, own := range p.profiles {
		if now.Sub(own.last) > time.Hour {
			delete(p.profiles, profile)
		}
	}
}
