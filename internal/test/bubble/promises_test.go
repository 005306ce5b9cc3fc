package bubble

import "leasehold/lease"

// The promises that are checked, with the number that docs/lab/reliability.md gives them.
const (
	oneChrome      = "P1 one Chrome per directory"
	tokensGrow     = "P2 granted tokens only grow"
	staleWrites    = "P3 a stale holder writes nothing"
	stopsFirst     = "P3 a holder stops before anybody else acts"
	evidenceFirst  = "P4 evidence first"
	inspectedFirst = "P5 nobody opens what was not inspected"
	nothingLost    = "P7 each transition is one event, without gaps"
	everyRunEnds   = "P7 each granted run ends by one event"
	theTable       = "the table of transitions, and who states what"
	neverAnew      = "a profile that is remembered is not made anew elsewhere"
)

// noLauncher is the name of a writer that is none: of a person.
const noLauncher = "a person"

// may tells whether the writer, who replaced p by n, is such an actor. A writer is the id of a
// launcher, or noLauncher for a person, who may also act by hand, through a launcher.
func may(by lease.Actor, writer string, p, n lease.Record) bool {
	switch by {
	case lease.Holder:
		return writer == p.LauncherID
	case lease.Home:
		return writer == n.Home && (p.Home == "" || p.Home == writer)
	case lease.AnyLauncher:
		return writer != noLauncher
	default:
		byHand := n.ByHand != nil || p.ByHand != nil
		asked := n.Moved != nil && n.Moved.Token == n.Token && n.Moved.Person != "" // whoever writes it
		return writer == noLauncher || byHand || asked
	}
}
