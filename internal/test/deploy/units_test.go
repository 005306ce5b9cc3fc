package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"go.yaml.in/yaml/v3"
)

func TestUnitsAreHardened(t *testing.T) {
	var all []map[string]string
	for _, path := range []string{"deploy/leasehold.service", "deploy/leasehold-browser-user.service"} {
		options, err := unit.DeserializeOptions(strings.NewReader(read(t, path)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		service := map[string]string{}
		for _, o := range options {
			if _, twice := service[o.Name]; twice || !slices.Contains([]string{"Unit", "Service", "Install"}, o.Section) {
				t.Errorf("%s: %s is there twice, or in [%s]", path, o.Name, o.Section)
			}
			service[o.Name] = o.Value
			// A key in another section than its own is ignored.
			if limits := strings.HasPrefix(o.Name, "StartLimit"); limits != (o.Section == "Unit") && (limits || strings.HasPrefix(o.Name, "Restart")) {
				t.Errorf("%s: %s is in [%s]", path, o.Name, o.Section)
			}
		}
		all = append(all, service)
		for name, want := range map[string]string{
			"KillMode": "process", "OOMPolicy": "continue", "Delegate": "memory pids cpu", // or browsers die with their launcher
			// However often it fails, it is started again, and not so soon that a limit ends that.
			"Restart": "on-failure", "RestartSec": "2", "StartLimitIntervalSec": "0", "RestartPreventExitStatus": "",
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

// TestThePackagesStartTheirProgram: a package has the program in another place than the units of deploy say. The
// script that makes packages changes the units that are packed.
func TestThePackagesStartTheirProgram(t *testing.T) {
	var packed struct {
		Contents []struct{ Src, Dst string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/package/nfpm.yaml")), &packed); err != nil {
		t.Fatal(err)
	}
	stage, program, units := t.TempDir(), "", map[string]string{}
	for _, file := range packed.Contents {
		if filepath.Base(file.Dst) == "leasehold" && filepath.Base(filepath.Dir(file.Dst)) == "bin" {
			program = file.Dst
		}
		if filepath.Ext(file.Dst) == ".service" {
			units[file.Dst] = file.Src
		}
	}
	if program == "" || len(units) != 2 {
		t.Fatalf("the program is at %q, and the units are %v", program, units)
	}
	for _, from := range units {
		if err := os.WriteFile(filepath.Join(stage, filepath.Base(from)), []byte(read(t, "deploy/"+filepath.Base(from))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := exec.Command("sh", "-euc", found(t, "scripts/release.sh", `(?m)^\t(sed -i .*\.service"?)$`))
	change.Env = append(os.Environ(), "dir="+stage)
	if said, err := change.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", change, err, said)
	}
	for to, from := range units {
		from = strings.Replace(from, "${STAGE}", stage, 1)
		if !filepath.IsAbs(from) {
			from = filepath.Join(root, from)
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		options, err := unit.DeserializeOptions(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		starts := slices.IndexFunc(options, func(o *unit.UnitOption) bool { return o.Name == "ExecStart" })
		if starts < 0 || strings.Fields(options[starts].Value)[0] != program {
			t.Errorf("%s does not start %s", to, program)
		}
	}
}

// TestWhatThePackagesRecommend: Debian's alternatives are one name to rpm, which no package has.
func TestWhatThePackagesRecommend(t *testing.T) {
	var packed struct {
		Recommends []string
		Overrides  map[string]struct{ Recommends []string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/package/nfpm.yaml")), &packed); err != nil {
		t.Fatal(err)
	}
	for packager, browser := range map[string]string{"deb": "chromium | google-chrome-stable", "rpm": "(chromium or google-chrome-stable)"} {
		recommends := packed.Recommends
		if own := packed.Overrides[packager].Recommends; own != nil {
			recommends = own
		}
		if !slices.Contains(recommends, browser) {
			t.Errorf("the .%s recommends %q, want %q among them", packager, recommends, browser)
		}
	}
}
