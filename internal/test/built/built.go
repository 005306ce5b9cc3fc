// Package built has the programs of this tree that tests run.
package built

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Leasehold returns the path of the leasehold of this tree. The go command keeps it, so that
// only the first test binary that asks after a change links it. It must not be changed or
// moved.
func Leasehold() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "tool", "-n", "leasehold/cmd/leasehold")
	cmd.Dir = filepath.Dir(file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building leasehold: %w\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
