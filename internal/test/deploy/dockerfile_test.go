package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// imageUser is the user and group of the image.
const imageUser = "10001"

func TestDockerfileBuildsAnImageThatIsNotRoot(t *testing.T) {
	result, err := parser.Parse(strings.NewReader(read(t, "deploy/Dockerfile")))
	if err != nil || len(result.Warnings) > 0 {
		t.Fatalf("error %v, warnings %v; want none", err, result.Warnings)
	}
	stages, _, err := instructions.Parse(result.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if version := found(t, "go.mod", `(?m)^go (\d+\.\d+)`); len(stages) != 2 || stages[0].BaseName != "golang:"+version {
		t.Fatalf("%d stages, the first on %s; want two, and golang:%s", len(stages), stages[0].BaseName, version)
	}
	var entrypoint []string
	var installs, user string
	binary := false
	for _, command := range stages[1].Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			entrypoint = c.CmdLine
		case *instructions.HealthCheckCommand:
			checkProbe(t, "HEALTHCHECK", c.Health.Test[1:])
		case *instructions.RunCommand:
			installs += strings.Join(c.CmdLine, " ") + "\n"
		case *instructions.CopyCommand:
			binary = binary || c.From == stages[0].Name && c.DestPath == "/usr/local/bin/leasehold"
		}
	}
	if user != imageUser+":"+imageUser || !strings.Contains(installs, "--uid "+imageUser+" ") {
		t.Errorf("it runs as %q, want the user that it makes, %s", user, imageUser)
	}
	if !binary || len(entrypoint) < 4 || !slices.Equal(entrypoint[:4], []string{"tini", "--", "leasehold", "run"}) {
		t.Errorf("it copies the binary: %v, and starts %q", binary, entrypoint)
	}
	for _, one := range []string{"chromium", "ca-certificates", "curl", "tini", "fonts-liberation"} {
		if !slices.Contains(strings.Fields(installs), one) {
			t.Errorf("%s is not installed", one)
		}
	}
}
