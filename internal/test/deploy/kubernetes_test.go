package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func TestKubernetesHasASidecarWithItsOwnVolume(t *testing.T) {
	checkObjects(t, strings.Split(read(t, "deploy/kubernetes.yml"), "\n---\n"))
}

// TestTheDataDirectoryIsTheSidecarsAlone, also on a volume that was made writable for all: the sidecar refuses a
// directory that others can replace.
func TestTheDataDirectoryIsTheSidecarsAlone(t *testing.T) {
	set, _ := checkObjects(t, strings.Split(read(t, "deploy/kubernetes.yml"), "\n---\n"))
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o755} {
		volume := t.TempDir()
		if err := os.Chmod(volume, mode); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is there at the next start
			runInit(t, set.Spec.Template.Spec.InitContainers[0], map[string]string{"/volume": volume})
			checkOwner(t, filepath.Join(volume, "data"), 0o700)
			if info, err := os.Stat(volume); err != nil || info.Mode().Perm() != mode&^0o022 {
				t.Errorf("a volume of mode %v has mode %v, %v; want that others cannot write it, and nothing else changed", mode, info.Mode(), err)
			}
		}
	}
}

// checkObjects checks a StatefulSet with the sidecar and its Service, and returns them.
func checkObjects(t *testing.T, documents []string) (set apps.StatefulSet, service core.Service) {
	t.Helper()
	// What a member of the API is not, a quantity that is none, and a member that is there twice
	// are errors.
	for _, document := range documents {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"apps/v1 StatefulSet": &set, "v1 Service": &service}[kind.APIVersion+" "+kind.Kind]
		// As kubectl does it: by way of JSON, so that a number in the place of a text is refused.
		raw, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		if wrong, err := json.UnmarshalStrict(raw, into); err != nil || len(wrong) > 0 {
			t.Fatalf("%s %s: %v %v", kind.APIVersion, kind.Kind, wrong, err)
		}
	}
	if len(documents) != 2 || set.Spec.ServiceName != service.Name || set.Spec.ServiceName == "" || len(set.Spec.VolumeClaimTemplates) != 1 {
		t.Fatalf("want a StatefulSet with a volume, and its Service: %+v %+v", set, service)
	}
	if set.Spec.Selector == nil || len(set.Spec.Selector.MatchLabels) == 0 {
		t.Fatal("the set selects nothing")
	}
	for name, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[name] != value {
			t.Errorf("the set does not select its own pods: %s=%s", name, value)
		}
	}
	p, volumes := set.Spec.Template.Spec, map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		volumes[claim.Name] = true
		if !slices.Equal(claim.Spec.AccessModes, []core.PersistentVolumeAccessMode{core.ReadWriteOncePod}) || claim.Spec.Resources.Requests.Storage().IsZero() {
			t.Errorf("volume %s: %+v", claim.Name, claim.Spec)
		}
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		may := c.SecurityContext
		if may == nil || may.AllowPrivilegeEscalation == nil || *may.AllowPrivilegeEscalation || may.Capabilities == nil || !slices.Equal(may.Capabilities.Drop, []core.Capability{"ALL"}) || may.SeccompProfile == nil {
			t.Errorf("%s may too much: %+v", c.Name, may)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s has no bounds: %+v", c.Name, c.Resources)
		}
		for _, mount := range c.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s: there is no volume %s", c.Name, mount.Name)
			}
		}
		if c.Image == "leasehold" {
			for _, variable := range c.Env {
				checkVariable(t, c.Name, variable.Name)
			}
		}
	}
	i := slices.IndexFunc(p.InitContainers, func(c core.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways
	})
	if i < 0 || p.InitContainers[i].StartupProbe == nil || p.InitContainers[i].LivenessProbe == nil || p.InitContainers[i].ReadinessProbe == nil {
		t.Fatal("there is no sidecar with probes")
	}
	sidecar := p.InitContainers[i]
	if may := sidecar.SecurityContext; may.RunAsUser == nil || *may.RunAsUser != 10001 || may.RunAsNonRoot == nil || !*may.RunAsNonRoot || !strings.Contains(strings.Join(p.InitContainers[0].Command, " "), " "+imageUser+" ") {
		t.Errorf("it runs as %v, and its directory is made by %q; the image's user is %s", sidecar.SecurityContext, p.InitContainers[0].Command, imageUser)
	}
	if command := strings.Join(sidecar.LivenessProbe.Exec.Command, " "); strings.Contains(command, "readyz") {
		t.Errorf("a NATS that is away would end the sessions: %s", command)
	}
	for _, one := range []*core.Probe{sidecar.StartupProbe, sidecar.LivenessProbe, sidecar.ReadinessProbe} {
		checkProbe(t, sidecar.Name, one.Exec.Command)
	}
	if grace := p.TerminationGracePeriodSeconds; grace == nil || *grace < 90 {
		t.Errorf("%v seconds are too few to close browsers in order", grace)
	}
	return set, service
}

// runInit runs what an initial container runs, with the container's capabilities, and with directories of
// the test where it has its mounts.
func runInit(t *testing.T, c core.Container, mounts map[string]string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes files of other users")
	}
	bounds := "-all"
	for _, capability := range c.SecurityContext.Capabilities.Add {
		bounds += ",+" + strings.ToLower(string(capability))
	}
	command := slices.Clone(c.Command)
	for _, mount := range c.VolumeMounts {
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], mount.MountPath, mounts[mount.MountPath])
		}
	}
	said, err := exec.Command("setpriv", append([]string{"--bounding-set=" + bounds, "--inh-caps=-all", "--no-new-privs"}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %q: %v\n%s", c.Name, command, err, said)
	}
}
