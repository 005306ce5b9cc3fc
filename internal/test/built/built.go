// Package built has the programs of this tree that tests run.
package built

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/source"
)

// Leasehold returns the path of the leasehold of this tree. The go command keeps it, so that
// only the first test binary that asks after a change links it. It must not be changed or
// moved.
func Leasehold() (string, error) {
	return Tool(source.Path("."), "leasehold/cmd/leasehold")
}

// environment is the environment of the test process at its start. Tests change HOME,
// where the go command has its cache.
var environment = os.Environ()

// Tool is Leasehold for a tool that the module of the directory names. Test binaries that ask at the same time
// take turns: what two go commands write at once, neither can run ("text file busy").
func Tool(dir, name string) (_ string, err error) {
	turn, err := os.Open(dir) // the go command locks go.mod itself
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, turn.Close()) }()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("waiting for the turn to build %s: %w", name, err)
	}
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir, cmd.Env = dir, environment
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
