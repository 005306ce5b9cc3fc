package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

func TestUnitsAreHardened(t *testing.T) {
	var all []map[string]string
	for _, path := range []string{"deploy/leasehold.service", "deploy/leasehold-browser-user.service"} {
		options, err := unit.Deserialize(strings.NewReader(read(t, path)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		service := map[string]string{}
		for _, o := range options {
			if _, twice := service[o.Name]; twice || !slices.Contains([]string{"Unit", "Service", "Install"}, o.Section) {
				t.Errorf("%s: %s is there twice, or in [%s]", path, o.Name, o.Section)
			}
			service[o.Name] = o.Value
		}
		all = append(all, service)
		for name, want := range map[string]string{
			"KillMode": "process", "OOMPolicy": "continue", "Delegate": "memory pids cpu", // or browsers die with their launcher
			"ProtectSystem": "strict", "PrivateTmp": "true", "NoNewPrivileges": "true", "RestrictSUIDSGID": "true",
		} {
			if service[name] != want {
				t.Errorf("%s: %s=%s, want %s", path, name, service[name], want)
			}
		}
		if !strings.Contains(service["ExecStart"], "--data-dir "+service["ReadWritePaths"]) {
			t.Errorf("%s: it cannot write to its data directory: %s, %s", path, service["ExecStart"], service["ReadWritePaths"])
		}
		// The private /tmp is another one after a restart, which a browser may outlive.
		if service["Environment"] != "TMPDIR=/var/cache/"+service["CacheDirectory"] {
			t.Errorf("%s: %s, and a cache %s", path, service["Environment"], service["CacheDirectory"])
		}
		// It ends before D-Bus does, by which it asks whether the host shuts down: without an answer it would leave its
		// browsers to be killed. And it begins when a NATS on another host can be reached.
		if service["After"] != "network-online.target dbus.service" || service["Wants"] != "network-online.target" {
			t.Errorf("%s: after %q, wants %q", path, service["After"], service["Wants"])
		}
		for _, breaks := range []string{"MemoryDenyWriteExecute", "RestrictNamespaces", "PrivateUsers", "PrivateDevices", "ProtectProc", "SystemCallFilter"} {
			if _, set := service[breaks]; set {
				t.Errorf("%s: %s keeps browsers from starting, or the sidecar from looking after them", path, breaks)
			}
		}
	}
	plain, browserUser := all[0], all[1]
	if plain["CapabilityBoundingSet"] != "" || plain["AmbientCapabilities"] != "" {
		t.Errorf("the sidecar of leasehold.service needs no capability: %q", plain["CapabilityBoundingSet"])
	}
	// What docs/sandbox.md lists.
	needs := "CAP_SETUID CAP_SETGID CAP_CHOWN CAP_FOWNER CAP_DAC_OVERRIDE CAP_KILL CAP_SYS_PTRACE"
	if browserUser["CapabilityBoundingSet"] != needs || browserUser["AmbientCapabilities"] != needs {
		t.Errorf("capabilities %q and %q, want %s", browserUser["CapabilityBoundingSet"], browserUser["AmbientCapabilities"], needs)
	}
}

// TestSystemdTakesTheUnits: systemd knows each key, and takes each value. DelegateSubgroup, which
// the units say needs a newer one, may be unknown to the one that is installed.
func TestSystemdTakesTheUnits(t *testing.T) {
	for _, name := range []string{"leasehold.service", "leasehold-browser-user.service"} {
		text := read(t, "deploy/"+name)
		path := filepath.Join(t.TempDir(), name)
		// The program is not installed where tests run.
		if err := os.WriteFile(path, []byte(strings.Replace(text, "/usr/local/bin/leasehold", "/bin/true", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: make deps installs systemd", err)
		}
		for line := range strings.Lines(string(said)) {
			if !strings.Contains(line, "Unknown key 'DelegateSubgroup' in section [Service]") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
