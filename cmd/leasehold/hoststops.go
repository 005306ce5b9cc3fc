//go:build linux

package main

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// systemdTimeout limits how long systemd may take to answer.
const systemdTimeout = 5 * time.Second

// hostStops tells whether systemd is about to shut the host down. It would end a browser that is
// left by a signal, and the cookies of the last half minute would be lost. Where there is no
// systemd the host does not stop, as far as is known.
func hostStops() bool {
	ctx, cancel := context.WithTimeout(context.Background(), systemdTimeout)
	defer cancel()
	state, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // it fails in all states but one
	return strings.TrimSpace(string(state)) == "stopping"
}
