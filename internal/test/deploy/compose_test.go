package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestTheContainersReadTheirKeys: no container has a capability, so root, as which the NATS servers run, reads only
// what the modes of the files let it read. The head of the file says how to set them.
func TestTheContainersReadTheirKeys(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes files of other users")
	}
	text := read(t, "deploy/compose.yml")
	var file struct {
		Services map[string]struct {
			CapDrop     []string `yaml:"cap_drop"`
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // other users pass through
		t.Fatal(err)
	}
	keys := filepath.Join(dir, "deploy", "keys")
	if err := os.MkdirAll(keys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	used := map[string]map[string]bool{} // the files, and the users who need them
	for name, s := range file.Services {
		if !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("%s keeps capabilities: drops %v", name, s.CapDrop)
		}
		user := "0" // of the image of NATS
		if name == "leasehold" {
			user = found(t, "deploy/Dockerfile", `(?m)^USER (\d+):`)
		}
		for _, value := range s.Environment {
			key, ok := strings.CutPrefix(value, "/keys/")
			if !ok {
				continue
			}
			if used[key] == nil {
				used[key] = map[string]bool{}
			}
			used[key][user] = true
			path := filepath.Join(keys, key)
			if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chown(path, 1000, 1000)); err != nil { // as whoever made it has it
				t.Fatal(err)
			}
		}
	}
	if len(used) < 8 {
		t.Fatalf("only %v are used", used)
	}
	commands := regexp.MustCompile(`(?m)^#   (?:sudo )?(ch(?:own|mod) .*)$`).FindAllStringSubmatch(text, -1)
	for _, command := range commands {
		cmd := exec.Command("sh", "-euc", command[1])
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command[1], err, said)
		}
	}
	for key, users := range used {
		for user := range users {
			said, err := exec.Command("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "cat", filepath.Join(keys, key)).CombinedOutput()
			if err != nil {
				t.Errorf("user %s, without capabilities: %v: %s", user, err, said)
			}
		}
		info, err := os.Stat(filepath.Join(keys, key))
		if err != nil || filepath.Ext(key) != ".pem" && info.Mode().Perm() != 0o600 {
			t.Errorf("others read %s, too: %v, %v", key, info.Mode(), err)
		}
	}
	for _, ignored := range []string{".gitignore", ".dockerignore"} {
		if lines := strings.Split(read(t, ignored), "\n"); !slices.Contains(lines, "/deploy/keys/") || !slices.Contains(lines, "/deploy/.env") {
			t.Errorf("%s does not name the keys: %q", ignored, lines)
		}
	}
}
