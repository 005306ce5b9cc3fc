package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// deployed reads a file of deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The command lines of deploy/ are ones that the command line's grammar takes.
func TestDeployedCommandLinesAreTaken(t *testing.T) {
	lines := map[string][]string{}
	for _, name := range []string{"leasehold.service", "leasehold-browser-user.service"} {
		m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/leasehold (.*)$`).FindStringSubmatch(deployed(t, name))
		if m == nil {
			t.Fatalf("%s starts nothing", name)
		}
		lines[name] = strings.Fields(m[1])
	}
	var entrypoint []string
	if err := json.Unmarshal([]byte(regexp.MustCompile(`(?m)^ENTRYPOINT (.*)$`).FindStringSubmatch(deployed(t, "Dockerfile"))[1]), &entrypoint); err != nil {
		t.Fatal(err)
	}
	program := slices.Index(entrypoint, "leasehold")
	lines["Dockerfile"] = entrypoint[program+1:]
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct {
						Name string
						Args []string
					} `yaml:"initContainers"`
				}
			}
		}
	}
	_, second, _ := strings.Cut(deployed(t, "kubernetes.yml"), "\n---\n")
	if err := yaml.Unmarshal([]byte(second), &set); err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Spec.Template.Spec.InitContainers {
		if c.Name == "leasehold" { // the image's entry point comes first
			lines["kubernetes.yml"] = slices.Concat(lines["Dockerfile"], c.Args)
		}
	}
	for _, name := range []string{"Dockerfile", "kubernetes.yml", "leasehold.service", "leasehold-browser-user.service"} {
		var c commands
		parser, err := kong.New(&c, kong.Name("leasehold"), kong.Exit(func(int) {}))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.Parse(lines[name])
		if err != nil || parsed.Command() != "run" || c.Run.LogFormat != "json" {
			t.Errorf("%s: leasehold %q: %v", name, lines[name], err)
		}
		if name == "kubernetes.yml" && (c.Run.DataDir != "/volume/data" || c.Run.MaxBrowsers != 4) {
			t.Errorf("%s: what comes later does not count: %q", name, lines[name])
		}
	}
}

// TestDoctorIsAskedAsTheServiceRuns: with other settings, or rights that the service does not have, it would
// say of a host what is not so for the service.
func TestDoctorIsAskedAsTheServiceRuns(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	change := regexp.MustCompile(`(?m)^systemctl cat leasehold \| sed '(.*)' \|$`).FindStringSubmatch(string(page))
	if change == nil {
		t.Fatal("the runbook does not say how to ask the doctor of a service")
	}
	for _, name := range []string{"leasehold.service", "leasehold-browser-user.service"} {
		unit := deployed(t, name)
		sed := exec.Command("sed", change[1])
		sed.Stdin = strings.NewReader(unit)
		copied, err := sed.Output()
		if err != nil {
			t.Fatal(err)
		}
		starts := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/leasehold doctor (.*)$`).FindStringSubmatch(string(copied))
		if starts == nil {
			t.Fatalf("the copy of %s does not ask the doctor:\n%s", name, copied)
		}
		if want := strings.NewReplacer("leasehold run ", "leasehold doctor ", "\nRestart=on-failure\n", "\nType=oneshot\n").Replace(unit); string(copied) != want {
			t.Errorf("the copy of %s is\n%s\nwant\n%s", name, copied, want)
		}
		var c commands
		parser, err := kong.New(&c, kong.Name("leasehold"), kong.Exit(func(int) {}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{"doctor"}, strings.Fields(starts[1])...)); err != nil || c.Doctor.DataDir != "/var/lib/leasehold" {
			t.Errorf("%s: leasehold doctor %s: %v", name, starts[1], err)
		}
	}
}
