// Package built has the programs of this tree that tests run.
package built

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

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

// Tool is Leasehold for a tool that the module of the directory names.
func Tool(dir, name string) (string, error) {
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
