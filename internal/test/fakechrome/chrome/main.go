// Command chrome is the scripted browser of package fakechrome.
package main

import (
	"fmt"
	"os"
	"slices"

	"leasehold/internal/test/fakechrome"
)

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		fmt.Println("Chromium 156.0.0.0")
		return
	}
	if err := fakechrome.Play(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
