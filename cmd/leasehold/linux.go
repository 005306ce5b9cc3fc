//go:build linux

package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/confine"
)

// readTerminal is the request that only a terminal answers.
const readTerminal = unix.TCGETS

// startConfined starts the program that this process was started to confine, and does not return then.
func startConfined() { confine.Main() }

// endsWithThis has the kernel kill a process when the thread that started it ends.
func endsWithThis() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
