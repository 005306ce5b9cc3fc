package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	core "k8s.io/api/core/v1"
)

// template is what helm template prints: the objects of the chart, for a release with some values.
func template(t *testing.T, release string, values map[string]any) (documents []string) {
	t.Helper()
	c, err := loader.Load(filepath.Join(root, "deploy/helm"))
	if err != nil {
		t.Fatal(err)
	}
	if version := strings.TrimSpace(read(t, "VERSION")); c.Metadata.Version != version || c.Metadata.AppVersion != version {
		t.Errorf("the chart has version %s of version %s, want %s", c.Metadata.Version, c.Metadata.AppVersion, version)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: release, Namespace: "default"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range files {
		documents = append(documents, document)
	}
	return documents
}

// TestTheChartIsKubernetesYml, with its default values, and with a Secret; and with others it has them.
func TestTheChartIsKubernetesYml(t *testing.T) {
	text := read(t, "deploy/kubernetes.yml")
	change := regexp.MustCompile(`(?m)^#   sed -i '(s.*)' kubernetes\.yml$`).FindStringSubmatch(text)
	if change == nil {
		t.Fatal("kubernetes.yml does not say how its lines for a Secret come to count")
	}
	sed := exec.Command("sed", change[1])
	sed.Stdin = strings.NewReader(text)
	withSecret, err := sed.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		text   string
		values map[string]any
	}{
		{text, nil},
		{string(withSecret), map[string]any{"secret": "leasehold"}},
	} {
		set, service := checkObjects(t, template(t, "leasehold", one.values))
		wantSet, wantService := checkObjects(t, strings.Split(one.text, "\n---\n"))
		if !reflect.DeepEqual(set, wantSet) {
			t.Errorf("the chart's set with %v is\n%+v\nwant that of deploy/kubernetes.yml\n%+v", one.values, set, wantSet)
		}
		if !reflect.DeepEqual(service, wantService) {
			t.Errorf("the chart's service with %v is\n%+v\nwant that of deploy/kubernetes.yml\n%+v", one.values, service, wantService)
		}
	}
	set, _ := checkObjects(t, template(t, "shop", map[string]any{
		"replicas": 3, "args": []any{"--nats-url", "nats://nats:4222"}, "storageClass": "fast", "storage": "1Ti", "image": "registry/leasehold:1",
		"env":     []any{map[string]any{"name": "LEASEHOLD_LOG_FORMAT", "value": "json"}},
		"volumes": []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
	}))
	claim, sidecar := set.Spec.VolumeClaimTemplates[0].Spec, set.Spec.Template.Spec.InitContainers[1]
	if set.Name != "shop" || *set.Spec.Replicas != 3 || *claim.StorageClassName != "fast" || claim.Resources.Requests.Storage().String() != "1Ti" ||
		sidecar.Image != "registry/leasehold:1" || !slices.Contains(sidecar.Args, "nats://nats:4222") || sidecar.Env[1].Value != "json" || set.Spec.Template.Spec.Volumes[2].Name != "more" {
		t.Errorf("the values are not in %+v", set)
	}
}

// TestTheChartGivesTheSidecarItsSecrets: the files of a Secret are root's, or those of a group, and the sidecar
// reads its own alone.
func TestTheChartGivesTheSidecarItsSecrets(t *testing.T) {
	set, _ := checkObjects(t, template(t, "shop", map[string]any{
		"secret":       "shop-leasehold",
		"args":         []any{"--listen", "0.0.0.0:9333", "--tokens", "/secrets/tokens.yaml", "--tls-cert", "/secrets/tls.crt", "--tls-key", "/secrets/tls.key"},
		"volumes":      []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
		"volumeMounts": []any{map[string]any{"name": "more", "mountPath": "/more"}},
	}))
	p := set.Spec.Template.Spec
	if len(p.InitContainers) != 3 {
		t.Fatalf("%d containers before the workers, want one that copies the Secret", len(p.InitContainers))
	}
	copies, sidecar := p.InitContainers[1], p.InitContainers[2]
	mounted := func(c core.Container, path string) *core.Volume {
		for _, m := range c.VolumeMounts {
			for _, v := range p.Volumes {
				if m.MountPath == path && m.Name == v.Name {
					return &v
				}
			}
		}
		return nil
	}
	if from := mounted(copies, "/from"); from == nil || from.Secret == nil || from.Secret.SecretName != "shop-leasehold" {
		t.Errorf("it copies from %+v", from)
	}
	if to, has := mounted(copies, "/secrets"), mounted(sidecar, "/secrets"); to == nil || has == nil || has.Name != to.Name || to.EmptyDir == nil || to.EmptyDir.Medium != core.StorageMediumMemory {
		t.Errorf("it copies to %+v, and the sidecar has %+v; want the same, in memory", to, has)
	}
	if mounted(sidecar, "/more") == nil {
		t.Error("the sidecar has no mount of its own")
	}

	// As kubelet has it: the keys are links into a directory that changes its name with each version.
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(from, "..2026"), 0o755), os.Symlink("..2026", filepath.Join(from, "..data"))); err != nil {
		t.Fatal(err)
	}
	names := []string{"tokens.yaml", "tls.crt", "tls.key"}
	for _, name := range names {
		if err := errors.Join(os.WriteFile(filepath.Join(from, "..2026", name), []byte(name), 0o400), os.Symlink("..data/"+name, filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the container may run again
		runInit(t, copies, map[string]string{"/from": from, "/secrets": to})
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(content) != name {
			t.Errorf("%s: %q, %v", name, content, err)
			continue
		}
		checkOwner(t, filepath.Join(to, name), 0o600)
	}
}

// checkOwner wants a file or directory of the sidecar's, with a mode.
func checkOwner(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); fmt.Sprint(owner.Uid) != imageUser || info.Mode().Perm() != mode {
		t.Errorf("%s is of uid %d, with mode %v; want %s and %v", path, owner.Uid, info.Mode(), imageUser, mode)
	}
}

// TestHelmFindsNothingInTheChart but that it has no icon.
func TestHelmFindsNothingInTheChart(t *testing.T) {
	for _, m := range lint.AllWithKubeVersion(filepath.Join(root, "deploy/helm"), nil, "default", nil).Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("helm lint: %s", m)
		}
	}
}
