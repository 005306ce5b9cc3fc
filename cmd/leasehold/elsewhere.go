//go:build !linux

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// The sidecar runs on Linux. Elsewhere the program has the commands that talk to one.

type (
	runCmd    struct{ onlyLinux }
	doctorCmd struct{ onlyLinux }
	guardCmd  struct{ onlyLinux }
)

// onlyLinux is a command that runs on Linux alone. It takes any flags there are.
type onlyLinux struct {
	Arguments []string `arg:"" optional:"" passthrough:""`
}

// Run refuses.
func (onlyLinux) Run() error {
	return exitWith(exitUsage, "the sidecar runs on Linux: give the other commands the URL of one (LEASEHOLD_URL, or --url)")
}

// readTerminal is the request that only a terminal answers.
const readTerminal = unix.TIOCGETA

func startConfined() {}

// endsWithThis returns nil: a command of exec goes on if exec is killed.
func endsWithThis() *syscall.SysProcAttr { return nil }
