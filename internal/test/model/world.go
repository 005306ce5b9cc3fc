package model

import (
	"fmt"
	"math/rand/v2"
	"time"

	"leasehold/lease"
)

// Options of a World.
type Options struct {
	Seed  uint64
	Steps int
	// Hosts is the number of hosts, each with one launcher, and Profiles that of the
	// profiles, each with its directory.
	Hosts, Profiles int
	// Shared puts each directory on a file system that two hosts share, and on which
	// locks do not work between them.
	Shared bool
	TTL    time.Duration
	// Patrol is about the time between two reads of a launcher in which it looks at
	// what the others do.
	Patrol time.Duration
	// Sharp makes launchers look at once when a presence changes, and again at the
	// very moment when they have waited long enough.
	Sharp bool
	// Drift is by how much the clock rate of a host is wrong, in either direction.
	Drift float64
	// Loss, StaleReads and Late are the probabilities that a message is lost, that a
	// read returns an old value, and that a request arrives (again) long after it was
	// sent.
	Loss, StaleReads, Late float64
	// Faults is the mean time between two faults of each kind.
	Faults map[Fault]time.Duration
	// Cuts is the shortest and the longest time for which a host is cut off.
	Cuts [2]time.Duration
	// Mutant names the one rule that is left out; empty for none.
	Mutant string
	// Keep collects every compare-and-swap in Result.Swaps, and does not check them.
	Keep bool
}

// World is one simulated run.
type World struct {
	engine
	o        Options
	hosts    []*host
	dirs     map[string]*directory
	server   server
	check    checker
	nonces   uint64
	sessions uint64
	counts   map[string]int // how often things happened, by kind
}

// mutant tells whether the rule of that name is left out.
func (w *World) mutant(name string) bool { return w.o.Mutant == name }

// Result is the result of a run.
type Result struct {
	Violation *Violation // nil if no rule was broken
	Steps     int
	Virtual   time.Duration // how much virtual time passed
	// Counts is how often things happened, by kind.
	Counts map[string]int
	Swaps  []*Swap
}

// Run runs a world until it has taken its steps or a rule is broken.
func Run(o Options) Result {
	w := &World{
		engine: engine{rng: rand.New(rand.NewPCG(o.Seed, 20261120))}, o: o,
		dirs: map[string]*directory{}, counts: map[string]int{},
		server: server{boot: 1, created: 1, records: bucket[lease.Record]{}, presences: bucket[lease.Presence]{}},
	}
	w.check = newChecker(w)
	for i := range o.Hosts {
		h := &host{id: fmt.Sprintf("host%d", i), rate: 1}
		switch {
		case o.Sharp && i%2 == 0, !o.Sharp && w.chance(1./3):
			h.rate -= o.Drift
		case o.Sharp, w.chance(1. / 2):
			h.rate += o.Drift
		}
		h.started = -int64(w.upTo(1000 * time.Hour))
		h.wall = w.upTo(time.Minute)
		w.hosts = append(w.hosts, h)
	}
	for i := range o.Profiles {
		d := &directory{profile: fmt.Sprintf("p%d", i), hosts: []*host{w.hosts[i%o.Hosts]}, locks: map[*host]*lock{}}
		if o.Shared {
			d.hosts = append(d.hosts, w.hosts[(i+1)%o.Hosts])
		}
		w.dirs[d.profile] = d
	}
	for _, h := range w.hosts {
		w.launch(h)
	}
	w.plan()
	w.run(o.Steps)
	for _, h := range w.hosts {
		if h.p != nil {
			h.p.die()
		}
	}
	return Result{Violation: w.found, Steps: w.steps, Virtual: time.Duration(w.now), Counts: w.counts, Swaps: w.check.swaps}
}
