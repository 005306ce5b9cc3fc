// Command leasehold is the sidecar that owns a host's Chrome profiles, and its client.
// See leasehold --help.
package main

import (
	"os"
	_ "time/tzdata" // a host may have no names of time zones, and Chrome has its own
)

func main() {
	startConfined()
	os.Exit(cli(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
