package main

// equivalent are the mutants that no test can notice, by name, with the reason why the code
// does the same.
var equivalent = map[string]string{
	"a grant keeps the runs of before":                                  "a profile that may be granted has no runs: release, quarantine, recall and contest take them out",
	"an observer only notices higher revisions":                         "every write has a nonce of its own, which is compared, too",
	"the age of a store counts as long as its host has been up":         "what is further back than twice the grant delay is further back than the grant delay",
	"queue: who has the place of another waits behind that one":         "who has the place of another has its round, too, and none is looked for",
	"queue: a request that left while it was stored stays in the store": "whoever leaves is removed by the goroutine that stores, after that: it does one thing at a time",
	"travel: a pinned profile moves for a task":                         "Record.Move refuses it, too, before anything is copied",
	"travel: a profile that was given up may still be opened":           "a note that is pending keeps the directory shut, too, and the next look at the profile makes it final",
	"travel: the list of another profile is believed":                   "it is encrypted with another key",
	"travel: a list with later tokens than its own is believed":         "no launcher writes one, and nobody else has the key",
	"travel: another snapshot's manifest is believed":                   "the list names its pieces by the hash of what is in them",
	"row 2, Resume, without SafeCheckpointNamed":                        "a checkpoint that declares what follows idempotent is one that is named: InspectTask answers both from it",
}
