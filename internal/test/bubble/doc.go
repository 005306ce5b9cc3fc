// Package bubble runs two launchers in the time of testing/synctest, with a store, disks and
// browsers that fail as a seed says, and checks the promises with a view of the whole world.
// It has tests only.
//
// Real is launcher.Launcher with everything below it, on real directories: keeper, fence and
// patrol, grants, sessions, adoption, recovery, slots with their warm browsers, the CDP proxy,
// the page monitor, roster, locks and floors, the evidence archive; and adopt.Guard beside each
// launcher. Workers and reviewers (worker_test.go, world_test.go) call the api.Service of a
// launcher, as package httpapi does. Played are only
//
//   - the lease store, which is in memory (store_test.go), with the queue of waiting requests;
//   - the network to the folder that has the snapshots of a profile (travel_test.go);
//   - the browsers (browser_test.go, handle_test.go), by the door browser.Processes. One answers
//     what a launcher asks on its pipe (link_test.go). The pipe and the workers' connections are
//     real sockets. A bubble's time stands still while a thread waits in the kernel, so the
//     proxy waits by the door cdpproxy.Waiting;
//   - /proc, by the door procfs.Mount, in which the browsers stand;
//   - the death of a launcher or a guard: its goroutines end at their next call of the store, the
//     next line that they log, or where they next meet a browser; its locks are given up at
//     once, and nothing more is read from its sockets.
//
// A browser of an ephemeral session (reader_test.go) changes what the account has in its copy,
// and is killed with that.
//
// In seeds that leave 1 when divided by 4 there is one host, in those that leave 3 both
// launchers have one folder of profiles.
//
// The random choices come from the seed. Goroutines that are due at the same virtual time run
// in any order, and ids and nonces are random, so that a seed repeats its schedule, and often
// its failure. LEASEHOLD_SEEDS=n plays n seeds, LEASEHOLD_SEED=n that one alone.
package bubble
