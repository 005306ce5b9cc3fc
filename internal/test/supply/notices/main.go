// Command notices writes the licences of what is linked into the sidecar to the standard output.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"leasehold/internal/test/supply"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(supply.WriteNotices(out), out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}
