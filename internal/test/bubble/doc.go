// Package bubble runs the real parts of two launchers in the time of testing/synctest, with
// a store, disks and browsers that fail as a seed says, and checks the promises with a view
// of the whole world. It has tests only.
//
// Real are lease.Keeper by way of cluster.Presence, lease.Holding with its fence,
// cluster.Patrol, adopt.Adopter, recovery.Recoverer, session.Registry with its session files,
// slots.Table, roster.Roster, profiledir.Root with its locks and floors, and the evidence
// archive. They work on real directories. Played are only
//
//   - the lease store, which is in memory (store_test.go);
//   - the browser (browser_test.go). A real one cannot be in a bubble: cdpproxy.Mux waits for
//     its pipe in poll(2), where the time of a bubble stands still. So what needs a driven
//     browser is not here: the proxy's own check of the fence, sessions that go on in the next
//     launcher, and warm browsers. A browser that a launcher finds is adopted undriven
//     (browser.Options.Find), captured as far as that goes, and closed;
//   - the steps of a grant and of a session's end (visit_test.go), which are those of
//     launcher.grants and session.Session in short, since both need a driven browser;
//   - the death of a launcher: its goroutines end at their next call of the store, or the next
//     line that they log, and its locks are given up at once.
//
// In seeds that leave 1 when divided by 4 there is one host, in those that leave 3 both
// launchers have one folder of profiles.
//
// The random choices come from the seed. Goroutines that are due at the same virtual time run
// in any order, and ids and nonces are random, so that a seed repeats its schedule, and almost
// always its failure. LEASEHOLD_SEEDS=n plays n seeds, LEASEHOLD_SEED=n that one alone.
package bubble
