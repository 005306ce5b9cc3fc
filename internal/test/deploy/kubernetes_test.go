package deploy

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The members of Kubernetes' objects that the file uses, by the names of its API (v1 and
// apps/v1). One that is not here is a mistake, or has to be looked up and added. The API's
// own types take as long to compile as all else here.
type object struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type spec struct {
	ClusterIP   string    `yaml:"clusterIP"`
	Selector    yaml.Node `yaml:"selector"` // labels of a Service, matchLabels of a StatefulSet
	ServiceName string    `yaml:"serviceName"`
	Replicas    int       `yaml:"replicas"`
	Template    struct {
		Metadata metadata `yaml:"metadata"`
		Spec     pod      `yaml:"spec"`
	} `yaml:"template"`
	VolumeClaimTemplates []struct {
		Metadata metadata `yaml:"metadata"`
		Spec     struct {
			AccessModes []string  `yaml:"accessModes"`
			Resources   resources `yaml:"resources"`
		} `yaml:"spec"`
	} `yaml:"volumeClaimTemplates"`
}

type pod struct {
	TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
	AutomountServiceAccountToken  *bool       `yaml:"automountServiceAccountToken"`
	InitContainers                []container `yaml:"initContainers"`
	Containers                    []container `yaml:"containers"`
	Volumes                       []struct {
		Name     string `yaml:"name"`
		EmptyDir struct {
			Medium    string `yaml:"medium"`
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	} `yaml:"volumes"`
}

type container struct {
	Name          string   `yaml:"name"`
	Image         string   `yaml:"image"`
	RestartPolicy string   `yaml:"restartPolicy"`
	Command       []string `yaml:"command"`
	Args          []string `yaml:"args"`
	Env           []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	SecurityContext struct {
		RunAsUser                int   `yaml:"runAsUser"`
		RunAsGroup               int   `yaml:"runAsGroup"`
		RunAsNonRoot             bool  `yaml:"runAsNonRoot"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct {
			Drop []string `yaml:"drop"`
			Add  []string `yaml:"add"`
		} `yaml:"capabilities"`
		SeccompProfile struct {
			Type string `yaml:"type"`
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Resources      resources `yaml:"resources"`
	StartupProbe   *probe    `yaml:"startupProbe"`
	LivenessProbe  *probe    `yaml:"livenessProbe"`
	ReadinessProbe *probe    `yaml:"readinessProbe"`
	VolumeMounts   []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Exec struct {
		Command []string `yaml:"command"`
	} `yaml:"exec"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type resources struct {
	Requests map[string]string `yaml:"requests"`
	Limits   map[string]string `yaml:"limits"`
}

// quantity is a number as the file writes them.
var quantity = regexp.MustCompile(`^[0-9]+(m|Mi|Gi)?$`)

func TestKubernetesHasASidecarWithItsOwnVolume(t *testing.T) {
	strict := yaml.NewDecoder(strings.NewReader(read(t, "deploy/kubernetes.yml")))
	strict.KnownFields(true)
	kinds := map[string]object{}
	for {
		var o object
		err := strict.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[o.APIVersion+" "+o.Kind] = o
	}
	set, service := kinds["apps/v1 StatefulSet"], kinds["v1 Service"]
	if len(kinds) != 2 || set.Spec.ServiceName != service.Metadata.Name || set.Spec.ServiceName == "" || len(set.Spec.VolumeClaimTemplates) != 1 {
		t.Fatalf("want a StatefulSet with a volume, and its Service: %+v", kinds)
	}
	var selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	if err := set.Spec.Selector.Decode(&selector); err != nil || len(selector.MatchLabels) == 0 {
		t.Fatal(err, selector)
	}
	for name, value := range selector.MatchLabels {
		if set.Spec.Template.Metadata.Labels[name] != value {
			t.Errorf("the set does not select its own pods: %s=%s", name, value)
		}
	}
	p, volumes := set.Spec.Template.Spec, map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		volumes[claim.Metadata.Name] = true
		if !slices.Equal(claim.Spec.AccessModes, []string{"ReadWriteOncePod"}) || !quantity.MatchString(claim.Spec.Resources.Requests["storage"]) {
			t.Errorf("volume %s: %+v", claim.Metadata.Name, claim.Spec)
		}
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		may := c.SecurityContext
		if may.AllowPrivilegeEscalation == nil || *may.AllowPrivilegeEscalation || !slices.Equal(may.Capabilities.Drop, []string{"ALL"}) || may.SeccompProfile.Type == "" {
			t.Errorf("%s may too much: %+v", c.Name, may)
		}
		if c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" {
			t.Errorf("%s has no bounds: %+v", c.Name, c.Resources)
		}
		for _, amounts := range []map[string]string{c.Resources.Limits, c.Resources.Requests} {
			for what, amount := range amounts {
				if !quantity.MatchString(amount) {
					t.Errorf("%s: %s %s", c.Name, what, amount)
				}
			}
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
	i := slices.IndexFunc(p.InitContainers, func(c container) bool { return c.RestartPolicy == "Always" })
	if i < 0 || p.InitContainers[i].StartupProbe == nil || p.InitContainers[i].LivenessProbe == nil || p.InitContainers[i].ReadinessProbe == nil {
		t.Fatal("there is no sidecar with probes")
	}
	sidecar := p.InitContainers[i]
	if sidecar.SecurityContext.RunAsUser != 10001 || !sidecar.SecurityContext.RunAsNonRoot || !slices.Contains(p.InitContainers[0].Command, imageUser) {
		t.Errorf("it runs as %d, and its directory is made by %q; the image's user is %s", sidecar.SecurityContext.RunAsUser, p.InitContainers[0].Command, imageUser)
	}
	if command := strings.Join(sidecar.LivenessProbe.Exec.Command, " "); strings.Contains(command, "readyz") {
		t.Errorf("a NATS that is away would end the sessions: %s", command)
	}
	for _, one := range []*probe{sidecar.StartupProbe, sidecar.LivenessProbe, sidecar.ReadinessProbe} {
		checkProbe(t, sidecar.Name, one.Exec.Command)
	}
	if p.TerminationGracePeriodSeconds < 90 {
		t.Errorf("%d seconds are too few to close browsers in order", p.TerminationGracePeriodSeconds)
	}
}
