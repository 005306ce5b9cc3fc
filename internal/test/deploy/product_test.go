package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found is the first group of a pattern in a file of the project.
func found(t *testing.T, path, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
	if m == nil {
		t.Fatalf("%s has no %s", path, pattern)
	}
	return m[1]
}

// checkVariable wants a LEASEHOLD_ variable among those of leasehold run.
func checkVariable(t *testing.T, where, name string) {
	t.Helper()
	known := regexp.MustCompile(`env:"(LEASEHOLD_\w+)"`).FindAllStringSubmatch(read(t, "cmd/leasehold/settings.go"), -1)
	if strings.HasPrefix(name, "LEASEHOLD_") && !slices.ContainsFunc(known, func(m []string) bool { return m[1] == name }) {
		t.Errorf("%s: leasehold run reads no %s", where, name)
	}
}

// checkProbe wants a command that asks the sidecar, at its default address, for a path that
// it serves to everybody.
func checkProbe(t *testing.T, where string, command []string) {
	t.Helper()
	address := found(t, "cmd/leasehold/settings.go", `env:"LEASEHOLD_LISTEN" default:"([^"]+)"`)
	path, ok := strings.CutPrefix(command[len(command)-1], "http://"+address)
	if !ok || command[0] != "curl" || command[1] != "-fsS" {
		t.Errorf("%s: %q, want curl -fsS http://%s/...", where, command, address)
	}
	if !strings.Contains(read(t, "launcher/httpapi/probes.go"), `get("`+path+`", forAnybody`) {
		t.Errorf("%s: %s is not served to everybody", where, path)
	}
}
