package main

import (
	"encoding/json"
	"os"
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
	m := regexp.MustCompile(`(?m)^sudo systemd-run ((?:.*\\\n)*.* leasehold doctor .*)$`).FindStringSubmatch(string(page))
	if m == nil {
		t.Fatal("the runbook does not say how to ask the doctor of a service")
	}
	line, unit := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "\\\n", " ")), " "), deployed(t, "leasehold.service")
	for _, setting := range []string{"User", "EnvironmentFile", "NoNewPrivileges"} {
		value := regexp.MustCompile(`(?m)^` + setting + `=(.*)$`).FindStringSubmatch(unit)
		if value == nil || !strings.Contains(line+" ", " -p "+setting+"="+value[1]+" ") {
			t.Errorf("%q does not have the %s of the service, %q", line, setting, value)
		}
	}
	dir := regexp.MustCompile(` --data-dir \S+`).FindString(unit)
	if dir == "" || !strings.HasSuffix(line, " leasehold doctor"+dir) {
		t.Errorf("%q does not have the directory of the service, %q", line, dir)
	}
}
