package deploy

import (
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"
	"go.yaml.in/yaml/v3"
)

func TestComposeIsWhatTheSpecificationAllows(t *testing.T) {
	text := []byte(read(t, "deploy/compose.yml"))
	var whole map[string]any
	if err := yaml.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(whole); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Hostname    string
			Build       struct{ Dockerfile string }
			Environment map[string]string
			Volumes     []string
			DependsOn   []string `yaml:"depends_on"`
			Healthcheck struct{ Test []string }
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	server, nats := found(t, "go.mod", `nats-server/v2 v(\S+)`), 0
	config := read(t, "deploy/nats-server.conf")
	for name, s := range file.Services {
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, declared := file.Volumes[from]; !declared && !strings.HasPrefix(from, "./") {
				t.Errorf("%s: there is no volume %s", name, from)
			}
		}
		if !strings.HasPrefix(name, "nats-") {
			if s.Hostname == "" {
				t.Errorf("%s: a new container has another host name, and Chrome refuses what the one before had open", name)
			}
			continue
		}
		nats++
		if s.Image != "nats:"+server+"-alpine" || s.Environment["NATS_NAME"] != name {
			t.Errorf("%s: %s, named %s; the tests are with %s", name, s.Image, s.Environment["NATS_NAME"], server)
		}
		for variable := range s.Environment {
			if !strings.Contains(config, "$"+variable) {
				t.Errorf("%s: nats-server.conf has no %s", name, variable)
			}
		}
		for _, variable := range strings.Fields(config) {
			variable, ok := strings.CutPrefix(strings.Trim(variable, `[],"`), "$NATS_")
			if _, given := s.Environment["NATS_"+variable]; ok && !given {
				t.Errorf("%s: nats-server.conf needs NATS_%s", name, variable)
			}
		}
	}
	sidecar, ok := file.Services["leasehold"]
	if !ok || nats != 3 || len(sidecar.DependsOn) != 3 || sidecar.Build.Dockerfile != "deploy/Dockerfile" {
		t.Fatalf("%d NATS servers and a sidecar: %+v", nats, sidecar)
	}
	for name := range sidecar.Environment {
		checkVariable(t, "leasehold", name)
	}
	for url := range strings.SplitSeq(sidecar.Environment["LEASEHOLD_NATS_URL"], ",") {
		name, port, _ := strings.Cut(strings.TrimPrefix(url, "tls://"), ":")
		if listen := file.Services[name].Environment["NATS_LISTEN"]; !strings.HasSuffix(listen, ":"+port) {
			t.Errorf("%s is no server that listens there: %q", url, listen)
		}
	}
	checkProbe(t, "healthcheck", sidecar.Healthcheck.Test[1:])
}
