package deploy

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
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

// TestTheChartIsKubernetesYml, with its default values; and with others it has them.
func TestTheChartIsKubernetesYml(t *testing.T) {
	set, service := checkObjects(t, template(t, "leasehold", nil))
	wantSet, wantService := checkObjects(t, strings.Split(read(t, "deploy/kubernetes.yml"), "\n---\n"))
	if !reflect.DeepEqual(set, wantSet) {
		t.Errorf("the chart's set is\n%+v\nwant that of deploy/kubernetes.yml\n%+v", set, wantSet)
	}
	if !reflect.DeepEqual(service, wantService) {
		t.Errorf("the chart's service is\n%+v\nwant that of deploy/kubernetes.yml\n%+v", service, wantService)
	}
	set, _ = checkObjects(t, template(t, "shop", map[string]any{
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

// TestHelmFindsNothingInTheChart but that it has no icon.
func TestHelmFindsNothingInTheChart(t *testing.T) {
	for _, m := range lint.AllWithKubeVersion(filepath.Join(root, "deploy/helm"), nil, "default", nil).Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("helm lint: %s", m)
		}
	}
}
