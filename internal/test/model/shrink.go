package model

import (
	"maps"
	"time"
)

// Shrink looks for a smaller world in which the same rule is broken, with fewer kinds of
// faults, hosts, profiles and steps. The violation is nil if the rule is not broken again.
func Shrink(o Options, rule string) (Options, *Violation) {
	smallest, found := again(o, rule)
	if found == nil {
		return o, nil
	}
	try := func(change func(*Options)) {
		next := smallest
		next.Faults = maps.Clone(smallest.Faults)
		change(&next)
		if next, v := again(next, rule); v != nil {
			smallest, found = next, v
		}
	}
	for _, f := range AllFaults {
		try(func(o *Options) { delete(o.Faults, f) })
	}
	try(func(o *Options) { o.Loss = 0 })
	try(func(o *Options) { o.StaleReads = 0 })
	try(func(o *Options) { o.Late = 0 })
	for smallest.Profiles > 1 {
		before := smallest.Profiles
		try(func(o *Options) { o.Profiles-- })
		if smallest.Profiles == before {
			break
		}
	}
	if smallest.Hosts > 2 {
		try(func(o *Options) { o.Hosts = 2 })
	}
	return smallest, found
}

// again runs some worlds that differ in their seeds, and returns the one that breaks the rule
// in the fewest steps.
func again(o Options, rule string) (Options, *Violation) {
	const worlds = 12
	shortest, found := o, (*Violation)(nil)
	for i := range uint64(worlds) {
		next := o
		next.Seed += i
		if v := Run(next).Violation; v != nil && v.Rule == rule && (found == nil || v.Step < found.Step) {
			next.Steps = v.Step
			shortest, found = next, v
		}
	}
	if found != nil {
		shortest.Steps = max(2*found.Step, 2_000)
	}
	return shortest, found
}

// Kinds returns the faults that can happen in a world.
func (o Options) Kinds() (kinds map[Fault]time.Duration) {
	kinds = maps.Clone(o.Faults)
	maps.DeleteFunc(kinds, func(_ Fault, mean time.Duration) bool { return mean <= 0 })
	return kinds
}
