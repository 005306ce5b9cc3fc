// Package model runs the rules of package lease, and not a copy of them, in a
// simulated world: launchers on several hosts, a store that they reach over a bad
// network, disks, kernel locks and browsers. Time is virtual and every choice
// comes from a seed, so hours pass in a moment and a failure can be had again.
//
// What is real: lease.Record and its transitions, lease.Presence, lease.Stay (the
// decisions of a Keeper), lease.Fence, lease.Timing, lease.Observer, Record.Heal,
// Record.Uphold (the decisions of a Holding), lease.Change. What is told again in
// short: what launcher does with them, the kernel's lock, the floor on the disk,
// and the rule of lease/natskv by which a write without an answer is settled.
//
// What is checked, at every step, stands in check.go; the faults in faults.go.
package model
