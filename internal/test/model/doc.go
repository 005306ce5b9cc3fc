// Package model runs the rules of package lease in a simulated world: launchers on several
// hosts, a store that they reach over a bad network, disks, kernel locks and browsers. Time
// is virtual and every choice comes from a seed, so hours pass in a moment and a failure can
// be repeated.
//
// The model uses the real rules, not a copy: lease.Record and its transitions,
// lease.Presence, lease.Stay (the decisions of a Keeper), lease.Fence, lease.Timing,
// lease.Observer, Record.Heal, Record.Uphold (the decisions of a Holding), lease.Change. In
// short form it repeats what package launcher does with them, the kernel's lock, the floor
// on the disk, and the rule by which lease/natskv settles a write without an answer. The real
// keeper, holding, patrol, recovery, locks and floors are driven by package bubble beside this
// one, more slowly: this one finds the rare schedules.
//
// check.go has what is checked at every step, and faults.go what goes wrong.
package model
